/* The backward pass of dense.c: derivatives, then the product with the transposed weights, then the weights' gradient,
   each on tiles of the same kind. Every thread has its own gradients of the weights; the driver adds them in a fixed
   order. */
#include "engine.h"
#include "kernels.h"
#include "vector.h"

#define COLUMNS 4  /* vectors of the transposed product in a tile */
#define ENOUGH 96  /* from so many rows of (sample, step) on, a weight update is worth its loads and stores */

static int row_length(const Layer *l) { return 1 + l->inputs + l->hidden; }
static int blocks(const Layer *l) { return padded(l->hidden) / VL; }
static int columns(const Layer *l, int with_x) { return padded(l->hidden) + (with_x ? padded(l->inputs) : 0); }
/* From one row of da, of K entries, to the next. Rows that are a power of two apart would share the same few places of
   the cache, so there is a line between them. */
static int da_stride(int K) { return K + LINE; }
static int groups(const Layer *l, int with_x) { return (columns(l, with_x) / VL + COLUMNS - 1) / COLUMNS; }

size_t NAME(dense_transposed_size)(const Layer *l, int with_x) {
  return (size_t)groups(l, with_x) * 4 * padded(l->hidden) * COLUMNS * VL;
}

/* transposed[group][entry of a row of da][column]: columns are the units, then the inputs */
void NAME(dense_pack_transposed)(const Layer *l, int with_x, float *transposed) {
  int D = l->inputs, H = l->hidden, Hp = padded(H), width = COLUMNS * VL, entry = 0;
  memset(transposed, 0, sizeof(float) * NAME(dense_transposed_size)(l, with_x));
  for (int jb = 0; jb < blocks(l); jb++)
    for (int g = 0; g < 4; g++)
      for (int lane = 0; lane < VL; lane++, entry++)
        for (int group = 0; jb * VL + lane < H && group < groups(l, with_x); group++) {
          size_t row = (size_t)g * H + jb * VL + lane;
          float *to = transposed + ((size_t)group * 4 * Hp + entry) * width;
          int from = group * width, units = H - from < width ? H - from : width;
          if (units > 0) memcpy(to, l->w_hh + row * H + from, sizeof(float) * units);
          int first = from > Hp ? from : Hp, end = from + width < Hp + D ? from + width : Hp + D;
          if (with_x && first < end)
            memcpy(to + first - from, l->w_ih + row * D + first - Hp, sizeof(float) * (end - first));
        }
}

/* w (rows, columns) <- panel (columns, 4, VL): the reverse of `pack_rows` in dense.c, not scaled */
static void unpack_rows(const float *panel, int columns, int rows, float *w) {
  for (int from = 0; from < columns && VL <= columns; from += VL) {
    int at = from + VL <= columns ? from : columns - VL; /* the last square may overlap the one before */
    vf square[VL];
    for (int u = 0; u < VL; u++) square[u] = load(panel + (size_t)(at + u) * 4 * VL);
    transpose(square);
    for (int lane = 0; lane < VL; lane++)
      if (lane < rows) store(w + (size_t)lane * columns + at, square[lane]);
  }
  for (int u = 0; u < columns && columns < VL; u++)
    for (int lane = 0; lane < rows; lane++) w[(size_t)lane * columns + u] = panel[(size_t)u * 4 * VL + lane];
}

/* The gradients of the weights and of the bias from dw, which `dense_backward` made. */
void NAME(dense_unpack)(const Layer *l, const float *dw, const Gradients *d) {
  int D = l->inputs, H = l->hidden;
  for (int jb = 0; jb < blocks(l); jb++, dw += (size_t)row_length(l) * 4 * VL)
    for (int g = 0; g < 4; g++) {
      size_t row = (size_t)g * H + jb * VL;
      int rows = H - jb * VL < VL ? H - jb * VL : VL;
      const float *gate = dw + g * VL;
      memcpy(d->db + row, gate, sizeof(float) * rows);
      unpack_rows(gate + 4 * VL, D, rows, d->dw_ih + row * D);
      unpack_rows(gate + (size_t)(1 + D) * 4 * VL, H, rows, d->dw_hh + row * H);
    }
}

/* out[row] += da[row] times the transposed weights, for `vectors` vectors of columns. The tape of the next step is
   fetched at the same time. */
