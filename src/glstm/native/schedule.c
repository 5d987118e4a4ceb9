/* From a table k to the schedule: when each unit is open, and in which slot. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "flush.h"

#define WIDEST 16 /* floats in the widest vector: the number of slots is a multiple of it */

void glstm_schedule_free(Schedule *schedule) {
  if (!schedule) return;
  free(schedule->start), free(schedule->units), free(schedule->slot_k);
  free(schedule);
}

/* Of k, how many are not 0. */
int64_t glstm_open_cells(const float *k, int64_t n) {
  int64_t open = 0;
  for (int64_t first = 0, end; first < n; first = end) {
    int32_t some = 0; /* in 32 bits, so that the compiler can use whole vectors */
    end = n - first > 1 << 16 ? first + (1 << 16) : n;
    for (int64_t i = first; i < end; i++) some += !is_shut(k[i]);
    open += some;
  }
  return open;
}

/* is_open (T, H): one byte each, so that rows can be compared quickly. */
static void mark_open(unsigned char *is_open, const float *k, size_t n) {
  for (size_t i = 0; i < n; i++) is_open[i] = !is_shut(k[i]);
}

static int opens_or_closes(const unsigned char *is_open, int t, int H) {
  return t == 0 || memcmp(is_open, is_open - H, H);
}

/* Fills spans and most_open. Returns how many units are listed, over all spans. */
static size_t count_spans(Schedule *schedule, const unsigned char *is_open) {
  size_t listed = 0;
  for (int t = 0; t < schedule->steps; t++, is_open += schedule->hidden) {
    if (!opens_or_closes(is_open, t, schedule->hidden)) continue;
    int open = 0;
    for (int j = 0; j < schedule->hidden; j++) open += is_open[j];
    schedule->spans++, listed += open;
    if (open > schedule->most_open) schedule->most_open = open;
  }
  return listed;
}

typedef struct {
  int32_t *slot_of, *taken;       /* (H): a unit's slot or -1; (3H): whether a slot is in use */
  int32_t listed, left, came;     /* entries written so far */
} Cursor;

static void assign_slots(Schedule *schedule, Cursor *at, int span, const unsigned char *is_open) {
  int H = schedule->hidden, left_before = span ? schedule->leaving_offset[span - 1] : 0;
  schedule->offset[span] = at->listed, schedule->slots_used[span] = 0;
  schedule->leaving_offset[span] = at->left, schedule->arriving_offset[span] = at->came;
  for (int j = 0; j < H; j++) {
    int open = is_open[j], has_slot = at->slot_of[j] >= 0;
    if (!open && !has_slot) continue;
    if (!open && has_slot) {
      schedule->leaving[at->left] = j, schedule->leaving_slots[at->left++] = at->slot_of[j];
      at->slot_of[j] = -1;
    }
    if (open && !has_slot) {
      int slot = 0; /* the lowest free one: then all used slots are often in one vector */
      while (at->taken[slot]) slot++;
      at->taken[slot] = 1, at->slot_of[j] = slot;
      schedule->arriving[at->came] = j, schedule->arriving_slots[at->came++] = slot;
    }
    if (open) {
      schedule->units[at->listed] = j, schedule->slots[at->listed++] = at->slot_of[j];
      if (schedule->slots_used[span] <= at->slot_of[j]) schedule->slots_used[span] = at->slot_of[j] + 1;
    }
  }
  for (int q = left_before; q < schedule->leaving_offset[span]; q++) at->taken[schedule->leaving_slots[q]] = 0;
}

static int fill_slots(Schedule *schedule, const float *k) {
  int most = 1;
  for (int span = 0; span < schedule->spans; span++)
    if (schedule->slots_used[span] > most) most = schedule->slots_used[span];
  schedule->capacity = (most + WIDEST - 1) / WIDEST * WIDEST;
  schedule->slot_k = calloc((size_t)schedule->steps * schedule->capacity + 1, sizeof(float));
  if (!schedule->slot_k) return 1;
  for (int span = 0; span < schedule->spans; span++)
    for (int t = schedule->start[span]; t < schedule->start[span + 1]; t++)
      for (int q = schedule->offset[span]; q < schedule->offset[span + 1]; q++)
        schedule->slot_k[(size_t)t * schedule->capacity + schedule->slots[q]] =
            k[(size_t)t * schedule->hidden + schedule->units[q]];
  return 0;
}

/* From k (T, H); NULL when memory is short. */
Schedule *glstm_schedule(const float *k, int32_t T, int32_t H) {
  Schedule *schedule = calloc(1, sizeof *schedule);
  Cursor at = {malloc(sizeof(int32_t) * (H + 1)), calloc(3 * (size_t)H + 1, sizeof(int32_t)), 0, 0, 0};
  unsigned char *is_open = malloc((size_t)T * H + 1);
  int failed = !schedule || !at.slot_of || !at.taken || !is_open;
  if (!failed) {
    schedule->steps = T, schedule->hidden = H;
    mark_open(is_open, k, (size_t)T * H);
    size_t listed = count_spans(schedule, is_open) + 1, ends = (size_t)schedule->spans + 1;
    int32_t *spans = malloc(sizeof(int32_t) * 5 * ends), *units = malloc(sizeof(int32_t) * 6 * listed);
    schedule->start = spans, schedule->units = units;
    failed = !spans || !units || listed > INT32_MAX;
    if (!failed) {
      schedule->offset = spans + ends, schedule->slots_used = spans + 2 * ends;
      schedule->leaving_offset = spans + 3 * ends, schedule->arriving_offset = spans + 4 * ends;
      schedule->slots = units + listed;
      schedule->leaving = units + 2 * listed, schedule->leaving_slots = units + 3 * listed;
      schedule->arriving = units + 4 * listed, schedule->arriving_slots = units + 5 * listed;
      int span = 0;
      for (int j = 0; j < H; j++) at.slot_of[j] = -1;
      for (int t = 0; t < T; t++)
        if (opens_or_closes(is_open + (size_t)t * H, t, H)) {
          schedule->start[span] = t;
          assign_slots(schedule, &at, span++, is_open + (size_t)t * H);
        }
      schedule->start[span] = T, schedule->offset[span] = at.listed;
      schedule->leaving_offset[span] = at.left, schedule->arriving_offset[span] = at.came;
      failed = fill_slots(schedule, k);
    }
  }
  free(at.slot_of), free(at.taken), free(is_open);
  if (!failed) return schedule;
  glstm_schedule_free(schedule);
  return NULL;
}

/* The quantities that the time of the sparse path depends on: see ops/cost.py. */
typedef struct {
  double open, open_squared, in_vectors, changes, spans_squared;
} Counts;

void glstm_schedule_counts(const Schedule *schedule, int32_t lanes, Counts *counts) {
  *counts = (Counts){0, 0, 0, 0, 0};
  for (int n = 0; n < schedule->spans; n++) {
    double open = schedule->offset[n + 1] - schedule->offset[n], steps = schedule->start[n + 1] - schedule->start[n];
    double left = schedule->leaving_offset[n + 1] - schedule->leaving_offset[n];
    double came = schedule->arriving_offset[n + 1] - schedule->arriving_offset[n];
    counts->open += steps * open, counts->open_squared += steps * open * open;
    counts->in_vectors += steps * open * ((schedule->slots_used[n] + lanes - 1) / lanes);
    counts->changes += came * schedule->hidden + left * open;
    counts->spans_squared += open * open;
  }
}
