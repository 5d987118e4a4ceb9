/* The backward pass of single.c: which units open and close, and what changes then. The spans are taken from the last
   to the first, so a unit comes into its slot where it closes, and leaves it where it opens. What frozen units and
   their weights get through the stored sums needs only `dbase`, the sum of da over the time since they froze. */
#include "gaussian.h"
#include "kernels.h"
#include "slots.h"

void NAME(single_steps_backward)(SlotsBack *, const StepRange *);
#if VL >= 8
void JOIN(NAME(single_steps_backward), _4)(SlotsBack *, const StepRange *);
#endif
#if VL >= 16
void JOIN(NAME(single_steps_backward), _8)(SlotsBack *, const StepRange *);
#endif

static void run_steps(SlotsBack *n, const StepRange *s) {
#if VL >= 8
  if (s->slots_used <= 4) JOIN(NAME(single_steps_backward), _4)(n, s);
  else
#endif
#if VL >= 16
      if (s->slots_used <= 8) JOIN(NAME(single_steps_backward), _8)(n, s);
  else
#endif
    NAME(single_steps_backward)(n, s);
}

size_t NAME(single_backward_space)(const Layer *l, const Schedule *schedule) {
  size_t H = l->hidden, D = l->inputs, cap = schedule->capacity;
  return 4 * H + cap * 11 + cap * cap * 8 + D * 4 * cap + CHUNK * 6 * cap + 2 * VL;
}

static SlotsBack make_slots(const Layer *l, const Gradients *d, const Schedule *schedule, const Sums *to, float *space) {
  size_t H = l->hidden, cap = schedule->capacity;
  SlotsBack n = {.l = l, .capacity = (int)cap, .to = *to, .mu = d->gate ? (double *)space : NULL};
  memset(space, 0, sizeof(float) * NAME(single_backward_space)(l, schedule));
  n.width = space + 2 * cap, n.sum = n.width + cap, n.sum_squared = n.sum + cap;
  n.dh = n.sum_squared + cap, n.dc = n.dh + cap, n.dbase = n.dc + cap;
  n.w = n.dbase + 4 * cap, n.dw = n.w + 4 * cap * cap, n.dw_x = n.dw + 4 * cap * cap;
  n.da = n.dw_x + (size_t)l->inputs * 4 * cap, n.dk = n.da + CHUNK * 4 * cap;
  n.arrived = d->dh ? n.dk + CHUNK * cap : NULL;
  n.frozen_h = n.dk + CHUNK * 2 * cap, n.frozen_dh = n.frozen_h + H, n.frozen_dc = n.frozen_dh + H;
  n.first_span = (int *)(n.frozen_dc + H);
  return n;
}

/* The units of one span, and their slots. */
typedef struct {
  const int32_t *units, *slots;
  int count;
} Listed;

static Listed open_in(const Schedule *schedule, int span) {
  if (span < 0) return (Listed){schedule->units, schedule->slots, 0};
  int from = schedule->offset[span];
  return (Listed){schedule->units + from, schedule->slots + from, schedule->offset[span + 1] - from};
}

static Listed listed(const int32_t *units, const int32_t *slots, const int32_t *offset, int span) {
  return (Listed){units + offset[span], slots + offset[span], offset[span + 1] - offset[span]};
}

/* The sum over frozen units in the gates of unit j, backward: to the frozen units, their weights and the bias. Units
   that are open have h = 0 here, and what they get is never read. */
static void base_backward(SlotsBack *n, int slot, int j) {
  int H = n->l->hidden, cap = n->capacity;
  const float *restrict h = n->frozen_h;
  float *restrict dh = n->frozen_dh;
  for (int g = 0; g < 4; g++) {
    float d = n->dbase[g * cap + slot];
    const float *restrict w = n->l->w_hh + ((size_t)g * H + j) * H;
    float *restrict dw = n->to.dw_hh + ((size_t)g * H + j) * H;
    for (int u = 0; u < H; u++) dh[u] += d * w[u], dw[u] += d * h[u];
    n->to.db[g * H + j] += d;
    n->dbase[g * cap + slot] = 0;
  }
}

static void move(float *from, float *to) { *to += *from, *from = 0; }

/* The gradients of unit j, which leaves its slot, to where they belong: of the weights between it and the others, of its
   inputs' weights and of its gate. */