INLINE void transposed_product(int rows, int vectors, const float *da, int K, const float *w, float *out, int stride,
                               Ahead *ahead) {
  vf acc[ROWS][COLUMNS];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) acc[r][v] = load(out + (size_t)r * stride + v * VL);
  for (int u = 0; u < K; u++, w += COLUMNS * VL) {
    vf a[ROWS];
    fetch(ahead);
    for (int r = 0; r < rows; r++) a[r] = splat(da[(size_t)r * da_stride(K) + u]);
    for (int v = 0; v < vectors; v++) {
      vf column = load(w + v * VL);
      for (int r = 0; r < rows; r++) acc[r][v] += a[r] * column;
    }
  }
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) store(out + (size_t)r * stride + v * VL, acc[r][v]);
}

/* In tiles of almost equal size: a small tile takes almost as long as a large one. */
INLINE void transposed_rows(int vectors, const float *da, int K, const float *w, float *out, int stride, int rows,
                            Ahead *ahead) {
  int tiles = (rows + ROWS - 1) / ROWS;
  for (int n = 0; n < tiles; n++) {
    int first = rows * n / tiles;
    const float *from = da + (size_t)first * da_stride(K);
    float *to = out + (size_t)first * stride;
    switch (rows * (n + 1) / tiles - first) {
#if ROWS > 3
      case 6: transposed_product(6, vectors, from, K, w, to, stride, ahead); break;
      case 5: transposed_product(5, vectors, from, K, w, to, stride, ahead); break;
      case 4: transposed_product(4, vectors, from, K, w, to, stride, ahead); break;
#endif
#if ROWS > 2
      case 3: transposed_product(3, vectors, from, K, w, to, stride, ahead); break;
#endif
      case 2: transposed_product(2, vectors, from, K, w, to, stride, ahead); break;
      case 1: transposed_product(1, vectors, from, K, w, to, stride, ahead); break;
    }
  }
}

/* dw[block][entry of z][gate][lane] += sum over rows of z times da. The next tile's dw is fetched at the same time. */
INLINE void update_tile(int entries, const float *z, int z_stride, const float *da, int K, int rows, float *dw) {
  vf acc[ROWS][4];
  Ahead ahead = {dw + entries * 4 * VL, dw + 2 * entries * 4 * VL};
  for (int e = 0; e < entries; e++)
    for (int g = 0; g < 4; g++) acc[e][g] = load(dw + (e * 4 + g) * VL);
  for (int r = 0; r < rows; r++, z += z_stride, da += da_stride(K)) {
    vf a[ROWS];
    fetch(&ahead);
    for (int e = 0; e < entries; e++) a[e] = splat(z[e]);
    for (int g = 0; g < 4; g++) {
      vf d = load(da + g * VL);
      for (int e = 0; e < entries; e++) acc[e][g] += a[e] * d;
    }
  }
  for (int e = 0; e < entries; e++)
    for (int g = 0; g < 4; g++) store(dw + (e * 4 + g) * VL, acc[e][g]);
}

static void update_weights(const Layer *l, const float *z, const float *da, int rows, float *dw) {
  int entries = row_length(l), K = 4 * padded(l->hidden);
  for (int jb = 0; jb < blocks(l); jb++) {
    const float *d = da + (size_t)jb * 4 * VL;
    float *out = dw + (size_t)jb * entries * 4 * VL;
    int e = 0;
    for (; e + ROWS <= entries; e += ROWS) update_tile(ROWS, z + e, entries, d, K, rows, out + (size_t)e * 4 * VL);
    for (; e < entries; e++) update_tile(1, z + e, entries, d, K, rows, out + (size_t)e * 4 * VL);
  }
}

static int held_rows(int samples) { return samples >= ENOUGH ? samples : (ENOUGH + samples - 1) / samples * samples; }

size_t NAME(dense_backward_space)(const Layer *l, int samples, int with_x) {
  int Hp = padded(l->hidden);
  return (size_t)samples * (columns(l, with_x) + COLUMNS * VL + Hp) +
         (size_t)held_rows(samples) * (row_length(l) + da_stride(4 * Hp)) + (size_t)(l->k_per_sample ? samples : 1) * Hp + VL;
}

/* One step's rows of one sample. */
typedef struct {
  const float *tape, *k;
  float *dh, *dc, *da, *dk;
} Rows;

/* Derivatives for `count` blocks of units: fills da, moves dh and dc one step back, adds to dk. What dh gets through the
   gates is added afterwards, by the product with the transposed weights. */
