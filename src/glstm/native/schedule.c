/* From a table k to the schedule: when each unit works, and in which slot it sits. */
#include <stdlib.h>

#include "engine.h"

#define WIDEST 16 /* floats in the widest vector: slots come in whole vectors */

void glstm_schedule_free(Schedule *plan) {
  if (!plan) return;
  free(plan->start), free(plan->units), free(plan->slot_k);
  free(plan);
}

static int opens_or_closes(const float *k, int t, int H) {
  int changed = t == 0;
  for (int j = 0; t && j < H; j++) changed |= (k[j] != 0) != (k[j - H] != 0);
  return changed;
}

/* Fills spans and most_open. Returns how many units are listed, over all spans. */
static size_t count_spans(Schedule *plan, const float *k) {
  size_t listed = 0;
  for (int t = 0; t < plan->steps; t++, k += plan->hidden) {
    int open = 0;
    for (int j = 0; j < plan->hidden; j++) open += k[j] != 0;
    if (opens_or_closes(k, t, plan->hidden)) plan->spans++, listed += open;
    if (open > plan->most_open) plan->most_open = open;
  }
  return listed;
}

typedef struct {
  int32_t *slot_of, *taken;       /* (H): a unit's slot or -1; (3H): whether a slot is not to be given away */
  int32_t listed, left, came;     /* entries written so far */
} Cursor;

static void change_seats(Schedule *plan, Cursor *at, int span, const float *k) {
  int H = plan->hidden, left_before = span ? plan->leaving_offset[span - 1] : 0;
  plan->offset[span] = at->listed, plan->slots_used[span] = 0;
  plan->leaving_offset[span] = at->left, plan->arriving_offset[span] = at->came;
  for (int j = 0; j < H; j++) {
    int open = k[j] != 0, seated = at->slot_of[j] >= 0;
    if (!open && seated) {
      plan->leaving[at->left] = j, plan->leaving_slots[at->left++] = at->slot_of[j];
      at->slot_of[j] = -1;
    }
    if (open && !seated) {
      int slot = 0; /* the lowest free one: mostly one vector has them all */
      while (at->taken[slot]) slot++;
      at->taken[slot] = 1, at->slot_of[j] = slot;
      plan->arriving[at->came] = j, plan->arriving_slots[at->came++] = slot;
    }
    if (open) {
      plan->units[at->listed] = j, plan->slots[at->listed++] = at->slot_of[j];
      if (plan->slots_used[span] <= at->slot_of[j]) plan->slots_used[span] = at->slot_of[j] + 1;
    }
  }
  for (int q = left_before; q < plan->leaving_offset[span]; q++) at->taken[plan->leaving_slots[q]] = 0;
}

static int fill_slots(Schedule *plan, const float *k) {
  int most = 1;
  for (int span = 0; span < plan->spans; span++)
    if (plan->slots_used[span] > most) most = plan->slots_used[span];
  plan->capacity = (most + WIDEST - 1) / WIDEST * WIDEST;
  plan->slot_k = calloc((size_t)plan->steps * plan->capacity + 1, sizeof(float));
  if (!plan->slot_k) return 1;
  for (int span = 0; span < plan->spans; span++)
    for (int t = plan->start[span]; t < plan->start[span + 1]; t++)
      for (int q = plan->offset[span]; q < plan->offset[span + 1]; q++)
        plan->slot_k[(size_t)t * plan->capacity + plan->slots[q]] = k[(size_t)t * plan->hidden + plan->units[q]];
  return 0;
}

/* From k (T, H); NULL when memory is short. */
Schedule *glstm_schedule(const float *k, int32_t T, int32_t H) {
  Schedule *plan = calloc(1, sizeof *plan);
  Cursor at = {malloc(sizeof(int32_t) * (H + 1)), calloc(3 * (size_t)H + 1, sizeof(int32_t)), 0, 0, 0};
  int failed = !plan || !at.slot_of || !at.taken;
  if (!failed) {
    plan->steps = T, plan->hidden = H;
    size_t listed = count_spans(plan, k) + 1, ends = (size_t)plan->spans + 1;
    int32_t *spans = malloc(sizeof(int32_t) * 5 * ends), *units = malloc(sizeof(int32_t) * 6 * listed);
    plan->start = spans, plan->units = units;
    failed = !spans || !units || listed > INT32_MAX;
    if (!failed) {
      plan->offset = spans + ends, plan->slots_used = spans + 2 * ends;
      plan->leaving_offset = spans + 3 * ends, plan->arriving_offset = spans + 4 * ends;
      plan->slots = units + listed, plan->leaving = units + 2 * listed, plan->leaving_slots = units + 3 * listed;
      plan->arriving = units + 4 * listed, plan->arriving_slots = units + 5 * listed;
      int span = 0;
      for (int j = 0; j < H; j++) at.slot_of[j] = -1;
      for (int t = 0; t < T; t++)
        if (opens_or_closes(k + (size_t)t * H, t, H)) {
          plan->start[span] = t;
          change_seats(plan, &at, span++, k + (size_t)t * H);
        }
      plan->start[span] = T, plan->offset[span] = at.listed;
      plan->leaving_offset[span] = at.left, plan->arriving_offset[span] = at.came;
      failed = fill_slots(plan, k);
    }
  }
  free(at.slot_of), free(at.taken);
  if (!failed) return plan;
  glstm_schedule_free(plan);
  return NULL;
}

/* What takes the time: see ops/cost.py. */
typedef struct {
  double open, open_squared, in_vectors, changes, spans_squared;
} Counts;

void glstm_schedule_counts(const Schedule *plan, int32_t lanes, Counts *counts) {
  *counts = (Counts){0, 0, 0, 0, 0};
  for (int n = 0; n < plan->spans; n++) {
    double open = plan->offset[n + 1] - plan->offset[n], steps = plan->start[n + 1] - plan->start[n];
    double left = plan->leaving_offset[n + 1] - plan->leaving_offset[n];
    double came = plan->arriving_offset[n + 1] - plan->arriving_offset[n];
    counts->open += steps * open, counts->open_squared += steps * open * open;
    counts->in_vectors += steps * open * ((plan->slots_used[n] + lanes - 1) / lanes);
    counts->changes += came * plan->hidden + left * open;
    counts->spans_squared += open * open;
  }
}
