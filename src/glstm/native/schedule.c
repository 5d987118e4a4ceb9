/* From a table k to the schedule: when each unit works, and in which slot it sits. */
#include <stdlib.h>

#include "engine.h"

#define WIDEST 16 /* floats in the widest vector: slots come in whole vectors */

void glstm_schedule_free(Schedule *plan) {
  if (!plan) return;
  free(plan->start), free(plan->units), free(plan->slot_k);
  free(plan);
}

/* Fills spans, most_open and capacity. Returns how many units are listed, over all spans. */
static size_t count_spans(Schedule *plan, const float *k) {
  size_t listed = 0, H = plan->hidden;
  for (int t = 0; t < plan->steps; t++, k += H) {
    int changed = t == 0, open = 0;
    for (size_t j = 0; j < H; j++) {
      int now = k[j] != 0;
      open += now;
      changed |= t && now != (*(k + j - H) != 0);
    }
    if (changed) plan->spans++, listed += open;
    if (open > plan->most_open) plan->most_open = open;
  }
  plan->capacity = plan->most_open ? (plan->most_open + WIDEST - 1) / WIDEST * WIDEST : WIDEST;
  return listed;
}

typedef struct {
  int32_t *slot_of, *taken; /* (H): a unit's slot or -1; (H): whether somebody sits in a slot */
  int32_t listed, left;     /* entries written so far */
} Cursor;

static void change_seats(Schedule *plan, Cursor *at, int span, const float *k) {
  int H = plan->hidden;
  plan->offset[span] = at->listed, plan->leaving_offset[span] = at->left, plan->slots_used[span] = 0;
  for (int j = 0; j < H; j++)
    if (k[j] == 0 && at->slot_of[j] >= 0) {
      plan->leaving[at->left] = j, plan->leaving_slots[at->left++] = at->slot_of[j];
      at->taken[at->slot_of[j]] = 0, at->slot_of[j] = -1;
    }
  for (int j = 0; j < H; j++)
    if (k[j] != 0) {
      plan->arrived[at->listed] = at->slot_of[j] < 0;
      for (int slot = 0; at->slot_of[j] < 0; slot++) /* the lowest free one: mostly one vector has them all */
        if (!at->taken[slot]) at->taken[slot] = 1, at->slot_of[j] = slot;
      plan->units[at->listed] = j, plan->slots[at->listed++] = at->slot_of[j];
      if (plan->slots_used[span] <= at->slot_of[j]) plan->slots_used[span] = at->slot_of[j] + 1;
    }
}

/* From k (T, H); NULL when memory is short. */
Schedule *glstm_schedule(const float *k, int32_t T, int32_t H) {
  Schedule *plan = calloc(1, sizeof *plan);
  Cursor at = {malloc(sizeof(int32_t) * (H + 1)), calloc(H + 1, sizeof(int32_t)), 0, 0};
  if (!plan || !at.slot_of || !at.taken) goto failed;
  plan->steps = T, plan->hidden = H;
  size_t listed = count_spans(plan, k) + 1, ends = (size_t)plan->spans + 1;
  plan->start = malloc(sizeof(int32_t) * 4 * ends), plan->units = malloc(sizeof(int32_t) * 5 * listed);
  plan->slot_k = calloc((size_t)T * plan->capacity + 1, sizeof(float));
  if (!plan->start || !plan->units || !plan->slot_k) goto failed;
  plan->offset = plan->start + ends, plan->slots_used = plan->offset + ends, plan->leaving_offset = plan->slots_used + ends;
  plan->slots = plan->units + listed, plan->arrived = plan->slots + listed, plan->leaving = plan->arrived + listed;
  plan->leaving_slots = plan->leaving + listed;
  int span = -1;
  for (int j = 0; j < H; j++) at.slot_of[j] = -1;
  for (int t = 0; t < T; t++, k += H) {
    int changed = t == 0;
    for (int j = 0; t && j < H; j++) changed |= (k[j] != 0) != (*(k + j - H) != 0);
    if (changed) plan->start[++span] = t, change_seats(plan, &at, span, k);
    for (int q = plan->offset[span]; q < at.listed; q++)
      plan->slot_k[(size_t)t * plan->capacity + plan->slots[q]] = k[plan->units[q]];
  }
  plan->start[plan->spans] = T, plan->offset[plan->spans] = at.listed, plan->leaving_offset[plan->spans] = at.left;
  free(at.slot_of), free(at.taken);
  return plan;
failed:
  free(at.slot_of), free(at.taken);
  glstm_schedule_free(plan);
  return NULL;
}

/* Products and nonlinear functions, by the plan (0) or of everything (1), as numbers that compare. A nonlinear function
   counts as NONLINEAR products; opening and closing as what they really add up to. */
double glstm_schedule_work(const Schedule *plan, int32_t everything) {
  enum { NONLINEAR = 24 };
  double H = plan->hidden, work = 0;
  if (everything) return plan->steps * H * (H + NONLINEAR);
  for (int n = 0; n < plan->spans; n++) {
    double open = plan->offset[n + 1] - plan->offset[n], steps = plan->start[n + 1] - plan->start[n];
    work += steps * open * (open + NONLINEAR) * 1.25 + H + 2 * open * open;
  }
  return work;
}
