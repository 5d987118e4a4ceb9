/* Only the open units, for one sequence: which units open and close, and what changes then. What frozen units
   contribute is stored in `base`, as in sparse.c. */
#include "kernels.h"
#include "slots.h"

void NAME(single_steps)(Slots *, const StepRange *);
#if VL >= 8
void JOIN(NAME(single_steps), _4)(Slots *, const StepRange *);
#endif
#if VL >= 16
void JOIN(NAME(single_steps), _8)(Slots *, const StepRange *);
#endif

static void run_steps(Slots *n, const StepRange *s) {
#if VL >= 8
  if (s->slots_used <= 4) JOIN(NAME(single_steps), _4)(n, s);
  else
#endif
#if VL >= 16
      if (s->slots_used <= 8) JOIN(NAME(single_steps), _8)(n, s);
  else
#endif
    NAME(single_steps)(n, s);
}

size_t NAME(single_space)(const Layer *l, const Schedule *schedule) {
  size_t n = schedule->capacity;
  return 2 * (size_t)l->hidden + n * 7 + n * n * 4 + (size_t)l->inputs * 4 * n + 2 * VL;
}

static Slots make_slots(const Layer *l, int capacity, int sample, float *space, size_t space_size) {
  int H = l->hidden;
  size_t cap = capacity;
  Slots n = {.l = l, .capacity = capacity, .frozen_h = space, .c_of = space + H};
  n.h = n.c_of + H, n.c = n.h + cap, n.base = n.c + cap, n.h_before = n.base + 4 * cap, n.w = n.h_before + cap;
  n.w_x = n.w + cap * 4 * cap;
  memset(space, 0, sizeof(float) * space_size);
  memcpy(n.frozen_h, l->h0 + (size_t)sample * H, sizeof(float) * H);
  memcpy(n.c_of, l->c0 + (size_t)sample * H, sizeof(float) * H);
  for (int u = 0; u < H; u++)
    if (n.frozen_h[u] != 0) n.reach = u + 1;
  return n;
}

/* VL zeros, then VL ones: the vector that begins at entry n has ones in its last n lanes. */
static const float last_lanes[2 * VL] = {
    [VL] = 1, 1, 1, 1,
#if VL >= 8
    1, 1, 1, 1,
#endif
#if VL >= 16
    1, 1, 1, 1, 1, 1, 1, 1,
#endif
};

/* Without a tape, the functions of the gates take their sum times a half or a sixteenth (vector.h). The weights and
   `base` are scaled by this factor once, so that no step has to do it. */
static inline float scale_of_sum(const Layer *l, int g) {
  if (l->tape) return 1.0f;
  return g < 2 ? 0.0625f : g == 3 || l->rule == LSTM_LOGISTIC ? 0.5f : 1.0f;
}

/* What the frozen units and the bias contribute to the unit in a slot: four rows of weights times frozen_h. */
static void sum_afresh(Slots *n, int slot, int j) {
  int H = n->l->hidden, reach = n->reach, u = 0;
  size_t size = (size_t)H * H;
  const float *w = n->l->w_hh + (size_t)j * H, *b = n->l->b;
  vf a0 = splat(0), a1 = splat(0), a2 = splat(0), a3 = splat(0);
  for (; u < reach && u + VL <= H; u += VL) {
    vf h = load(n->frozen_h + u);
    a0 += h * load(w + u), a1 += h * load(w + size + u), a2 += h * load(w + 2 * size + u), a3 += h * load(w + 3 * size + u);
  }
  if (u < reach && H >= VL) { /* the last VL units; some of them are counted already, and these are multiplied by 0 */
    vf h = load(n->frozen_h + H - VL) * load(last_lanes + H - u);
    w += H - VL;
    a0 += h * load(w), a1 += h * load(w + size), a2 += h * load(w + 2 * size), a3 += h * load(w + 3 * size);
  } else if (u < reach) {
    float rest[5][VL] = {{0}};
    for (int g = 0; g < 4; g++) memcpy(rest[g], w + g * size, sizeof(float) * H);
    memcpy(rest[4], n->frozen_h, sizeof(float) * H);
    vf h = load(rest[4]);
    a0 += h * load(rest[0]), a1 += h * load(rest[1]), a2 += h * load(rest[2]), a3 += h * load(rest[3]);
  }
  float sums[4] = {sum_lanes(a0), sum_lanes(a1), sum_lanes(a2), sum_lanes(a3)};
  for (int g = 0; g < 4; g++) n->base[g * n->capacity + slot] = scale_of_sum(n->l, g) * (sums[g] + (b ? b[g * H + j] : 0));
}

static void close_unit(Slots *n, int slot, int u) {
  vf h = splat(n->h[slot]);
  const float *w = n->w + (size_t)slot * 4 * n->capacity;
  for (int at = 0; at < 4 * n->capacity; at += VL) store(n->base + at, load(n->base + at) + h * load(w + at));
  n->frozen_h[u] = n->h[slot], n->c_of[u] = n->c[slot];
  if (n->reach <= u) n->reach = u + 1;
}

/* The weights between unit j, in its slot, and others in theirs. */
static void connect(Slots *n, int slot, int j, const int32_t *slots, const int32_t *units, int others) {
  int H = n->l->hidden, cap = n->capacity;
  for (int g = 0; g < 4; g++) {
    const float *to_j = n->l->w_hh + ((size_t)g * H + j) * H, *from_j = n->l->w_hh + (size_t)g * H * H + j;
    float *in = n->w + (size_t)g * cap + slot, *out = n->w + ((size_t)slot * 4 + g) * cap, scale = scale_of_sum(n->l, g);
    for (int i = 0; i < others; i++) {
      in[(size_t)slots[i] * 4 * cap] = scale * to_j[units[i]];
      out[slots[i]] = scale * from_j[(size_t)units[i] * H];
    }
  }
}

