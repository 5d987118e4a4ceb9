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
  vf slope_g = n->l->logistic ? p.g * (1.0f - p.g) : 1.0f - p.g * p.g;
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

/* sums (4, capacity) += da of every step times its value, in one vector of slots; for one value, or for two of them,
   which then share the loads of da */
INLINE void add_products(int values, const SlotsBack *n, int steps, int at, float *const sums[2], const float *const from[2],
                         size_t stride) {
  int cap = n->capacity;
  vf acc[2][4];
  for (int v = 0; v < values; v++)
    for (int g = 0; g < 4; g++) acc[v][g] = load(sums[v] + g * cap + at);
  const float *da = n->da + at;
  for (int t = 0; t < steps; t++, da += 4 * cap) {
    vf d0 = load(da), d1 = load(da + cap), d2 = load(da + 2 * cap), d3 = load(da + 3 * cap);
    for (int v = 0; v < values; v++) {
      vf value = splat(from[v][t * stride]);
      acc[v][0] += value * d0, acc[v][1] += value * d1, acc[v][2] += value * d2, acc[v][3] += value * d3;
    }
  }
  for (int v = 0; v < values; v++)
    for (int g = 0; g < 4; g++) store(sums[v] + g * cap + at, acc[v][g]);
}

static void gradients_of_weights(SlotsBack *n, const StepRange *s) {
  static const float one = 1;
  int cap = n->capacity, D = n->l->inputs;
  size_t row = 4 * (size_t)cap, taped = (size_t)TAPED * cap;
  const float *h = s->tape + TAPED_H * cap;
  for (int at = 0; at < s->slots_used; at += VL) {
    int q = 0, d = 0;
    for (; q + 2 <= s->open; q += 2) {
      int u = s->slots[q], v = s->slots[q + 1];
      add_products(2, n, s->steps, at, (float *[]){n->dw + u * row, n->dw + v * row}, (const float *[]){h + u, h + v}, taped);
    }
    if (q < s->open)
      add_products(1, n, s->steps, at, (float *[]){n->dw + s->slots[q] * row}, (const float *[]){h + s->slots[q]}, taped);
    for (; d + 2 <= D; d += 2)
      add_products(2, n, s->steps, at, (float *[]){n->dw_x + d * row, n->dw_x + (d + 1) * row},
                   (const float *[]){s->x + d, s->x + d + 1}, s->x_stride);
    if (d < D) add_products(1, n, s->steps, at, (float *[]){n->dw_x + d * row}, (const float *[]){s->x + d}, s->x_stride);
    add_products(1, n, s->steps, at, (float *[]){n->dbase}, (const float *[]){&one}, 0);
  }
}

#ifndef NARROW
#define NARROW
#endif

void JOIN(NAME(single_steps_backward), NARROW)(SlotsBack *n, const StepRange *s) {
  if (s->slots_used <= VL) one_vector(n, s);
  else several_vectors(n, s);
  gradients_of_weights(n, s);
}
