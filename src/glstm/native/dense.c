/* Every unit at every step: one fused pass over tiles that stay in the cache.

   A unit's four gates for VL units lie side by side, so a tile of ROWS samples times VL units has all four gates of
   each unit in registers when the product ends, and computes the new state without touching memory. Samples do not
   depend on each other: each thread takes its own samples through all steps and never waits. If there are too few
   samples for that, threads share the units instead, and each holds its part of the weights in its own cache. */
#include "engine.h"
#include "kernels.h"
#include "team.h"
#include "vector.h"

#define ROWS 6

/* A row of the product's left side: 1 (for the bias), x, h. */
static int row_length(const Layer *l) { return 1 + l->inputs + l->hidden; }
static int row_stride(const Layer *l) { return 1 + l->inputs + padded(l->hidden); }
static int blocks(const Layer *l) { return padded(l->hidden) / VL; }

size_t NAME(dense_weights_size)(const Layer *l) { return (size_t)blocks(l) * row_length(l) * 4 * VL; }

/* panel (columns, 4, VL) <- VL rows of w (rows, columns); `rows` of them exist. In pieces of a few columns, so that both
   what is read and what is written stay in the cache. */
static void pack_rows(const float *w, int columns, int rows, float *panel) {
  for (int from = 0; from < columns; from += VL)
    for (int lane = 0; lane < rows; lane++)
      for (int u = from; u < columns && u < from + VL; u++) panel[(size_t)u * 4 * VL + lane] = w[(size_t)lane * columns + u];
}

/* panel[block][row entry][gate][lane] */
void NAME(dense_pack)(const Layer *l, float *panel) {
  int D = l->inputs, H = l->hidden, K = row_length(l);
  memset(panel, 0, sizeof(float) * NAME(dense_weights_size)(l));
  for (int jb = 0; jb < blocks(l); jb++, panel += (size_t)K * 4 * VL)
    for (int g = 0; g < 4; g++) {
      size_t row = (size_t)g * H + jb * VL;
      int rows = H - jb * VL < VL ? H - jb * VL : VL;
      float *gate = panel + g * VL;
      if (l->b) pack_rows(l->b + row, 1, rows, gate);
      pack_rows(l->w_ih + row * D, D, rows, gate + 4 * VL);
      pack_rows(l->w_hh + row * H, H, rows, gate + (size_t)(1 + D) * 4 * VL);
    }
}

INLINE void product(int rows, vf acc[ROWS][4], const float *z, int stride, const float *panel, int K) {
  for (int r = 0; r < rows; r++)
    for (int g = 0; g < 4; g++) acc[r][g] = load(panel + g * VL); /* the bias: a row begins with 1 */
  panel += 4 * VL;
  for (int u = 1; u < K; u++) {
    vf w0 = load(panel), w1 = load(panel + VL), w2 = load(panel + 2 * VL), w3 = load(panel + 3 * VL);
    panel += 4 * VL;
    for (int r = 0; r < rows; r++) {
      vf a = splat(z[(size_t)r * stride + u]);
      acc[r][0] += a * w0;
      acc[r][1] += a * w1;
      acc[r][2] += a * w2;
      acc[r][3] += a * w3;
    }
  }
}

typedef struct {
  const float *panel, *k; /* k: this step's rows, padded */
  size_t k_stride;        /* 0 when one row serves all samples */
  const float *z;
  float *next, *c, *tape;
  int stride, K, D, H, logistic;
} Step;

INLINE void tile(int rows, const Step *s, int jb, int first) {
  vf acc[ROWS][4];
  int Hp = padded(s->H), at = jb * VL;
  product(rows, acc, s->z + (size_t)first * s->stride, s->stride, s->panel + (size_t)jb * s->K * 4 * VL, s->K);
  for (int r = 0; r < rows; r++) {
    size_t row = first + r;
    vf k = load(s->k + row * s->k_stride + at);
    vf h = load(s->z + row * s->stride + 1 + s->D + at), c = load(s->c + row * Hp + at);
    vf i = sigmoid(acc[r][0]), f = sigmoid(acc[r][1]), o = sigmoid(acc[r][3]);
    vf g = s->logistic ? sigmoid(acc[r][2]) : tanh_(acc[r][2]);
    vf c_new = f * c + i * g;
    vf h_new = o * tanh_(c_new);
    if (s->tape) {
      float *tape = s->tape + row * 6 * Hp + at;
      store_nontemporal(tape, i), store_nontemporal(tape + Hp, f), store_nontemporal(tape + 2 * Hp, g);
      store_nontemporal(tape + 3 * Hp, o), store_nontemporal(tape + 4 * Hp, c), store_nontemporal(tape + 5 * Hp, h);
    }
    store(s->c + row * Hp + at, mix(k, c_new, c));
    store(s->next + row * s->stride + 1 + s->D + at, mix(k, h_new, h));
  }
}

