/* The steps of one StepRange, with units in the lanes. Compiled for every vector width of the machine: three open units
   take less time in a narrow vector than in a wide one, and each step of a single sequence waits for the one before. */
#include "kernels.h"
#include "slots.h"

typedef struct {
  Quotient i, f, g, o; /* not divided yet: a product of two quotients needs one division, and divisions are slow */
} Gates;

INLINE vf value_in(const float *h, const vf *h_vector, int slot) { return h ? splat(h[slot]) : pick(*h_vector, slot); }

/* The four gates of one vector of slots, from `at` on. h: of all slots, in memory; or, if one vector holds all used
   slots, NULL, and h_vector is that vector. */
INLINE Gates gates_of(const Slots *n, const StepRange *s, const float *x, const float *h, const vf *h_vector, int at) {
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
  Quotient g = n->l->logistic ? fast_sigmoid(a2 + b2) : fast_tanh(a2 + b2);
  return (Gates){fast_sigmoid_i_f(a0 + b0), fast_sigmoid_i_f(a1 + b1), g, fast_sigmoid(a3 + b3)};
}

INLINE vf divided(Quotient q) { return q.above / q.below; }

/* An empty slot has k = 0 and is never read: its old value need not stay the same bit for bit, as with `mix`. The tape
   gets more divisions, but no step waits for these. */
INLINE void mix_in(Gates gates, vf k, vf *h, vf *c, float *tape, int capacity) {
  vf old_h = (1.0f - k) * *h, old_c = (1.0f - k) * *c;
  vf c_new = gates.f.above * *c / gates.f.below + gates.i.above * gates.g.above / (gates.i.below * gates.g.below);
  Quotient squashed = fast_tanh(c_new);
  if (tape) {
    vf parts[TAPED] = {divided(gates.i), divided(gates.f), divided(gates.g), divided(gates.o), divided(squashed), *c, *h};
    for (int part = 0; part < TAPED; part++) store(tape + part * capacity, parts[part]);
  }
  *h = k * gates.o.above * squashed.above / (gates.o.below * squashed.below) + old_h;
  *c = k * c_new + old_c;
}

/* The usual case: one vector holds all used slots, and states stay in registers. */
INLINE void one_vector(Slots *n, const StepRange *s, float *tape) {
  int cap = n->capacity;
  vf h = load(n->h), c = load(n->c);
  const float *x = s->x, *k = s->k;
  for (int t = 0; t < s->steps; t++, x += s->x_stride, k += cap)
    mix_in(gates_of(n, s, x, NULL, &h, 0), load(k), &h, &c, tape ? tape_at(tape, t, cap) : NULL, cap);
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
      mix_in(gates_of(n, s, x, n->h_before, NULL, at), load(k + at), &h, &c, tape, cap);
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
