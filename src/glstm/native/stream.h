/* A gated LSTM, one sample at a time, on any machine: C99 that is also C++, no library calls except memcpy and memset,
   no allocation, no global state. The engine's streams and every exported model use this code.

   k does not depend on the input, so which unit is open when is constant data. The steps are divided into spans; within
   a span the same units are open, and where a span begins, some units close and others open. Units are numbered in the
   order of their first opening, so what a unit ever reads is a prefix of them: those that opened before it closed for
   the last time.

   With d_u = h_u - r_u, where r_u is the part of h_u that the other units' sums contain already, at a step an open unit
   j reads
       sums_j + sum over open u of w_ju d_u
   and everything else that the unit has read stays in sums_j. Where a span begins, r_u becomes h_u.

   What only some networks do is compiled only where it is asked for: GLSTM_RAW, samples are standardised first;
   GLSTM_POOL, the head reads a mean or maximum over the steps; GLSTM_HEAD, it is more than linear layers and ReLU;
   GLSTM_TIMED, each unit's pulse takes the place of the spans, for streams without an end and for times that nobody
   knows beforehand: see timed.h. With GLSTM_WINDOW a network takes whole windows, by window.h. With GLSTM_WHOLE, there
   is only the head and what samples need: the layers are those of int8.h. */
#ifndef GLSTM_STREAM_H
#define GLSTM_STREAM_H

#include <stdint.h>
#include <string.h>

#include "place.h"

#ifdef GLSTM_TIMED
#include "agenda.h"
#endif

#ifdef GLSTM_INT8
typedef int8_t glstm_weight; /* times the scale of its row */
#else
typedef float glstm_weight;
#endif

#ifndef GLSTM_COUNT /* may be defined to count the operations; a nonlinear function counts as five */
#define GLSTM_COUNT(operations) ((void)0)
#endif

#define GLSTM_SIGN(x) ((x) < 0 ? -1.0f : 1.0f)

typedef struct {
#ifdef GLSTM_TIMED
  uint32_t inputs, units, most_open, shape; /* most_open: at least as many as can be open at once */
  uint32_t logistic;                        /* candidate: 0 tanh, 1 logistic */
  const uint64_t *first;                    /* (units), as all of these, in ticks: the moment at which a unit opens, */
  const uint64_t *length, *period;          /* for how long, and how long until it opens again; 0: never */
  const uint64_t *peak;                     /* from its opening to where k is largest, which may lie outside */
  const uint8_t *shift;                     /* bits that a distance from the peak loses, so that 32 can hold it */
  const float *steep;                       /* 2^shift / width */
#else
  uint32_t inputs, units, most_open, spans; /* most_open: the largest number of units that are open at once */
  uint32_t logistic;                    /* candidate: 0 tanh, 1 logistic */
  const uint32_t *start;                /* (spans + 1): first steps, counted from 0; then the end */
  const uint32_t *change;               /* (spans + 1): where in `opens` the units of each span begin */
  const uint16_t *opens;                /* the units of each span, increasing */
  const float *k;                       /* for every step, the openness of its open units; NULL: all 1 */
#endif
  const uint32_t *row;                  /* (units + 1): where in w_h a unit's columns begin, in columns */
  const glstm_weight *w_x, *w_h;        /* (units, inputs, 4) and (columns, 4); gates in the order i f g o */
  const float *scale_x, *scale_h;       /* (units, 4), of int8 weights */
  const float *bias;                    /* (units, 4) */
#ifdef GLSTM_POOL
  uint32_t pool; /* one of GLSTM_NOW, _MEAN and _MAX: what the head reads of the last layer; not pooled in others */
#endif
} glstm_layer;

