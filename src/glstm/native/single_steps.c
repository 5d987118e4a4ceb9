/* The steps of one StepRange, with units in the lanes. Compiled for every vector width of the machine: three open units
   take less time in a narrow vector than in a wide one, and each step of a single sequence waits for the one before. */
#include "kernels.h"
#include "slots.h"

typedef struct {
  vf i, f, g, o; /* what goes into the gates */
} GateSums;

INLINE vf value_in(const float *h, const vf *h_vector, int slot) { return h ? splat(h[slot]) : pick(*h_vector, slot); }

/* The sums of the four gates of one vector of slots, from `at` on. h: of all slots, in memory; or, if one vector holds all used
   slots, NULL, and h_vector is that vector. */
INLINE GateSums sums_of(const Slots *n, const StepRange *s, const float *x, const float *h, const vf *h_vector, int at) {
  int cap = n->capacity, q = 0;
  const float *base = n->base + at, *weights = n->w + at;
  vf a0 = load(base), a1 = load(base + cap), a2 = load(base + 2 * cap), a3 = load(base + 3 * cap);
  for (int d = 0; d < n->l->inputs; d++) {
    const float *w = n->w_x + (size_t)d * 4 * cap + at;
    vf value = splat(x[d]);
    a0 += value * load(w), a1 += value * load(w + cap), a2 += value * load(w + 2 * cap), a3 += value * load(w + 3 * cap);
  }
  vf b0 = splat(0), b1 = splat(0), b2 = splat(0), b3 = splat(0); /* a second sum: shorter chains of additions */
  for (; q + 2 <= s->open; q += 2) {
    const float *w = weights + (size_t)s->slots[q] * 4 * cap, *u = weights + (size_t)s->slots[q + 1] * 4 * cap;
    vf p = value_in(h, h_vector, s->slots[q]), r = value_in(h, h_vector, s->slots[q + 1]);
    a0 += p * load(w), a1 += p * load(w + cap), a2 += p * load(w + 2 * cap), a3 += p * load(w + 3 * cap);
    b0 += r * load(u), b1 += r * load(u + cap), b2 += r * load(u + 2 * cap), b3 += r * load(u + 3 * cap);
  }
  if (q < s->open) {
    const float *w = weights + (size_t)s->slots[q] * 4 * cap;
    vf p = value_in(h, h_vector, s->slots[q]);
    a0 += p * load(w), a1 += p * load(w + cap), a2 += p * load(w + 2 * cap), a3 += p * load(w + 3 * cap);
  }
  return (GateSums){a0 + b0, a1 + b1, a2 + b2, a3 + b3};
}

/* h and c after a step. The functions are quotients, which are divided as late as possible: a product of two needs one
   division, and divisions are slow. An empty slot has k = 0 and is never read: its old value need not stay the same bit
   for bit, as with `mix`. */
INLINE void step(const Slots *n, GateSums sums, vf k, vf *h, vf *c) {
  Quotient i = fast_sigmoid_i_f(sums.i), f = fast_sigmoid_i_f(sums.f), o = fast_sigmoid(sums.o);
  Quotient g = n->l->rule == LSTM_LOGISTIC ? fast_sigmoid(sums.g) : fast_tanh(sums.g);
  vf old_h = (1.0f - k) * *h, old_c = (1.0f - k) * *c;
  vf c_new = f.above * *c / f.below + i.above * g.above / (i.below * g.below);
  Quotient squashed = fast_tanh(c_new);
  *h = k * o.above * squashed.above / (o.below * squashed.below) + old_h;
  *c = k * c_new + old_c;
}

/* The same with a tape, and with the functions of all other paths: gradients get their errors, too. */
INLINE void taped_step(const Slots *n, GateSums sums, vf k, vf *h, vf *c, float *tape) {
  vf i = sigmoid(sums.i), f = sigmoid(sums.f), o = sigmoid(sums.o);
  vf g = n->l->rule == LSTM_LOGISTIC ? sigmoid(sums.g) : tanh_(sums.g);
  vf old_h = (1.0f - k) * *h, old_c = (1.0f - k) * *c, c_new = f * *c + i * g, squashed = tanh_(c_new);
  vf parts[TAPED] = {i, f, g, o, squashed, *c, *h};
  for (int part = 0; part < TAPED; part++) store(tape + part * n->capacity, parts[part]);
  *h = k * o * squashed + old_h;
  *c = k * c_new + old_c;
}

INLINE void any_step(const Slots *n, GateSums sums, vf k, vf *h, vf *c, float *tape) {
  if (tape) taped_step(n, sums, k, h, c, tape);
  else step(n, sums, k, h, c);
}

/* The usual case: one vector holds all used slots, and states stay in registers. */
INLINE void one_vector(Slots *n, const StepRange *s, float *tape) {
  int cap = n->capacity;
  vf h = load(n->h), c = load(n->c);
  const float *x = s->x, *k = s->k;
  for (int t = 0; t < s->steps; t++, x += s->x_stride, k += cap)
    any_step(n, sums_of(n, s, x, NULL, &h, 0), load(k), &h, &c, tape ? tape_at(tape, t, cap) : NULL);
  store(n->h, h), store(n->c, c);
}

static void several_vectors(Slots *n, const StepRange *s) {
  int cap = n->capacity;
  const float *x = s->x, *k = s->k;
  for (int t = 0; t < s->steps; t++, x += s->x_stride, k += cap) {
    memcpy(n->h_before, n->h, sizeof(float) * cap);
    for (int at = 0; at < s->slots_used; at += VL) {
      vf h = load(n->h + at), c = load(n->c + at);
      float *tape = s->tape ? tape_at(s->tape, t, cap) + at : NULL;
      any_step(n, sums_of(n, s, x, n->h_before, NULL, at), load(k + at), &h, &c, tape);
      store(n->h + at, h), store(n->c + at, c);
    }
  }
}

#ifndef NARROW
#define NARROW
#endif

void JOIN(NAME(single_steps), NARROW)(Slots *n, const StepRange *s) {
  if (s->slots_used > VL) several_vectors(n, s);
  else if (s->tape) one_vector(n, s, s->tape);
  else one_vector(n, s, NULL);
}
