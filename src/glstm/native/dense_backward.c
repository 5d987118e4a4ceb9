/* The backward pass of dense.c: derivatives, then the product with the transposed weights, then the weights' gradient,
   each on tiles of the same kind. Every thread has its own gradients of the weights; the driver adds them in a fixed
   order. */
#include "engine.h"
#include "kernels.h"
#include "vector.h"

#define ROWS 6
#define COLUMNS 4  /* vectors of the transposed product in a tile */
#define LINE 16    /* floats in a line of the cache */
#define ENOUGH 96  /* from so many rows of (sample, step) on, a weight update is worth its loads and stores */

static int row_length(const Layer *l) { return 1 + l->inputs + l->hidden; }
static int blocks(const Layer *l) { return padded(l->hidden) / VL; }
static int columns(const Layer *l, int with_x) { return padded(l->hidden) + (with_x ? padded(l->inputs) : 0); }
static int groups(const Layer *l, int with_x) { return (columns(l, with_x) / VL + COLUMNS - 1) / COLUMNS; }

size_t NAME(dense_transposed_size)(const Layer *l, int with_x) {
  return (size_t)groups(l, with_x) * 4 * padded(l->hidden) * COLUMNS * VL;
}

/* transposed[group][entry of a row of da][column]: columns are the units, then the inputs */
void NAME(dense_pack_transposed)(const Layer *l, int with_x, float *transposed) {
  int D = l->inputs, H = l->hidden, Hp = padded(H), width = COLUMNS * VL;
  for (int group = 0; group < groups(l, with_x); group++)
    for (int jb = 0; jb < blocks(l); jb++)
      for (int g = 0; g < 4; g++)
        for (int lane = 0; lane < VL; lane++)
          for (int column = 0; column < width; column++) {
            int j = jb * VL + lane, row = g * H + j, u = group * width + column;
            float w = 0;
            if (j < H && u < H) w = l->w_hh[(size_t)row * H + u];
            else if (j < H && u >= Hp && u - Hp < D) w = l->w_ih[(size_t)row * D + u - Hp];
            *transposed++ = w;
          }
}

typedef struct {
  const float *at, *end;
} Ahead;

/* out[row] += da[row] times the transposed weights, for `vectors` vectors of columns. The tape of the next step is
   prefetched at the same time, one cache line with every few products, until all of it is there. */
INLINE void transposed_product(int rows, int vectors, const float *da, int K, const float *w, float *out, int stride,
                               Ahead *ahead) {
  vf acc[ROWS][COLUMNS];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) acc[r][v] = load(out + (size_t)r * stride + v * VL);
  for (int quad = 0; quad < K; quad += 4) {
    if (ahead->at < ahead->end) __builtin_prefetch(ahead->at, 0, 2), ahead->at += LINE;
    for (int u = quad; u < quad + 4; u++, w += COLUMNS * VL) {
      vf column[COLUMNS];
      for (int v = 0; v < vectors; v++) column[v] = load(w + v * VL);
      for (int r = 0; r < rows; r++) {
        vf a = splat(da[(size_t)r * K + u]);
        for (int v = 0; v < vectors; v++) acc[r][v] += a * column[v];
      }
    }
  }
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) store(out + (size_t)r * stride + v * VL, acc[r][v]);
}

INLINE void transposed_rows(int vectors, const float *da, int K, const float *w, float *out, int stride, int rows,
                            Ahead *ahead) {
  for (; rows >= ROWS; rows -= ROWS, da += (size_t)ROWS * K, out += (size_t)ROWS * stride)
    transposed_product(ROWS, vectors, da, K, w, out, stride, ahead);
  switch (rows) {
    case 5: transposed_product(5, vectors, da, K, w, out, stride, ahead); break;
    case 4: transposed_product(4, vectors, da, K, w, out, stride, ahead); break;
    case 3: transposed_product(3, vectors, da, K, w, out, stride, ahead); break;
    case 2: transposed_product(2, vectors, da, K, w, out, stride, ahead); break;
    case 1: transposed_product(1, vectors, da, K, w, out, stride, ahead); break;
  }
}

