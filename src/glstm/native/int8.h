/* A gated LSTM in whole numbers, one sample at a time: weights and h in 8 bits, sums in 32, gates by a table. It follows
   stream.h, which says what the arrays mean. What is different:

   h is kept with 15 binary places, so that a small k still moves it; what units read of it is h in 1/127, 8 bits. So
   d_u, the change of that, is exact, and sums are those of all that was read, however long ago: nothing drifts.
   c has 20 binary places, the numbers that a gate's function takes have 16, those that it gives 15. A sample is scaled to
   whole numbers within `most`. How large a sum can become is known from the weights, so that sums, shifted to the left
   by as much as fits into 32 bits, have scales for which only the upper half of a product of 64 bits is needed. Sums
   are kept only of units that are open: units that are never open together share a slot.

   A shift to the right of a negative number rounds down, as all compilers for these machines have it. */
#ifndef GLSTM_INT8_H
#define GLSTM_INT8_H

typedef struct {
  uint32_t inputs, units, most_open, spans, slots, logistic;
  uint32_t shift_x, shift_h; /* of sums */
  const uint32_t *start, *change;
  const uint16_t *opens, *k;               /* 65536 k, one less from k = 1/2 on; NULL: all 1 */
  const uint16_t *slot;                    /* (units): where a unit's sums are */
  const uint32_t *row;
  const int8_t *w_x, *w_h;
  const int32_t *scale_x, *scale_h, *bias; /* (units, 4): with 48 - shift binary places, the last with 16 */
} glstm_layer8;

typedef struct {
  uint32_t steps, layers;
  const glstm_layer8 *layer;
  float scale, most; /* of samples */
} glstm_model8;

/* All layers' numbers, one after the other: c and h (units), sums (slots, 4), r (most_open). d and x are for a while. */
typedef struct {
  uint32_t *step;
  glstm_place *place;
  int32_t *c, *sums;
  int16_t *h, *d, *x;
  int8_t *r;
} glstm_state8;

static inline int32_t glstm_upper_half(int32_t a, int32_t b) { return (int32_t)(((int64_t)a * b) >> 32); }

/* A value times a factor with so many binary places, rounded. */
static inline int32_t glstm_times(int32_t value, int32_t factor, uint32_t places) {
  return (int32_t)(((int64_t)value * factor + ((int64_t)1 << (places - 1))) >> places);
}

static inline int8_t glstm_in_8_bits(int16_t h) { return (int8_t)((h * 127 + 16384) >> 15); }

/* The logistic function: a straight line in each 1/32, of a table that ends at 12. */
static inline int32_t glstm_logistic8(int32_t z) {
  const int32_t end = 12 << 16, size = z < 0 ? -z : z, within = size < end ? size : end - 1;
  const uint16_t *at = glstm_logistic_table + (within >> 11);
  int32_t low = at[0], y = low + (((at[1] - low) * (within & 2047) + 1024) >> 11);
  return z < 0 ? 32768 - y : y;
}

static inline int32_t glstm_tanh8(int32_t z) { return 2 * glstm_logistic8(2 * z) - 32768; }

static inline void glstm_add8(int32_t *sum, const int8_t *w, int32_t value) {
  sum[0] += w[0] * value;
  sum[1] += w[1] * value;
  sum[2] += w[2] * value;
  sum[3] += w[3] * value;
}

static inline void glstm_read_open8(const glstm_layer8 *l, uint32_t j, const uint16_t *units, uint32_t open,
                                    const int16_t *d, int32_t *sums) {
  const int8_t *w = l->w_h + 4 * (size_t)l->row[j];
  int32_t sum[4];
  uint32_t p;
  memcpy(sum, sums, sizeof sum);
  for (p = 0; p < open; p++) glstm_add8(sum, w + 4 * (size_t)units[p], d[p]);
  memcpy(sums, sum, sizeof sum);
}

static inline void glstm_read_all8(const glstm_layer8 *l, uint32_t j, const int16_t *h, uint32_t known, int32_t *sums) {
  const int8_t *w = l->w_h + 4 * (size_t)l->row[j];
  int32_t sum[4] = {0, 0, 0, 0};
  uint32_t u;
  for (u = 0; u < known; u++) glstm_add8(sum, w + 4 * (size_t)u, glstm_in_8_bits(h[u]));
  memcpy(sums, sum, sizeof sum);
}

static inline const uint16_t *glstm_open_units8(const glstm_layer8 *l, uint32_t span, uint32_t *open) {
  *open = l->change[span + 1] - l->change[span];
  return l->opens + l->change[span];
}