/* Everything for the units that open with a span, as far as it is known before the span ahead of it is computed. A
   unit that is open now may close where that span, or this one, begins; `close_unit` then adds its contribution.
   Nothing here depends on results of the current steps, so the processor can do it at the same time. */
static void prepare(Slots *n, const Schedule *schedule, int span) {
  const Layer *l = n->l;
  int H = l->hidden, D = l->inputs, cap = n->capacity;
  for (int q = schedule->arriving_offset[span]; q < schedule->arriving_offset[span + 1]; q++) {
    int j = schedule->arriving[q], slot = schedule->arriving_slots[q];
    sum_afresh(n, slot, j);
    for (int g = 0; g < 4; g++)
      for (int d = 0; d < D; d++)
        n->w_x[((size_t)d * 4 + g) * cap + slot] = scale_of_sum(l, g) * l->w_ih[((size_t)g * H + j) * D + d];
    int old = span > 1 ? schedule->offset[span - 2] : 0, came = schedule->arriving_offset[span ? span - 1 : 0];
    if (span > 1) connect(n, slot, j, schedule->slots + old, schedule->units + old, schedule->offset[span - 1] - old);
    connect(n, slot, j, schedule->arriving_slots + came, schedule->arriving + came,
            schedule->arriving_offset[span + 1] - came);
  }
}

/* If a unit opens that had a value, the others counted it among the frozen units: then the base of every open unit is
   summed again, and of every unit that is prepared for the next span. */
static void open_units(Slots *n, const Schedule *schedule, int span) {
  int to = schedule->arriving_offset[span + 1], revived = 0;
  for (int q = schedule->arriving_offset[span]; q < to; q++) {
    int j = schedule->arriving[q], slot = schedule->arriving_slots[q];
    revived |= n->frozen_h[j] != 0;
    n->h[slot] = n->frozen_h[j], n->c[slot] = n->c_of[j], n->frozen_h[j] = 0;
  }
  if (!revived) return;
  for (int q = schedule->offset[span]; q < schedule->offset[span + 1]; q++)
    sum_afresh(n, schedule->slots[q], schedule->units[q]);
  int prepared = schedule->arriving_offset[span + 1 < schedule->spans ? span + 2 : schedule->spans];
  for (int q = to; q < prepared; q++) sum_afresh(n, schedule->arriving_slots[q], schedule->arriving[q]);
}

/* h: of all slots */
static void write_output(const Slots *n, const float *h, const StepRange *s, const int32_t *units, float *out) {
  memcpy(out, n->frozen_h, sizeof(float) * n->l->hidden);
  for (int q = 0; q < s->open; q++) out[units[q]] = h[s->slots[q]];
}

size_t NAME(single_tape_size)(const Layer *l, const Schedule *schedule) {
  return (size_t)schedule->steps * TAPED * schedule->capacity + (l->hidden + 15) / 16 * 16;
}

/* tape: of this sample, or NULL */
void NAME(single_forward)(const Layer *l, const Schedule *schedule, int sample, float *tape, float *space) {
  int H = l->hidden, D = l->inputs, B = l->batch, cap = schedule->capacity, spans = schedule->spans;
  Slots n = make_slots(l, cap, sample, space, NAME(single_space)(l, schedule));
  prepare(&n, schedule, 0);
  for (int span = 0; span < spans; span++) {
    const int32_t *slots = schedule->slots + schedule->offset[span], *units = schedule->units + schedule->offset[span];
    int open = schedule->offset[span + 1] - schedule->offset[span];
    if (span + 1 < spans) prepare(&n, schedule, span + 1);
    for (int q = schedule->leaving_offset[span]; q < schedule->leaving_offset[span + 1]; q++)
      close_unit(&n, schedule->leaving_slots[q], schedule->leaving[q]);
    open_units(&n, schedule, span);
    int start = schedule->start[span], end = schedule->start[span + 1];
    int stride = l->h && !tape ? 1 : end - start; /* a tape has h of every step, so outputs can be written later */
    for (int t = start; t < end; t += stride) {
      StepRange range = {stride, open, schedule->slots_used[span], slots, l->x + ((size_t)t * B + sample) * D,
                         schedule->slot_k + (size_t)t * cap, (size_t)B * D, tape ? tape_at(tape, t, cap) : NULL};
      if (open) run_steps(&n, &range);
      for (int done = 1; l->h && done <= stride; done++) {
        const float *h = done < stride ? tape_at(tape, t + done, cap) + TAPED_H * cap : n.h;
        write_output(&n, h, &range, units, l->h + ((size_t)(t + done - 1) * B + sample) * H);
      }
    }
  }
  for (int q = schedule->offset[spans - 1]; q < schedule->offset[spans]; q++)
    close_unit(&n, schedule->slots[q], schedule->units[q]);
  memcpy(l->h_n + (size_t)sample * H, n.frozen_h, sizeof(float) * H);
  if (l->c_n) memcpy(l->c_n + (size_t)sample * H, n.c_of, sizeof(float) * H);
  if (tape) memcpy(tape_at(tape, schedule->steps, cap), n.frozen_h, sizeof(float) * H); /* backward starts from it */
}