/* Shared by a team, except k: each member pads its own. */
size_t NAME(dense_forward_space)(const Layer *l, int samples, int members) {
  size_t Hp = padded(l->hidden), k_rows = l->k_per_sample ? samples : 1;
  return samples * (2 * (size_t)row_stride(l) + Hp) + members * k_rows * Hp + VL;
}

static void copy_x(const Layer *l, int t, int first, int samples, float *z) {
  int D = l->inputs;
  for (int s = 0; s < samples; s++)
    memcpy(z + (size_t)s * row_stride(l) + 1, l->x + ((size_t)t * l->batch + first + s) * D, sizeof(float) * D);
}

static void all_blocks(const Step *step, int from, int to, int samples) {
  for (int jb = from; jb < to; jb++) {
    int s = 0;
    for (; s + ROWS <= samples; s += ROWS) tile(ROWS, step, jb, s);
    switch (samples - s) {
      case 5: tile(5, step, jb, s); break;
      case 4: tile(4, step, jb, s); break;
      case 3: tile(3, step, jb, s); break;
      case 2: tile(2, step, jb, s); break;
      case 1: tile(1, step, jb, s); break;
    }
  }
}

/* Samples first .. first + samples - 1 through all steps, by one thread or by a team that shares the units. */
void NAME(dense_forward)(const Layer *l, const float *panel, int first, int samples, Team team, float *space) {
  int T = l->steps, B = l->batch, D = l->inputs, H = l->hidden, Hp = padded(H), stride = row_stride(l);
  int k_rows = l->k_per_sample ? samples : 1;
  float *z = space, *next = z + (size_t)samples * stride, *c = next + (size_t)samples * stride;
  float *k = c + (size_t)samples * Hp + (size_t)team.index * k_rows * Hp;
  int from_block = blocks(l) * team.index / team.size, to_block = blocks(l) * (team.index + 1) / team.size;
  int from = from_block * VL, own = (to_block * VL < H ? to_block * VL : H) - from; /* this member's units */
  if (team.index == 0) {
    memset(space, 0, sizeof(float) * NAME(dense_forward_space)(l, samples, team.size));
    for (int s = 0; s < samples; s++) {
      z[(size_t)s * stride] = next[(size_t)s * stride] = 1;
      memcpy(z + (size_t)s * stride + 1 + D, l->h0 + (size_t)(first + s) * H, sizeof(float) * H);
      memcpy(c + (size_t)s * Hp, l->c0 + (size_t)(first + s) * H, sizeof(float) * H);
    }
    if (T) copy_x(l, 0, first, samples, z);
  }
  wait_at_barrier(&team);
  for (int t = 0; t < T; t++) {
    for (int s = 0; s < k_rows; s++) {
      size_t row = l->k_per_sample ? (size_t)t * B + first + s : (size_t)t;
      memcpy(k + (size_t)s * Hp, l->k + row * H, sizeof(float) * H);
    }
    Step step = {panel, k, l->k_per_sample ? (size_t)Hp : 0, z, next, c, NULL, stride, row_length(l), D, H, l->logistic};
    if (l->tape) step.tape = l->tape + ((size_t)t * B + first) * 6 * Hp;
    all_blocks(&step, from_block, to_block, samples);
    for (int s = 0; s < samples; s++) {
      size_t row = ((size_t)t * B + first + s) * H + from;
      if (l->h) memcpy(l->h + row, next + (size_t)s * stride + 1 + D + from, sizeof(float) * own);
      if (l->c) memcpy(l->c + row, c + (size_t)s * Hp + from, sizeof(float) * own);
    }
    if (team.index == 0 && t + 1 < T) copy_x(l, t + 1, first, samples, next);
    wait_at_barrier(&team);
    float *swap = z;
    z = next, next = swap;
  }
  end_nontemporal();
  for (int s = 0; s < samples; s++) {
    size_t row = (size_t)(first + s) * H + from;
    memcpy(l->h_n + row, z + (size_t)s * stride + 1 + D + from, sizeof(float) * own);
    if (l->c_n) memcpy(l->c_n + row, c + (size_t)s * Hp + from, sizeof(float) * own);
  }
}
