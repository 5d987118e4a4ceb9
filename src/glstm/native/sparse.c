/* Only the open units, for many samples at once.

   What frozen units contribute to an open unit's gates is stored in `base` and not computed again. It is summed when a
   unit opens, and one product is added when another unit freezes. If a unit opens that had a value before, all bases
   are summed again. Nothing is ever subtracted, so the rounding error of a base is that of one sum over H units,
   however long the sequence is. */
#include "lanes.h"

/* One thread's samples: rows of `width` floats, a multiple of the vector. Padding samples are zeros. */
typedef struct {
  const Layer *l;
  int first, samples, width;
  float *h, *c, *base, *fresh; /* (H, width) (H, width) (H, 4, width) (H, width) */
  float *x;                    /* (D, width), this step's */
  float *packed;               /* (open, open + D, 4): this span's weights, in the order they are used */
  int *is_open, *has_value;    /* (H) */
} Lanes;

size_t NAME(sparse_space)(const Layer *l, int samples, int most_open) {
  size_t H = l->hidden, D = l->inputs, width = padded(samples);
  return H * width * 7 + D * width + (size_t)most_open * (most_open + D) * 4 + 2 * H + 2 * VL;
}

static Lanes make_lanes(const Layer *l, int first, int samples, int most_open, float *space) {
  int H = l->hidden, D = l->inputs, width = padded(samples);
  Lanes n = {l, first, samples, width, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
  memset(space, 0, sizeof(float) * NAME(sparse_space)(l, samples, most_open));
  n.h = space, n.c = row(n.h, H, width), n.base = row(n.c, H, width), n.fresh = row(n.base, 4 * H, width);
  n.x = row(n.fresh, H, width), n.packed = row(n.x, D, width);
  n.is_open = (int *)(n.packed + (size_t)most_open * (most_open + D) * 4), n.has_value = n.is_open + H;
  return n;
}

/* base of unit j += its weights times the value of unit u */
static void add_contribution(Lanes *n, int j, int u) {
  for (int g = 0; g < 4; g++) {
    vf w = splat(weight(n->l, g, j, u));
    float *base = row(n->base, 4 * j + g, n->width), *h = row(n->h, u, n->width);
    for (int v = 0; v < n->width; v += VL) store(base + v, load(base + v) + w * load(h + v));
  }
}

static void sum_afresh(Lanes *n, int j) {
  int H = n->l->hidden;
  for (int g = 0; g < 4; g++) {
    vf b = splat(n->l->b ? n->l->b[g * H + j] : 0);
    for (int v = 0; v < n->width; v += VL) store(row(n->base, 4 * j + g, n->width) + v, b);
  }
  for (int u = 0; u < H; u++)
    if (n->has_value[u] && !n->is_open[u]) add_contribution(n, j, u);
}

static void begin_span(Lanes *n, const int32_t *before, int were_open, const int32_t *units, int open) {
  int revived = open_and_close(n->is_open, n->has_value, before, were_open, units, open);
  for (int q = 0; q < open; q++) {
    int j = units[q];
    if (n->is_open[j] == 1 || revived) sum_afresh(n, j);
    else
      for (int p = 0; p < were_open; p++)
        if (!n->is_open[before[p]]) add_contribution(n, j, before[p]);
  }
  for (int q = 0; q < open; q++) n->has_value[units[q]] = 1;
}

static void pack_span(Lanes *n, const int32_t *units, int open) {
  const Layer *l = n->l;
  float *out = n->packed;
  for (int q = 0; q < open; q++) {
    for (int d = 0; d < l->inputs; d++)
      for (int g = 0; g < 4; g++) *out++ = l->w_ih[((size_t)g * l->hidden + units[q]) * l->inputs + d];
    for (int p = 0; p < open; p++)
      for (int g = 0; g < 4; g++) *out++ = weight(l, g, units[q], units[p]);
  }
}

INLINE void add_products(int group, vf acc[4][GROUP], const float *w, const float *value) {
  vf w0 = splat(w[0]), w1 = splat(w[1]), w2 = splat(w[2]), w3 = splat(w[3]);
  for (int v = 0; v < group; v++) {
    vf a = load(value + v * VL);
    acc[0][v] += w0 * a;
    acc[1][v] += w1 * a;
    acc[2][v] += w2 * a;
    acc[3][v] += w3 * a;
  }
}

/* unit number q of the span, `group` vectors of samples from `at` on */
INLINE void update_unit(int group, Lanes *n, const int32_t *units, int open, int q, int at, float k, float *tape) {
  const Layer *l = n->l;
  int j = units[q], width = n->width;
  const float *w = n->packed + (size_t)q * (open + l->inputs) * 4;
  vf acc[4][GROUP];
  for (int g = 0; g < 4; g++)
    for (int v = 0; v < group; v++) acc[g][v] = load(row(n->base, 4 * j + g, width) + at + v * VL);
  for (int d = 0; d < l->inputs; d++, w += 4) add_products(group, acc, w, row(n->x, d, width) + at);
  for (int p = 0; p < open; p++, w += 4) add_products(group, acc, w, row(n->h, units[p], width) + at);
  float *h = row(n->h, j, width) + at, *c = row(n->c, j, width) + at, *fresh = row(n->fresh, q, width) + at;
  for (int v = 0; v < group; v++) {
    vf i = sigmoid(acc[0][v]), f = sigmoid(acc[1][v]), o = sigmoid(acc[3][v]);
    vf g = l->rule == LSTM_LOGISTIC ? sigmoid(acc[2][v]) : tanh_(acc[2][v]);
    vf c_old = load(c + v * VL), h_old = load(h + v * VL);
    vf c_new = f * c_old + i * g;
    vf h_new = o * tanh_(c_new);
    if (tape) {
      float *p = tape + at + v * VL;
      store(p, i), store(p + width, f), store(p + 2 * width, g), store(p + 3 * width, o);
      store(p + 4 * width, c_old), store(p + 5 * width, h_old);
    }
    store(c + v * VL, mix(splat(k), c_new, c_old));
    store(fresh + v * VL, mix(splat(k), h_new, h_old));
  }
}

static void update_step(Lanes *n, const int32_t *units, int open, const float *k, float *tape) {
  for (int q = 0; q < open; q++) {
    float *p = tape ? tape + (size_t)q * 6 * n->width : NULL;
    int at = 0;
    for (; at + GROUP * VL <= n->width; at += GROUP * VL) update_unit(GROUP, n, units, open, q, at, k[units[q]], p);
    switch ((n->width - at) / VL) {
      case 3: update_unit(3, n, units, open, q, at, k[units[q]], p); break;
      case 2: update_unit(2, n, units, open, q, at, k[units[q]], p); break;
      case 1: update_unit(1, n, units, open, q, at, k[units[q]], p); break;
    }
  }
  for (int q = 0; q < open; q++)
    memcpy(row(n->h, units[q], n->width), row(n->fresh, q, n->width), sizeof(float) * n->width);
}

/* All outputs: what did not change is copied from the step before, which takes longer than most steps themselves. */
static void write_outputs(const Lanes *n, int t, const int32_t *units, int open) {
  const Layer *l = n->l;
  int H = l->hidden;
  for (int s = 0; s < n->samples; s++) {
    float *out = l->h + ((size_t)t * l->batch + n->first + s) * H;
    memcpy(out, t ? out - (size_t)l->batch * H : l->h0 + (size_t)(n->first + s) * H, sizeof(float) * H);
    for (int q = 0; q < open; q++) out[units[q]] = n->h[(size_t)units[q] * n->width + s];
  }
}

size_t NAME(sparse_tape_size)(const Layer *l, const Schedule *schedule, int samples) {
  size_t updates = 0;
  for (int n = 0; n < schedule->spans; n++)
    updates += (size_t)(schedule->offset[n + 1] - schedule->offset[n]) * (schedule->start[n + 1] - schedule->start[n]);
  return (updates * 6 + l->hidden) * padded(samples);
}

void NAME(sparse_forward)(const Layer *l, const Schedule *schedule, int first, int samples, float *tape, float *space) {
  int H = l->hidden, D = l->inputs;
  Lanes n = make_lanes(l, first, samples, schedule->most_open, space);
  gather(n.h, l->h0 + (size_t)first * H, H, samples, n.width);
  gather(n.c, l->c0 + (size_t)first * H, H, samples, n.width);
  for (int u = 0; u < H; u++)
    for (int s = 0; s < samples; s++) n.has_value[u] |= n.h[(size_t)u * n.width + s] != 0;
  const int32_t *before = schedule->units;
  int were_open = 0;
  for (int span = 0; span < schedule->spans; span++) {
    const int32_t *units = schedule->units + schedule->offset[span];
    int open = schedule->offset[span + 1] - schedule->offset[span];
    begin_span(&n, before, were_open, units, open);
    pack_span(&n, units, open);
    for (int t = schedule->start[span]; t < schedule->start[span + 1]; t++) {
      if (open) {
        gather(n.x, l->x + ((size_t)t * l->batch + first) * D, D, samples, n.width);
        update_step(&n, units, open, l->k + (size_t)t * H, tape);
        if (tape) tape += (size_t)open * 6 * n.width;
      }
      if (l->h) write_outputs(&n, t, units, open);
    }
    before = units, were_open = open;
  }
  scatter(l->h_n + (size_t)first * H, n.h, H, samples, n.width);
  if (l->c_n) scatter(l->c_n + (size_t)first * H, n.c, H, samples, n.width);
  if (tape) memcpy(tape, n.h, sizeof(float) * H * n.width); /* backward starts from it */
}
