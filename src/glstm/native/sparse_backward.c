/* The backward pass of sparse.c: at each step the derivatives of the open units; where the set of open units changes,
   the gradients that frozen units and their weights get through the stored contributions. For these only sums over the
   time in which a unit was frozen are needed, and `dbase` is that sum. */
#include "lanes.h"

typedef struct {
  const Layer *l;
  int first, samples, width;
  float *h, *dh, *dc, *dbase, *da; /* (H, width) (H, width) (H, width) (H, 4, width) (open, 4, width) */
  float *x, *packed;               /* (D, width), (open, open, 4) */
  float *dw_open, *dw_x;           /* vectors (open, open, 4) and (open, D, 4), summed over samples at a span's end */
  int *is_open, *has_value, *first_span;
  float *dw_ih, *dw_hh, *db; /* this thread's own */
} Back;

size_t NAME(sparse_backward_space)(const Layer *l, int samples, int most_open) {
  size_t H = l->hidden, D = l->inputs, width = padded(samples), open = most_open;
  return H * width * 7 + open * 4 * width + D * width + open * open * 4 * (1 + VL) + open * D * 4 * VL + 3 * H + 2 * VL;
}

static Back make_back(const Layer *l, int first, int samples, int most_open, float *space) {
  size_t H = l->hidden, D = l->inputs, width = padded(samples), open = most_open;
  Back n = {0};
  memset(space, 0, sizeof(float) * NAME(sparse_backward_space)(l, samples, most_open));
  n.l = l, n.first = first, n.samples = samples, n.width = (int)width;
  n.h = space, n.dh = n.h + H * width, n.dc = n.dh + H * width, n.dbase = n.dc + H * width;
  n.da = n.dbase + 4 * H * width, n.x = n.da + open * 4 * width, n.dw_open = n.x + D * width;
  n.dw_x = n.dw_open + open * open * 4 * VL, n.packed = n.dw_x + open * D * 4 * VL;
  n.is_open = (int *)(n.packed + open * open * 4), n.has_value = n.is_open + H, n.first_span = n.has_value + H;
  return n;
}

/* base_j contains W_ju h_u: adds to the gradients of h_u and W_ju what follows from dbase_j */
static void contribution_backward(Back *n, int j, int u) {
  int H = n->l->hidden;
  for (int g = 0; g < 4; g++) {
    const float *dbase = row(n->dbase, 4 * j + g, n->width), *h = row(n->h, u, n->width);
    float *dh = row(n->dh, u, n->width);
    vf w = splat(weight(n->l, g, j, u)), sum = splat(0);
    for (int v = 0; v < n->width; v += VL) {
      vf d = load(dbase + v);
      store(dh + v, load(dh + v) + w * d);
      sum += d * load(h + v);
    }
    n->dw_hh[((size_t)g * H + j) * H + u] += sum_lanes(sum);
  }
}

static void base_backward(Back *n, int j) {
  int H = n->l->hidden;
  for (int u = 0; u < H; u++)
    if (n->has_value[u] && !n->is_open[u]) contribution_backward(n, j, u);
  for (int g = 0; g < 4; g++) {
    float *dbase = row(n->dbase, 4 * j + g, n->width);
    vf sum = splat(0);
    for (int v = 0; v < n->width; v += VL) sum += load(dbase + v);
    n->db[g * H + j] += sum_lanes(sum);
    memset(dbase, 0, sizeof(float) * n->width);
  }
}

static void undo_begin_span(Back *n, const int32_t *before, int were_open, const int32_t *units, int open) {
  int revived = open_and_close(n->is_open, n->has_value, before, were_open, units, open);
  for (int q = 0; q < open; q++) {
    int j = units[q];
    if (n->is_open[j] == 1 || revived) base_backward(n, j);
    else
      for (int p = 0; p < were_open; p++)
        if (!n->is_open[before[p]]) contribution_backward(n, j, before[p]);
  }
  for (int q = 0; q < open; q++) n->is_open[units[q]] = 0;
}