static void flush_slot(SlotsBack *n, int slot, int j, Listed others) {
  int H = n->l->hidden, D = n->l->inputs, cap = n->capacity;
  for (int g = 0; g < 4; g++) {
    float *to_j = n->to.dw_hh + ((size_t)g * H + j) * H, *from_j = n->to.dw_hh + (size_t)g * H * H + j;
    float *out = n->dw + ((size_t)slot * 4 + g) * cap, *in = n->dw + (size_t)g * cap + slot;
    for (int q = 0; q < others.count; q++) {
      move(in + (size_t)others.slots[q] * 4 * cap, to_j + others.units[q]);
      move(out + others.slots[q], from_j + (size_t)others.units[q] * H);
    }
    for (int d = 0; d < D; d++) move(n->dw_x + ((size_t)d * 4 + g) * cap + slot, n->to.dw_ih + ((size_t)g * H + j) * D + d);
  }
  if (n->mu) finish_slopes(&n->to.gate, j, n->sum[slot], n->sum_squared[slot]);
}

/* Unit u comes into its slot, which may hold anything: weights between it and the others, and nothing summed yet. */
static void connect(SlotsBack *n, int slot, int u, Listed others) {
  int H = n->l->hidden, D = n->l->inputs, cap = n->capacity;
  for (int g = 0; g < 4; g++) {
    const float *to_u = n->l->w_hh + ((size_t)g * H + u) * H, *from_u = n->l->w_hh + (size_t)g * H * H + u;
    size_t own = ((size_t)slot * 4 + g) * cap;
    for (int q = 0; q < others.count; q++) {
      size_t other = ((size_t)others.slots[q] * 4 + g) * cap;
      n->w[own + others.slots[q]] = to_u[others.units[q]];
      n->w[other + slot] = from_u[(size_t)others.units[q] * H];
      n->dw[own + others.slots[q]] = n->dw[other + slot] = 0;
    }
    for (int d = 0; d < D; d++) n->dw_x[((size_t)d * 4 + g) * cap + slot] = 0;
    n->dbase[g * cap + slot] = 0;
  }
  n->sum[slot] = n->sum_squared[slot] = 0;
  if (n->mu) n->mu[slot] = n->to.gate.mu[u], n->width[slot] = width_of(n->to.gate.sigma[u]);
}

/* Unit u closed here, and its value went into the stored sums of the units that stayed open. */
static void closing_backward(SlotsBack *n, int slot, int u, Listed others) {
  int cap = n->capacity;
  vf h = splat(n->frozen_h[u]);
  float dh[4] = {0};
  for (int q = 0; q < others.count; q++)
    for (int g = 0; g < 4; g++)
      dh[g] += n->w[((size_t)others.slots[q] * 4 + g) * cap + slot] * n->dbase[g * cap + others.slots[q]];
  float *dw = n->dw + (size_t)slot * 4 * cap;
  for (int at = 0; at < 4 * cap; at += VL) store(dw + at, load(dw + at) + h * load(n->dbase + at));
  n->dh[slot] = n->frozen_dh[u] + ((dh[0] + dh[1]) + (dh[2] + dh[3])), n->dc[slot] = n->frozen_dc[u];
  n->frozen_h[u] = 0;
}

/* Where a span begins, backward. h: of all slots, before the span's first step. */
static void undo_begin_span(SlotsBack *n, const Schedule *schedule, int span, const float *h) {
  Listed came = listed(schedule->arriving, schedule->arriving_slots, schedule->arriving_offset, span);
  Listed left = listed(schedule->leaving, schedule->leaving_slots, schedule->leaving_offset, span);
  Listed now = open_in(schedule, span), before = open_in(schedule, span - 1);
  int revived = 0; /* a unit opened that had a value: then all sums were made afresh */
  for (int q = 0; q < came.count; q++) revived |= n->first_span[came.units[q]] < span;
  Listed summed = revived ? now : came;
  for (int q = 0; q < summed.count; q++) base_backward(n, summed.slots[q], summed.units[q]);
  for (int q = 0; q < came.count; q++) flush_slot(n, came.slots[q], came.units[q], now);
  for (int q = 0; q < came.count; q++) {
    int j = came.units[q], slot = came.slots[q];
    n->frozen_h[j] = h[slot], n->frozen_dh[j] = n->dh[slot], n->frozen_dc[j] = n->dc[slot];
  }
  for (int q = 0; q < left.count; q++) connect(n, left.slots[q], left.units[q], before);
  for (int q = 0; q < left.count; q++) closing_backward(n, left.slots[q], left.units[q], before);
}

/* Gradients of the outputs of these steps: to the frozen units, and in the order of slots. */
static void take_outputs(SlotsBack *n, Listed open, const float *dh, size_t stride, int steps) {
  int H = n->l->hidden;
  float *restrict sum = n->frozen_dh;
  for (int t = 0; t < steps; t++) {
    const float *restrict row = dh + t * stride;
    for (int u = 0; u < H; u++) sum[u] += row[u];
    for (int q = 0; q < open.count; q++) n->arrived[(size_t)t * n->capacity + open.slots[q]] = row[open.units[q]];
  }
}