INLINE void slopes(int count, const Rows *row, int jb, int Hp, int logistic) {
  const int natural[TOGETHER] = {1, 1, 1, 1, 1};
  vf c_new[TOGETHER], a[TOGETHER], e[TOGETHER];
  for (int n = 0; n < count; n++) {
    const float *p = row->tape + (jb + n) * VL;
    c_new[n] = load(p + Hp) * load(p + 4 * Hp) + load(p) * load(p + 2 * Hp);
    a[n] = before_tanh(c_new[n] + c_new[n]);
  }
  powers(count, natural, a, e);
  for (int n = 0; n < count; n++) {
    int at = (jb + n) * VL;
    const float *p = row->tape + at;
    vf i = load(p), f = load(p + Hp), g = load(p + 2 * Hp), o = load(p + 3 * Hp), c = load(p + 4 * Hp);
    vf h = load(p + 5 * Hp), k = load(row->k + at), dh = load(row->dh + at), dc = load(row->dc + at);
    vf squashed = after_tanh(e[n], c_new[n]);
    vf gate_gradient = dc * (c_new[n] - c) + dh * (o * squashed - h);
    vf dh_new = k * dh;
    vf dc_new = k * dc + dh_new * o * (1.0f - squashed * squashed);
    vf slope_g = logistic ? g * (1.0f - g) : 1.0f - g * g;
    vi closed = shut(k); /* a closed unit's gates may be NaN if its input was NaN: they must have no effect */
    vf none = splat(0);
    float *da = row->da + at * 4;
    store(da, choose(closed, none, dc_new * g * i * (1.0f - i)));
    store(da + VL, choose(closed, none, dc_new * c * f * (1.0f - f)));
    store(da + 2 * VL, choose(closed, none, dc_new * i * slope_g));
    store(da + 3 * VL, choose(closed, none, dh_new * squashed * o * (1.0f - o)));
    store(row->dc + at, choose(closed, dc, (1.0f - k) * dc + f * dc_new));
    store(row->dh + at, choose(closed, dh, (1.0f - k) * dh));
    store(row->dk + at, load(row->dk + at) + choose(closed, none, gate_gradient));
  }
}

/* The same of a GRU, for one block: there is no function to compute, and no dc. */
INLINE void gru_slopes(const Rows *row, int jb, int Hp) {
  int at = jb * VL;
  const float *p = row->tape + at;
  vf r = load(p), z = load(p + Hp), n = load(p + 2 * Hp), sum_h = load(p + 3 * Hp), h = load(p + 5 * Hp);
  vf k = load(row->k + at), dh = load(row->dh + at), none = splat(0), dh_new = k * dh;
  vf dn = dh_new * (1.0f - z) * (1.0f - n * n); /* of the candidate's sum */
  vi closed = shut(k);
  float *da = row->da + at * 4;
  store(da, choose(closed, none, dn * sum_h * r * (1.0f - r)));
  store(da + VL, choose(closed, none, dh_new * (h - n) * z * (1.0f - z)));
  store(da + 2 * VL, choose(closed, none, dn));
  store(da + 3 * VL, choose(closed, none, dn * r));
  store(row->dh + at, choose(closed, dh, (1.0f - k) * dh + z * dh_new));
  store(row->dk + at, load(row->dk + at) + choose(closed, none, dh * (1.0f - z) * (n - h)));
}

INLINE void all_slopes(const Rows *row, int blocks, int Hp, int rule) {
  int jb = 0, logistic = rule == LSTM_LOGISTIC;
  if (rule == GRU) {
    for (; jb < blocks; jb++) gru_slopes(row, jb, Hp);
    return;
  }
  for (; jb + 4 <= blocks; jb += 4) slopes(4, row, jb, Hp, logistic);
  for (; jb + 2 <= blocks; jb += 2) slopes(2, row, jb, Hp, logistic);
  for (; jb < blocks; jb++) slopes(1, row, jb, Hp, logistic);
}

/* dw: this thread's own, [block][entry][gate][lane], zeroed by the caller. dk: (T, Hp) of this thread, or per sample
   the caller's (T, B, H) by way of a padded row. */