/* A stage of the head: weights, and what follows: 0 nothing, 1 a ReLU, more in head.h. */
typedef struct {
  uint32_t inputs, outputs, then;
  const glstm_weight *w; /* (outputs, inputs) */
  const float *scale;    /* (outputs), of int8 weights */
  const float *bias;     /* (outputs) */
#ifdef GLSTM_HEAD
  float number;              /* a slope, or what is added to a variance */
  const float *gain, *shift; /* (outputs), of a layer norm */
  const uint16_t *places;    /* (inputs), if w is NULL: where the numbers go; NULL: they stay in their order */
#endif
} glstm_dense;

typedef struct {
  uint32_t steps, layers, dense, widest; /* steps: 0 if it is timed; widest: outputs of the widest dense layer */
  const glstm_layer *layer;
  const glstm_dense *head;
#ifdef GLSTM_RAW
  uint32_t raw, missing;     /* numbers in a sample; what NaN in it becomes: one of GLSTM_PASS, _CARRY and _MASK */
  const float *mean, *scale; /* (raw); NULL: a sample is read as it is */
#endif
} glstm_model;

enum { GLSTM_PASS, GLSTM_CARRY, GLSTM_MASK };
enum { GLSTM_NOW, GLSTM_MEAN, GLSTM_MAX };

/* All data that changes. A layer's numbers are h, c (units each), sums (units, 4), r and d (most_open each), and if h is
   pooled, what is (units). Before the layers' come the last values of the inputs, if missing ones are carried. */
typedef struct {
  uint32_t *step;
#ifdef GLSTM_TIMED
  glstm_agenda *place; /* one per layer, as below */
#else
  glstm_place *place; /* one per layer */
#endif
  float *number; /* of the whole network */
#ifdef GLSTM_TIMED
  uint64_t *opens;  /* (units) of each layer: when a unit opens, or has opened, if it is open */
  uint16_t *agenda; /* of each layer, the units that wait to open (units), and those that are open (most_open) */
#endif
} glstm_state;

#ifndef GLSTM_WHOLE
static inline uint32_t glstm_own_numbers(const glstm_layer *l) { return 6 * l->units + 2 * l->most_open; }

static inline uint32_t glstm_pooling(const glstm_layer *l) {
#ifdef GLSTM_POOL
  return l->pool;
#else
  (void)l;
  return GLSTM_NOW;
#endif
}

static inline uint32_t glstm_numbers(const glstm_layer *l) {
  return glstm_own_numbers(l) + (glstm_pooling(l) == GLSTM_NOW ? 0 : l->units);
}

/* How many numbers of the state come before those of the layers. */
static inline uint32_t glstm_carried(const glstm_model *m) {
#ifdef GLSTM_RAW
  return m->missing == GLSTM_PASS ? 0 : m->raw;
#else
  (void)m;
  return 0;
#endif
}
#endif