/* dw[block][entry of z][gate][lane] += sum over rows of z times da */
INLINE void update_tile(int entries, const float *z, int z_stride, const float *da, int K, int rows, float *dw) {
  vf acc[ROWS][4];
  for (int e = 0; e < entries; e++)
    for (int g = 0; g < 4; g++) acc[e][g] = load(dw + (e * 4 + g) * VL);
  for (int r = 0; r < rows; r++, z += z_stride, da += K) {
    vf d0 = load(da), d1 = load(da + VL), d2 = load(da + 2 * VL), d3 = load(da + 3 * VL);
    for (int e = 0; e < entries; e++) {
      vf a = splat(z[e]);
      acc[e][0] += a * d0;
      acc[e][1] += a * d1;
      acc[e][2] += a * d2;
      acc[e][3] += a * d3;
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
         (size_t)held_rows(samples) * (row_length(l) + 4 * Hp) + (size_t)(l->k_per_sample ? samples : 1) * Hp + VL;
}

/* One step's derivatives for one block of units: fills da, moves dh and dc one step back. What dh gets through the
   gates is added afterwards, by the product with the transposed weights. */
INLINE void slopes(const Layer *l, int samples, int jb, const float *tape, const float *k, size_t k_stride, float *dh,
                   int dh_stride, float *dc, float *da, float *dk, size_t dk_stride) {
  int Hp = padded(l->hidden), at = jb * VL;
  vf dk_sum = splat(0);
  for (int s = 0; s < samples; s++) {
    const float *p = tape + (size_t)s * 6 * Hp + at;
    vf kk = load(k + s * k_stride + at);
    vf i = load(p), f = load(p + Hp), g = load(p + 2 * Hp), o = load(p + 3 * Hp), c = load(p + 4 * Hp);
    vf h = load(p + 5 * Hp), dh_s = load(dh + (size_t)s * dh_stride + at), dc_s = load(dc + (size_t)s * Hp + at);
    vf c_new = f * c + i * g, squashed = tanh_(c_new);
    vf gate_gradient = dc_s * (c_new - c) + dh_s * (o * squashed - h);
    vf dh_new = kk * dh_s;
    vf dc_new = kk * dc_s + dh_new * o * (1.0f - squashed * squashed);
    vf slope_g = l->logistic ? g * (1.0f - g) : 1.0f - g * g;
    vi closed = shut(kk); /* a closed unit's gates may be NaN if its input was NaN: they must have no effect */
    vf none = splat(0);
    float *d = da + (size_t)s * 4 * Hp + (size_t)jb * 4 * VL;
    store(d, choose(closed, none, dc_new * g * i * (1.0f - i)));
    store(d + VL, choose(closed, none, dc_new * c * f * (1.0f - f)));
    store(d + 2 * VL, choose(closed, none, dc_new * i * slope_g));
    store(d + 3 * VL, choose(closed, none, dh_new * squashed * o * (1.0f - o)));
    store(dc + (size_t)s * Hp + at, choose(closed, dc_s, (1.0f - kk) * dc_s + f * dc_new));
    store(dh + (size_t)s * dh_stride + at, choose(closed, dh_s, (1.0f - kk) * dh_s));
    gate_gradient = choose(closed, none, gate_gradient);
    if (dk_stride) store(dk + s * dk_stride + at, gate_gradient);
    else dk_sum += gate_gradient;
  }
  if (!dk_stride) store(dk + at, dk_sum);
}

/* dw: this thread's own, [block][entry][gate][lane], zeroed by the caller. dk: (T, Hp) of this thread, or per sample
   the caller's (T, B, H) by way of a padded row. */
void NAME(dense_backward)(const Layer *l, const Gradients *d, const float *transposed, int first, int samples,
                          float *dw, float *dk, float *space) {
  int T = l->steps, B = l->batch, D = l->inputs, H = l->hidden, Hp = padded(H), K = 4 * Hp;
  int with_x = d->dx != NULL, width = columns(l, with_x), dh_stride = width + COLUMNS * VL, entries = row_length(l);
  int cap = held_rows(samples), held = 0;
  float *dh = space, *dc = dh + (size_t)samples * dh_stride, *z = dc + (size_t)samples * Hp;
  float *da = z + (size_t)cap * entries, *k = da + (size_t)cap * K;
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
    float *rows = da + (size_t)held * K, *z_rows = z + (size_t)held * entries;
    float *dk_row = dk + (size_t)t * (l->k_per_sample ? (size_t)samples : 1) * Hp;
    for (int jb = 0; jb < blocks(l); jb++)
      slopes(l, samples, jb, tape, k, l->k_per_sample ? Hp : 0, dh, dh_stride, dc, rows, dk_row, l->k_per_sample ? Hp : 0);
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