/* dk of these steps: to the values of the gate, or into the table. */
static void give_openness(SlotsBack *n, Listed open, const StepRange *s, int first) {
  int H = n->l->hidden, cap = n->capacity;
  float *restrict sum = n->sum, *restrict squared = n->sum_squared;
  for (int t = 0; t < s->steps; t++) {
    const float *dk = n->dk + (size_t)t * cap, *k = s->k + (size_t)t * cap;
    if (!n->mu) {
      float *row = n->to.dk + (size_t)(first + t) * H;
      for (int q = 0; q < open.count; q++) row[open.units[q]] += dk[open.slots[q]];
      continue;
    }
    const void *times = n->to.gate.times;
    double time = n->to.gate.wide ? ((const double *)times)[first + t] : ((const float *)times)[first + t];
    for (int slot = 0; slot < s->slots_used; slot++) {
      float distance = (float)(time - n->mu[slot]) / n->width[slot], by = dk[slot] * k[slot] * distance;
      sum[slot] += by, squared[slot] += by * distance;
    }
  }
}

/* dx: (steps, stride) */
static void give_inputs(const SlotsBack *n, Listed open, int steps, float *dx, size_t stride) {
  int H = n->l->hidden, D = n->l->inputs, cap = n->capacity;
  for (int t = 0; t < steps; t++, dx += stride) {
    memset(dx, 0, sizeof(float) * D);
    for (int q = 0; q < open.count; q++)
      for (int g = 0; g < 4; g++) {
        const float *w = n->l->w_ih + ((size_t)g * H + open.units[q]) * D;
        float da = n->da[((size_t)t * 4 + g) * cap + open.slots[q]];
        for (int d = 0; d < D; d++) dx[d] += da * w[d];
      }
  }
}

/* In which span each unit is open first; -1 where h_0 matters: where it is not 0, or its gradient is needed. */
static void find_first_spans(SlotsBack *n, const Gradients *d, const Schedule *schedule, const float *h0) {
  for (int u = 0; u < n->l->hidden; u++) n->first_span[u] = d->dh0 || h0[u] != 0 ? -1 : schedule->spans;
  for (int span = schedule->spans - 1; span >= 0; span--)
    for (int q = schedule->offset[span]; q < schedule->offset[span + 1]; q++)
      if (n->first_span[schedule->units[q]] >= 0) n->first_span[schedule->units[q]] = span;
}

/* tape: this sample's. `to`: what this thread adds to. */
void NAME(single_backward)(const Layer *l, const Gradients *d, const Schedule *schedule, int sample, float *tape,
                           const Sums *to, float *space) {
  int H = l->hidden, D = l->inputs, B = l->batch, cap = schedule->capacity, spans = schedule->spans;
  size_t own = (size_t)sample * H;
  SlotsBack n = make_slots(l, d, schedule, to, space);
  find_first_spans(&n, d, schedule, l->h0 + own);
  memcpy(n.frozen_h, tape_at(tape, schedule->steps, cap), sizeof(float) * H);
  memcpy(n.frozen_dh, d->dh_n + own, sizeof(float) * H);
  memcpy(n.frozen_dc, d->dc_n + own, sizeof(float) * H);
  Listed last = open_in(schedule, spans - 1);
  for (int q = 0; q < last.count; q++) connect(&n, last.slots[q], last.units[q], last);
  for (int q = 0; q < last.count; q++) closing_backward(&n, last.slots[q], last.units[q], last);
  for (int span = spans - 1; span >= 0; span--) {
    Listed open = open_in(schedule, span);
    int start = schedule->start[span];
    for (int end = schedule->start[span + 1]; end > start;) {
      int first = end - CHUNK > start ? end - CHUNK : start, steps = end - first;
      size_t at = (size_t)first * B + sample;
      StepRange range = {steps, open.count, schedule->slots_used[span], open.slots, l->x + at * D,
                         schedule->slot_k + (size_t)first * cap, (size_t)B * D, tape_at(tape, first, cap)};
      if (d->dh) take_outputs(&n, open, d->dh + at * H, (size_t)B * H, steps);
      if (open.count) run_steps(&n, &range);
      if (open.count) give_openness(&n, open, &range, first);
      if (d->dx) give_inputs(&n, open, steps, d->dx + at * D, (size_t)B * D);
      end = first;
    }
    undo_begin_span(&n, schedule, span, tape_at(tape, start, cap) + TAPED_H * cap);
  }
  if (d->dh0) memcpy(d->dh0 + own, n.frozen_dh, sizeof(float) * H);
  memcpy(d->dc0 + own, n.frozen_dc, sizeof(float) * H);
}
