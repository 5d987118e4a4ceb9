/* The backward pass of the steps of one StepRange, with units in the lanes; compiled for every vector width, as
   single_steps.c is. A step's gradients come from those of the step after it, so the chain is as long as the
   sequence, and nothing that could wait is done in it: the weights' gradients follow for many steps at once. */
#include "kernels.h"
#include "slots.h"

typedef struct {
  vf i, f, g, o, squashed, c, h;
} Taped;

INLINE Taped read_tape(const float *tape, int cap) {
  return (Taped){load(tape),           load(tape + cap),     load(tape + 2 * cap), load(tape + 3 * cap),
                 load(tape + 4 * cap), load(tape + 5 * cap), load(tape + 6 * cap)};
}

/* One vector of slots from `at` on, at step t: da and dk. dh and dc move one step back, but for what dh gets through
   the weights. */
INLINE void slopes(SlotsBack *n, const StepRange *s, int t, int at, vf *dh, vf *dc) {
  int cap = n->capacity;
  Taped p = read_tape(tape_at(s->tape, t, cap) + at, cap);
  vf k = load(s->k + (size_t)t * cap + at);
  if (n->arrived) *dh += load(n->arrived + (size_t)t * cap + at);
  vf c_new = p.f * p.c + p.i * p.g;
  store(n->dk + (size_t)t * cap + at, *dc * (c_new - p.c) + *dh * (p.o * p.squashed - p.h));
  vf dh_new = k * *dh, dc_new = k * *dc + dh_new * (p.o * (1.0f - p.squashed * p.squashed));
  vf slope_g = n->l->rule == LSTM_LOGISTIC ? p.g * (1.0f - p.g) : 1.0f - p.g * p.g;
  float *da = n->da + (size_t)t * 4 * cap + at;
  store(da, dc_new * (p.g * p.i * (1.0f - p.i)));
  store(da + cap, dc_new * (p.c * p.f * (1.0f - p.f)));
  store(da + 2 * cap, dc_new * (p.i * slope_g));
  store(da + 3 * cap, dh_new * (p.squashed * p.o * (1.0f - p.o)));
  *dh = (1.0f - k) * *dh, *dc = (1.0f - k) * *dc + p.f * dc_new;
}

/* dh of one vector of slots + what it gets through the weights from all open slots */
INLINE vf through_weights(const SlotsBack *n, const StepRange *s, int t, int at, vf dh) {
  int cap = n->capacity, q = 0;
  const float *step = n->da + (size_t)t * 4 * cap;
  vf a0 = dh, a1 = splat(0), a2 = splat(0), a3 = splat(0), b0 = splat(0), b1 = splat(0), b2 = splat(0), b3 = splat(0);
  for (; q + 2 <= s->open; q += 2) {
    const float *d = step + s->slots[q], *w = n->w + (size_t)s->slots[q] * 4 * cap + at;
    const float *e = step + s->slots[q + 1], *v = n->w + (size_t)s->slots[q + 1] * 4 * cap + at;
    a0 += splat(d[0]) * load(w), a1 += splat(d[cap]) * load(w + cap);
    a2 += splat(d[2 * cap]) * load(w + 2 * cap), a3 += splat(d[3 * cap]) * load(w + 3 * cap);
    b0 += splat(e[0]) * load(v), b1 += splat(e[cap]) * load(v + cap);
    b2 += splat(e[2 * cap]) * load(v + 2 * cap), b3 += splat(e[3 * cap]) * load(v + 3 * cap);
  }
  if (q < s->open) {
    const float *d = step + s->slots[q], *w = n->w + (size_t)s->slots[q] * 4 * cap + at;
    a0 += splat(d[0]) * load(w), a1 += splat(d[cap]) * load(w + cap);
    a2 += splat(d[2 * cap]) * load(w + 2 * cap), a3 += splat(d[3 * cap]) * load(w + 3 * cap);
  }
  return ((a0 + a1) + (a2 + a3)) + ((b0 + b1) + (b2 + b3));
}

static void one_vector(SlotsBack *n, const StepRange *s) {
  vf dh = load(n->dh), dc = load(n->dc);
  for (int t = s->steps - 1; t >= 0; t--) {
    slopes(n, s, t, 0, &dh, &dc);
    dh = through_weights(n, s, t, 0, dh);
  }
  store(n->dh, dh), store(n->dc, dc);
}

static void several_vectors(SlotsBack *n, const StepRange *s) {
  for (int t = s->steps - 1; t >= 0; t--) {
    for (int at = 0; at < s->slots_used; at += VL) {
      vf dh = load(n->dh + at), dc = load(n->dc + at);
      slopes(n, s, t, at, &dh, &dc);
      store(n->dh + at, dh), store(n->dc + at, dc);
    }
    for (int at = 0; at < s->slots_used; at += VL) store(n->dh + at, through_weights(n, s, t, at, load(n->dh + at)));
  }
}

/* What the gates' sums contain, weighted: h of a slot, an input, or 1; (steps, stride). `sums` (4, capacity) gets its da
   times this value, over all steps. */
typedef struct {
  const float *value;
  size_t stride;
  float *sums;
} Factor;

static Factor factor(const SlotsBack *n, const StepRange *s, int number) {
  static const float one = 1;
  int cap = n->capacity, d = number - s->open;
  if (d < 0) {
    int slot = s->slots[number];
    return (Factor){s->tape + TAPED_H * cap + slot, (size_t)TAPED * cap, n->dw + (size_t)slot * 4 * cap};
  }
  if (d < n->l->inputs) return (Factor){s->x + d, s->x_stride, n->dw_x + (size_t)d * 4 * cap};
  return (Factor){&one, 0, n->dbase};
}

/* One vector of slots; two factors, if there are two, share the loads of da. */
INLINE void add_products(int factors, const SlotsBack *n, int steps, int at, Factor a, Factor b) {
  int cap = n->capacity;
  vf x[4], y[4];
  for (int g = 0; g < 4; g++) x[g] = load(a.sums + g * cap + at), y[g] = load(b.sums + g * cap + at);
  const float *da = n->da + at;
  for (int t = 0; t < steps; t++, da += 4 * cap) {
    vf p = splat(a.value[t * a.stride]), r = splat(b.value[t * b.stride]);
    for (int g = 0; g < 4; g++) {
      vf d = load(da + g * cap);
      x[g] += p * d;
      if (factors == 2) y[g] += r * d;
    }
  }
  for (int g = 0; g < 4; g++) {
    store(a.sums + g * cap + at, x[g]);
    if (factors == 2) store(b.sums + g * cap + at, y[g]);
  }
}

static void gradients_of_weights(SlotsBack *n, const StepRange *s) {
  int factors = s->open + n->l->inputs + 1, last = factors - 1;
  for (int number = 0; number < last; number += 2) {
    Factor a = factor(n, s, number), b = factor(n, s, number + 1);
    for (int at = 0; at < s->slots_used; at += VL) add_products(2, n, s->steps, at, a, b);
  }
  Factor a = factor(n, s, last);
  for (int at = 0; factors % 2 && at < s->slots_used; at += VL) add_products(1, n, s->steps, at, a, a);
}

#ifndef NARROW
#define NARROW
#endif

void JOIN(NAME(single_steps_backward), NARROW)(SlotsBack *n, const StepRange *s) {
  if (s->slots_used <= VL) one_vector(n, s);
  else several_vectors(n, s);
  gradients_of_weights(n, s);
}