#if !defined GLSTM_WHOLE || defined GLSTM_HEAD
/* e^x = power (1 + rest), for |x| <= 87: x = n ln 2 + r, power = 2^n, and rest by a polynomial in r. */
static inline float glstm_exp_rest(float x, float *power) {
  int32_t n = (int32_t)(x * 1.44269504088896341f + 0.5f * GLSTM_SIGN(x));
  uint32_t bits = (uint32_t)(n + 127) << 23;
  float r = x - (float)n * 0.693359375f, p;
  r += (float)n * 2.12194440e-4f;
  p = ((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f;
  p = (p * r + 1.6666665459e-1f) * r + 5.0000001201e-1f;
  memcpy(power, &bits, sizeof bits);
  return p * r * r + r;
}

static inline float glstm_sigmoid(float x) {
  float power, rest, z = x > 87.0f ? 87.0f : x < -87.0f ? -87.0f : x;
  if (x != x) return x;
  rest = glstm_exp_rest(-z, &power);
  return 1.0f / (1.0f + (power + power * rest));
}

/* (e^2z - 1) / (e^2z + 1) of z = |x|; the 1 is subtracted where the rounding error is smallest. */
static inline float glstm_tanh(float x) {
  float power, rest, z = x < 0 ? -x : x;
  if (x != x) return x;
  if (z > 15.0f) z = 15.0f;
  rest = glstm_exp_rest(z + z, &power);
  rest = power * rest + (power - 1.0f);
  return GLSTM_SIGN(x) * (rest / (rest + 2.0f));
}

#endif

#ifndef GLSTM_WHOLE
/* sum += row * value, for the four gates of a unit */
static inline void glstm_add(float *sum, const glstm_weight *w, float value) {
  sum[0] += (float)w[0] * value;
  sum[1] += (float)w[1] * value;
  sum[2] += (float)w[2] * value;
  sum[3] += (float)w[3] * value;
  GLSTM_COUNT(8);
}

/* The sum of a float row is added up in place. The sum of an int8 row is added up separately, and scaled at the end. */
#ifdef GLSTM_INT8
static inline void glstm_add_scaled(float *sums, const float *part, const float *scale) {
  uint32_t g;
  for (g = 0; g < 4; g++) sums[g] += scale[g] * part[g];
}
#define GLSTM_BEGIN(sums) float glstm_part[4] = {0, 0, 0, 0}, *const glstm_into = glstm_part
#define GLSTM_END(sums, scale, j) glstm_add_scaled(sums, glstm_part, (scale) + 4 * (size_t)(j))
#else
#define GLSTM_BEGIN(sums) float *const glstm_into = (sums)
#define GLSTM_END(sums, scale, j) ((void)0)
#endif

/* sums += what unit j reads from open units whose h has changed by d */
static inline void glstm_read_open(const glstm_layer *l, uint32_t j, const uint16_t *units, uint32_t open, const float *d,
                                   float *sums) {
  const glstm_weight *w = l->w_h + 4 * (size_t)l->row[j];
  uint32_t p;
  GLSTM_BEGIN(sums);
  for (p = 0; p < open; p++) glstm_add(glstm_into, w + 4 * (size_t)units[p], d[p]);
  GLSTM_END(sums, l->scale_h, j);
}

/* The sums of a unit that opens: what it reads from all units that were ever open. */
static inline void glstm_read_all(const glstm_layer *l, uint32_t j, const float *h, uint32_t known, float *sums) {
  const glstm_weight *w = l->w_h + 4 * (size_t)l->row[j];
  uint32_t u;
  memcpy(sums, l->bias + 4 * (size_t)j, 4 * sizeof *sums);
  {
    GLSTM_BEGIN(sums);
    for (u = 0; u < known; u++) glstm_add(glstm_into, w + 4 * (size_t)u, h[u]);
    GLSTM_END(sums, l->scale_h, j);
  }
}

#ifndef GLSTM_TIMED
static inline const uint16_t *glstm_open_units(const glstm_layer *l, uint32_t span, uint32_t *open) {
  *open = l->change[span + 1] - l->change[span];
  return l->opens + l->change[span];
}

/* The complete sums of all units that are open in the new span. d: the change of h since the span before began. */
static inline void glstm_begin_span(const glstm_layer *l, glstm_place *at, const float *h, float *sums, float *r,
                                    const float *d) {
  uint32_t open, were_open = 0, p = 0, q;
  const uint16_t *units = glstm_open_units(l, at->spans, &open), *before = units;
  uint32_t known = at->known;
  if (at->spans) before = glstm_open_units(l, at->spans - 1, &were_open);
  for (q = 0; q < open; q++) {
    uint32_t j = units[q];
    while (p < were_open && before[p] < j) p++;
    if (p < were_open && before[p] == j) glstm_read_open(l, j, before, were_open, d, sums + 4 * (size_t)j);
    else glstm_read_all(l, j, h, known, sums + 4 * (size_t)j);
    if (at->known <= j) at->known = j + 1;
    r[q] = h[j];
  }
  at->spans++;
}
#endif

/* sum += what unit j reads from the sample */
static inline void glstm_read_sample(const glstm_layer *l, uint32_t j, const float *x, float *sum) {
  const glstm_weight *w = l->w_x + 4 * (size_t)j * l->inputs;
  uint32_t n;
  GLSTM_BEGIN(sum);
  for (n = 0; n < l->inputs; n++) glstm_add(glstm_into, w + 4 * (size_t)n, x[n]);
  GLSTM_END(sum, l->scale_x, j);
}

/* A unit's new c and h, from its four sums. */
static inline void glstm_update(const glstm_layer *l, const float *sum, float k, float *h, float *c) {
  float i = glstm_sigmoid(sum[0]), f = glstm_sigmoid(sum[1]), o = glstm_sigmoid(sum[3]);
  float g = l->logistic ? glstm_sigmoid(sum[2]) : glstm_tanh(sum[2]), candidate = f * *c + i * g;
  *c += k * (candidate - *c);
  *h += k * (o * glstm_tanh(candidate) - *h);
  GLSTM_COUNT(29 + 7); /* as the paper counts a cell, and two mixes of the old and the new state */
}

#ifdef GLSTM_POOL
/* The maximum of h over the steps; or, for its mean over n steps, the sum w over all changes of h of (change) * (steps
   before it): the mean is h - w / n. Both change only where a unit is open, and begin as 0. */
static inline void glstm_pool(uint32_t how, uint32_t step, float before, float h, float *pooled) {
  if (how == GLSTM_MEAN) *pooled += (float)step * (h - before);
  else if (how == GLSTM_MAX && (step == 0 || h > *pooled || h != h)) *pooled = h;
}
#define GLSTM_REMEMBER(h) float glstm_before = (h)
#define GLSTM_POOL_UNIT(l, step, h, pooled) glstm_pool((l)->pool, step, glstm_before, h, pooled)
#else
#define GLSTM_REMEMBER(h) ((void)0)
#define GLSTM_POOL_UNIT(l, step, h, pooled) ((void)0)
#endif

#ifdef GLSTM_TIMED
#include "timed.h"
#else
static inline void glstm_layer_step(const glstm_layer *l, uint32_t step, glstm_place *at, float *number, const float *x) {
  float *h = number, *c = h + l->units, *sums = c + l->units, *r = sums + 4 * (size_t)l->units, *d = r + l->most_open;
  int begins = at->spans < l->spans && l->start[at->spans] == step;
  uint32_t open = 0, q;
  const uint16_t *units = l->opens;
  if (at->spans) units = glstm_open_units(l, at->spans - 1, &open);
  for (q = 0; q < open; q++) d[q] = h[units[q]] - r[q];
  GLSTM_COUNT(open);
  if (begins) {
    glstm_begin_span(l, at, h, sums, r, d);
    units = glstm_open_units(l, at->spans - 1, &open);
  }
  for (q = 0; q < open; q++) {
    uint32_t j = units[q];
    float sum[4];
    GLSTM_REMEMBER(h[j]);
    memcpy(sum, sums + 4 * (size_t)j, sizeof sum);
    if (!begins) glstm_read_open(l, j, units, open, d, sum);
    glstm_read_sample(l, j, x, sum);
    glstm_update(l, sum, l->k ? l->k[at->k_at + q] : 1.0f, h + j, c + j);
    GLSTM_POOL_UNIT(l, step, h[j], d + l->most_open + j);
  }
  at->k_at += open;
}
#endif

static inline void glstm_reset(const glstm_model *m, glstm_state s) {
  uint32_t n, numbers = glstm_carried(m);
  for (n = 0; n < m->layers; n++) numbers += glstm_numbers(m->layer + n);
  *s.step = 0; /* from which a timed network knows that its first sample comes */
  memset(s.place, 0, m->layers * sizeof *s.place);
  memset(s.number, 0, numbers * sizeof *s.number);
}
#endif

#ifdef GLSTM_RAW
/* A sample of raw numbers as the first layer reads it: (x - mean) / scale, and in `into` room for that layer's inputs.
   Instead of a missing value, the channel's last one, 0 if there is none yet. Not for samples past the last step. */
static inline void glstm_standardize(const glstm_model *m, glstm_state s, const float *x, float *into) {
  uint32_t n;
  for (n = 0; n < m->raw; n++) {
    float standard = (x[n] - m->mean[n]) / m->scale[n];
    if (m->missing != GLSTM_PASS) {
      if (x[n] == x[n]) s.number[n] = standard; /* not NaN */
      standard = s.number[n];
    }
    if (m->missing == GLSTM_MASK) into[m->raw + n] = x[n] == x[n] ? 1.0f : 0.0f;
    into[n] = standard;
  }
}
#endif

#if !defined GLSTM_WINDOW && !defined GLSTM_WHOLE
#ifndef GLSTM_TIMED
/* Takes the next sample. After the last step of the schedule it is ignored, and the state does not change. */
static inline void glstm_step(const glstm_model *m, glstm_state s, const float *x) {
  float *number = s.number + glstm_carried(m);
  uint32_t n;
  if (*s.step >= m->steps) return;
  for (n = 0; n < m->layers; n++) {
    glstm_layer_step(m->layer + n, *s.step, s.place + n, number, x);
    x = number; /* h of the layer below */
    number += glstm_numbers(m->layer + n);
  }
  ++*s.step;
}
#endif

/* What the head reads after `step` steps: h of the last layer, or its pooled numbers, put into `into` if need be. */
static inline const float *glstm_read(const glstm_model *m, uint32_t step, const float *number, float *into) {
  const glstm_layer *top = m->layer + m->layers - 1;
  uint32_t n;
  number += glstm_carried(m);
  for (n = 0; n + 1 < m->layers; n++) number += glstm_numbers(m->layer + n);
  if (glstm_pooling(top) == GLSTM_MAX) return number + glstm_own_numbers(top);
  if (glstm_pooling(top) == GLSTM_NOW || step == 0) return number;
  for (n = 0; n < top->units; n++) into[n] = number[n] - number[glstm_own_numbers(top) + n] / (float)step;
  return into;
}
#endif

#ifdef GLSTM_HEAD
#include "head.h"
#endif

/* The head's output for what it reads. `space`: 2 x widest numbers. */
static inline void glstm_run_head(const glstm_model *m, const float *from, float *y, float *space) {
  uint32_t n, o, i;
  for (n = 0; n < m->dense; n++) {
    const glstm_dense *d = m->head + n;
    float *into = n + 1 == m->dense ? y : space + (n % 2) * (size_t)m->widest;
#ifdef GLSTM_HEAD
    if (!d->w) glstm_put(d, from, into);
    for (o = 0; d->w && o < d->outputs; o++) {
#else
    for (o = 0; o < d->outputs; o++) {
#endif
      const glstm_weight *w = d->w + (size_t)o * d->inputs;
      float sum = 0;
      for (i = 0; i < d->inputs; i++) sum += (float)w[i] * from[i];
#ifdef GLSTM_INT8
      sum *= d->scale[o];
#endif
      sum += d->bias[o];
#ifdef GLSTM_HEAD
      into[o] = sum;
    }
    glstm_activate(d, into);
#else
      into[o] = d->then && sum < 0 ? 0 : sum;
    }
#endif
    from = into;
  }
}

#if !defined GLSTM_WINDOW && !defined GLSTM_WHOLE
/* The head's output after `step` steps. `space`: 2 x widest numbers, and for a mean one per unit of the last layer. */
static inline void glstm_output(const glstm_model *m, uint32_t step, const float *number, float *y, float *space) {
  glstm_run_head(m, glstm_read(m, step, number, space + 2 * (size_t)m->widest), y, space);
}
#endif

#endif