static inline void glstm_begin_span8(const glstm_layer8 *l, glstm_place *at, const glstm_state8 *s) {
  uint32_t open, were_open = 0, p = 0, q, known = at->known;
  const uint16_t *units = glstm_open_units8(l, at->spans, &open), *before = units;
  if (at->spans) before = glstm_open_units8(l, at->spans - 1, &were_open);
  for (q = 0; q < open; q++) {
    uint32_t j = units[q];
    int32_t *sums = s->sums + 4 * (size_t)l->slot[j];
    while (p < were_open && before[p] < j) p++;
    if (p < were_open && before[p] == j) glstm_read_open8(l, j, before, were_open, s->d, sums);
    else glstm_read_all8(l, j, s->h, known, sums);
    if (at->known <= j) at->known = j + 1;
    s->r[q] = glstm_in_8_bits(s->h[j]);
  }
  at->spans++;
}

/* What the function of gate g of unit j takes. */
static inline int32_t glstm_gate8(const glstm_layer8 *l, uint32_t j, uint32_t g, const int32_t *of_h, const int32_t *of_x) {
  const size_t at = 4 * (size_t)j + g;
  int32_t from_h = glstm_upper_half(of_h[g] * (1 << l->shift_h), l->scale_h[at]);
  return l->bias[at] + from_h + glstm_upper_half(of_x[g] * (1 << l->shift_x), l->scale_x[at]);
}

/* A unit's new c and h from what it has read of units and of the sample. */
static inline void glstm_update8(const glstm_layer8 *l, uint32_t j, const int32_t *of_h, const int32_t *of_x, int32_t k,
                                 int16_t *h, int32_t *c) {
  const int32_t largest = (1 << 30) - 1, z = glstm_gate8(l, j, 2, of_h, of_x);
  int32_t i = glstm_logistic8(glstm_gate8(l, j, 0, of_h, of_x)), f = glstm_logistic8(glstm_gate8(l, j, 1, of_h, of_x));
  int32_t o = glstm_logistic8(glstm_gate8(l, j, 3, of_h, of_x)), g = l->logistic ? glstm_logistic8(z) : glstm_tanh8(z);
  int32_t candidate = glstm_times(*c, f, 15) + ((i * g + 512) >> 10), moved;
  candidate = candidate > largest ? largest : candidate < -largest ? -largest : candidate;
  moved = *h + glstm_times(((o * glstm_tanh8(candidate >> 4) + 16384) >> 15) - *h, k, 16);
  *h = (int16_t)(moved > 32767 ? 32767 : moved < -32767 ? -32767 : moved);
  *c += glstm_times(candidate - *c, k, 16);
}

/* `below`: h of the layer below, in place of a sample x. */
static inline void glstm_layer_step8(const glstm_layer8 *l, uint32_t step, glstm_place *at, const glstm_state8 *s,
                                     const int16_t *x, const int16_t *below) {
  int begins = at->spans < l->spans && l->start[at->spans] == step;
  uint32_t open = 0, q, n;
  const uint16_t *units = l->opens;
  if (at->spans) units = glstm_open_units8(l, at->spans - 1, &open);
  for (q = 0; q < open; q++) s->d[q] = (int16_t)(glstm_in_8_bits(s->h[units[q]]) - s->r[q]);
  if (begins) {
    glstm_begin_span8(l, at, s);
    units = glstm_open_units8(l, at->spans - 1, &open);
  }
  if (below && open) {
    for (n = 0; n < l->inputs; n++) s->x[n] = glstm_in_8_bits(below[n]);
    x = s->x;
  }
  for (q = 0; q < open; q++) {
    uint32_t j = units[q], k = l->k ? l->k[at->k_at + q] : 65535;
    const int8_t *w = l->w_x + 4 * (size_t)j * l->inputs;
    int32_t of_h[4], of_x[4] = {0, 0, 0, 0};
    memcpy(of_h, s->sums + 4 * (size_t)l->slot[j], sizeof of_h);
    if (!begins) glstm_read_open8(l, j, units, open, s->d, of_h);
    for (n = 0; n < l->inputs; n++) glstm_add8(of_x, w + 4 * (size_t)n, x[n]);
    glstm_update8(l, j, of_h, of_x, (int32_t)(k + (k >> 15)), s->h + j, s->c + j);
  }
  at->k_at += open;
}

/* A sample in whole numbers; one that is none is 0. */
static inline void glstm_sample8(const glstm_model8 *m, const float *x, int16_t *into) {
  uint32_t n;
  for (n = 0; n < m->layer[0].inputs; n++) {
    float scaled = x[n] * m->scale;
    into[n] = (int16_t)(scaled > m->most ? m->most : scaled < -m->most ? -m->most : scaled == scaled ? scaled : 0.0f);
  }
}

/* Takes the next sample. After the last step it is ignored, and the state does not change. */
static inline void glstm_step8(const glstm_model8 *m, glstm_state8 s, const float *x) {
  const int16_t *below = 0;
  uint32_t n;
  if (*s.step >= m->steps) return;
  glstm_sample8(m, x, s.x);
  for (n = 0; n < m->layers; n++) {
    const glstm_layer8 *l = m->layer + n;
    glstm_layer_step8(l, *s.step, s.place + n, &s, s.x, below);
    below = s.h;
    s.c += l->units, s.h += l->units, s.sums += 4 * (size_t)l->slots, s.r += l->most_open;
  }
  ++*s.step;
}

#endif