void NAME(dense_backward)(const Layer *l, const Gradients *d, const float *transposed, int first, int samples,
                          float *dw, float *dk, float *space) {
  int T = l->steps, B = l->batch, D = l->inputs, H = l->hidden, Hp = padded(H), K = 4 * Hp;
  int with_x = d->dx != NULL, width = columns(l, with_x), dh_stride = width + COLUMNS * VL, entries = row_length(l);
  int cap = held_rows(samples), held = 0;
  float *dh = space, *dc = dh + (size_t)samples * dh_stride, *z = dc + (size_t)samples * Hp;
  float *da = z + (size_t)cap * entries, *k = da + (size_t)cap * da_stride(K);
  memset(space, 0, sizeof(float) * NAME(dense_backward_space)(l, samples, with_x));
  for (int s = 0; s < samples; s++) {
    memcpy(dh + (size_t)s * dh_stride, d->dh_n + (size_t)(first + s) * H, sizeof(float) * H);
    memcpy(dc + (size_t)s * Hp, d->dc_n + (size_t)(first + s) * H, sizeof(float) * H);
  }
  for (int t = T - 1; t >= 0; t--) {
    size_t at = (size_t)t * B + first;
    for (int s = 0; s < samples; s++) {
      for (int j = 0; d->dh && j < H; j++) dh[(size_t)s * dh_stride + j] += d->dh[(at + s) * H + j];
      for (int j = 0; d->dc && j < H; j++) dc[(size_t)s * Hp + j] += d->dc[(at + s) * H + j];
    }
    for (int s = 0; s < (l->k_per_sample ? samples : 1); s++)
      memcpy(k + (size_t)s * Hp, l->k + (l->k_per_sample ? at + s : (size_t)t) * H, sizeof(float) * H);
    const float *tape = l->tape + at * 6 * Hp, *before = t ? tape - (size_t)B * 6 * Hp : tape;
    Ahead ahead = {before, before + (size_t)samples * 6 * Hp};
    float *rows = da + (size_t)held * da_stride(K), *z_rows = z + (size_t)held * entries;
    float *dk_row = dk + (size_t)t * (l->k_per_sample ? (size_t)samples : 1) * Hp;
    for (int s = 0; s < samples; s++) {
      size_t own = l->k_per_sample ? (size_t)s * Hp : 0;
      Rows row = {tape + (size_t)s * 6 * Hp, k + own, dh + (size_t)s * dh_stride, dc + (size_t)s * Hp,
                  rows + (size_t)s * da_stride(K), dk_row + own};
      if (l->rule == GRU) all_slopes(&row, blocks(l), Hp, GRU);
      else if (l->rule == LSTM_LOGISTIC) all_slopes(&row, blocks(l), Hp, LSTM_LOGISTIC);
      else all_slopes(&row, blocks(l), Hp, LSTM_TANH);
    }
    for (int s = 0; s < samples; s++) {
      float *row = z_rows + (size_t)s * entries;
      row[0] = 1;
      if (any_open(k + (l->k_per_sample ? (size_t)s * Hp : 0), H)) memcpy(row + 1, l->x + (at + s) * D, sizeof(float) * D);
      else memset(row + 1, 0, sizeof(float) * D); /* not read: it may be NaN, and 0 * NaN is not 0 */
      memcpy(row + 1 + D, tape + (size_t)s * 6 * Hp + 5 * Hp, sizeof(float) * H);
    }
    for (int group = 0; group < groups(l, with_x); group++) {
      const float *w = transposed + (size_t)group * K * COLUMNS * VL;
      float *out = dh + (size_t)group * COLUMNS * VL;
      switch (width / VL - group * COLUMNS) {
        case 1: transposed_rows(1, rows, K, w, out, dh_stride, samples, &ahead); break;
        case 2: transposed_rows(2, rows, K, w, out, dh_stride, samples, &ahead); break;
        case 3: transposed_rows(3, rows, K, w, out, dh_stride, samples, &ahead); break;
        default: transposed_rows(4, rows, K, w, out, dh_stride, samples, &ahead);
      }
    }
    for (int s = 0; with_x && s < samples; s++) {
      float *dx = dh + (size_t)s * dh_stride + Hp;
      memcpy(d->dx + (at + s) * D, dx, sizeof(float) * D);
      memset(dx, 0, sizeof(float) * D);
    }
    held += samples;
    if (held == cap || t == 0) {
      update_weights(l, z, da, held, dw);
      held = 0;
    }
  }
  for (int s = 0; s < samples; s++) {
    if (d->dh0) memcpy(d->dh0 + (size_t)(first + s) * H, dh + (size_t)s * dh_stride, sizeof(float) * H);
    memcpy(d->dc0 + (size_t)(first + s) * H, dc + (size_t)s * Hp, sizeof(float) * H);
  }
}