/* Fills da of the unit, moves its h, dh and dc one step back; returns dk. */
static float slopes(Back *n, int j, int q, float k, const float *tape) {
  int width = n->width;
  float *dh = row(n->dh, j, width), *dc = row(n->dc, j, width), *h = row(n->h, j, width);
  vf dk = splat(0), kk = splat(k);
  for (int v = 0; v < width; v += VL) {
    const float *p = tape + v;
    vf i = load(p), f = load(p + width), g = load(p + 2 * width), o = load(p + 3 * width);
    vf c = load(p + 4 * width), h_old = load(p + 5 * width), dh_v = load(dh + v), dc_v = load(dc + v);
    vf c_new = f * c + i * g, squashed = tanh_(c_new);
    dk += dc_v * (c_new - c) + dh_v * (o * squashed - h_old);
    vf dh_new = kk * dh_v;
    vf dc_new = kk * dc_v + dh_new * o * (1.0f - squashed * squashed);
    vf slope_g = n->l->rule == LSTM_LOGISTIC ? g * (1.0f - g) : 1.0f - g * g;
    vf d[4] = {dc_new * g * i * (1.0f - i), dc_new * c * f * (1.0f - f), dc_new * i * slope_g,
               dh_new * squashed * o * (1.0f - o)};
    for (int gate = 0; gate < 4; gate++) {
      float *dbase = row(n->dbase, 4 * j + gate, width) + v;
      store(row(n->da, 4 * q + gate, width) + v, d[gate]);
      store(dbase, load(dbase) + d[gate]);
    }
    store(dh + v, (1.0f - kk) * dh_v);
    store(dc + v, (1.0f - kk) * dc_v + f * dc_new);
    store(h + v, h_old);
  }
  return sum_lanes(dk);
}

/* dh of unit number p += sum over the open units q of their weights times da_q, `group` vectors of samples */
INLINE void pass_on(int group, Back *n, const int32_t *units, int open, int p, int at) {
  float *dh = row(n->dh, units[p], n->width) + at;
  const float *w = n->packed + (size_t)p * open * 4;
  vf acc[GROUP];
  for (int v = 0; v < group; v++) acc[v] = load(dh + v * VL);
  for (int q = 0; q < open; q++, w += 4)
    for (int g = 0; g < 4; g++) {
      vf factor = splat(w[g]);
      const float *da = row(n->da, 4 * q + g, n->width) + at;
      for (int v = 0; v < group; v++) acc[v] += factor * load(da + v * VL);
    }
  for (int v = 0; v < group; v++) store(dh + v * VL, acc[v]);
}

/* sums (4 vectors) += da of unit q times value, over this thread's samples */
INLINE void correlate(const Back *n, int q, const float *value, float *sums) {
  vf s0 = load(sums), s1 = load(sums + VL), s2 = load(sums + 2 * VL), s3 = load(sums + 3 * VL);
  const float *da = n->da + (size_t)4 * q * n->width;
  for (int v = 0; v < n->width; v += VL) {
    vf a = load(value + v);
    s0 += a * load(da + v);
    s1 += a * load(da + n->width + v);
    s2 += a * load(da + 2 * n->width + v);
    s3 += a * load(da + 3 * n->width + v);
  }
  store(sums, s0), store(sums + VL, s1), store(sums + 2 * VL, s2), store(sums + 3 * VL, s3);
}

static void undo_step(Back *n, const int32_t *units, int open, const float *k, const float *tape, float *dk, float *dx) {
  const Layer *l = n->l;
  int D = l->inputs;
  for (int q = 0; q < open; q++) dk[units[q]] = slopes(n, units[q], q, k[units[q]], tape + (size_t)q * 6 * n->width);
  for (int p = 0; p < open; p++) {
    int at = 0;
    for (; at + GROUP * VL <= n->width; at += GROUP * VL) pass_on(GROUP, n, units, open, p, at);
    switch ((n->width - at) / VL) {
      case 3: pass_on(3, n, units, open, p, at); break;
      case 2: pass_on(2, n, units, open, p, at); break;
      case 1: pass_on(1, n, units, open, p, at); break;
    }
  }
  for (int q = 0; q < open; q++) {
    for (int d = 0; d < D; d++) correlate(n, q, row(n->x, d, n->width), n->dw_x + ((size_t)q * D + d) * 4 * VL);
    for (int p = 0; p < open; p++)
      correlate(n, q, row(n->h, units[p], n->width), n->dw_open + ((size_t)q * open + p) * 4 * VL);
  }
  for (int s = 0; dx && s < n->samples; s++)
    for (int d = 0; d < D; d++) {
      float sum = 0;
      for (int q = 0; q < open; q++)
        for (int g = 0; g < 4; g++)
          sum += l->w_ih[((size_t)g * l->hidden + units[q]) * D + d] * n->da[((size_t)4 * q + g) * n->width + s];
      dx[(size_t)s * D + d] = sum;
    }
}

static void pack_span(Back *n, const int32_t *units, int open) {
  float *out = n->packed;
  for (int p = 0; p < open; p++)
    for (int q = 0; q < open; q++)
      for (int g = 0; g < 4; g++) *out++ = weight(n->l, g, units[q], units[p]);
  memset(n->dw_open, 0, sizeof(float) * open * open * 4 * VL);
  memset(n->dw_x, 0, sizeof(float) * open * n->l->inputs * 4 * VL);
}

static void add_span_weights(Back *n, const int32_t *units, int open) {
  int H = n->l->hidden, D = n->l->inputs;
  for (int q = 0; q < open; q++)
    for (int g = 0; g < 4; g++) {
      size_t j = (size_t)g * H + units[q];
      for (int d = 0; d < D; d++) n->dw_ih[j * D + d] += sum_lanes(load(n->dw_x + (((size_t)q * D + d) * 4 + g) * VL));
      for (int p = 0; p < open; p++)
        n->dw_hh[j * H + units[p]] += sum_lanes(load(n->dw_open + (((size_t)q * open + p) * 4 + g) * VL));
    }
}

/* tape: this thread's, as sparse_forward left it. The weights' gradients and dk (T, H) are this thread's own, zeroed
   by the caller; d's arrays of samples are shared, each thread writing its own samples. */
void NAME(sparse_backward)(const Layer *l, const Gradients *d, const Schedule *schedule, int first, int samples,
                           const float *tape, float *dw_ih, float *dw_hh, float *db, float *dk, float *space) {
  int H = l->hidden, D = l->inputs, B = l->batch;
  Back n = make_back(l, first, samples, schedule->most_open, space);
  n.dw_ih = dw_ih, n.dw_hh = dw_hh, n.db = db;
  size_t updates = 0;
  int *starts_with_value = n.first_span; /* until the spans are known, -1 for units that h0 gives a value */
  gather(n.h, l->h0 + (size_t)first * H, H, samples, n.width);
  for (int u = 0; u < H; u++) {
    starts_with_value[u] = d->dh0 ? -1 : schedule->spans; /* the gradient of h0 is needed also where h0 is 0 */
    for (int s = 0; s < samples; s++)
      if (n.h[(size_t)u * n.width + s] != 0) starts_with_value[u] = -1;
  }
  for (int span = schedule->spans - 1; span >= 0; span--) {
    updates += (size_t)(schedule->offset[span + 1] - schedule->offset[span]) *
               (schedule->start[span + 1] - schedule->start[span]);
    for (int q = schedule->offset[span]; q < schedule->offset[span + 1]; q++)
      if (n.first_span[schedule->units[q]] >= 0) n.first_span[schedule->units[q]] = span;
  }
  tape += updates * 6 * n.width;
  memcpy(n.h, tape, sizeof(float) * H * n.width);
  gather(n.dh, d->dh_n + (size_t)first * H, H, samples, n.width);
  gather(n.dc, d->dc_n + (size_t)first * H, H, samples, n.width);
  for (int span = schedule->spans - 1; span >= 0; span--) {
    const int32_t *units = schedule->units + schedule->offset[span];
    int open = schedule->offset[span + 1] - schedule->offset[span];
    pack_span(&n, units, open);
    for (int t = schedule->start[span + 1] - 1; t >= schedule->start[span]; t--) {
      size_t at = (size_t)t * B + first;
      for (int s = 0; d->dh && s < samples; s++)
        for (int j = 0; j < H; j++) n.dh[(size_t)j * n.width + s] += d->dh[(at + s) * H + j];
      float *dx = d->dx ? d->dx + at * D : NULL;
      if (!open) {
        if (dx) memset(dx, 0, sizeof(float) * samples * D);
        continue;
      }
      gather(n.x, l->x + at * D, D, samples, n.width);
      tape -= (size_t)open * 6 * n.width;
      undo_step(&n, units, open, l->k + (size_t)t * H, tape, dk + (size_t)t * H, dx);
    }
    add_span_weights(&n, units, open);
    for (int u = 0; u < H; u++) n.has_value[u] = n.first_span[u] < span;
    const int32_t *before = span ? schedule->units + schedule->offset[span - 1] : units;
    undo_begin_span(&n, before, span ? schedule->offset[span] - schedule->offset[span - 1] : 0, units, open);
  }
  if (d->dh0) scatter(d->dh0 + (size_t)first * H, n.dh, H, samples, n.width);
  scatter(d->dc0 + (size_t)first * H, n.dc, H, samples, n.width);
}
