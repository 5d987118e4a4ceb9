/* Every unit at every step: one fused pass over tiles that stay in the cache.

   A unit's four gates for VL units lie side by side, so a tile of ROWS samples times VL units has all four gates of
   each unit in registers when the product ends, and computes the new state without touching memory. Samples do not
   depend on each other: each thread takes its own samples through all steps and never waits. If there are too few
   samples for that, threads share the units instead, and each holds its part of the weights in its own cache. */
#include "engine.h"
#include "kernels.h"
#include "team.h"
#include "vector.h"

/* A row of the product's left side: 1 (for the bias), x, h. */
static int row_length(const Layer *l) { return 1 + l->inputs + l->hidden; }
static int row_stride(const Layer *l) { return 1 + l->inputs + padded(l->hidden); }
static int blocks(const Layer *l) { return padded(l->hidden) / VL; }

size_t NAME(dense_weights_size)(const Layer *l) { return (size_t)blocks(l) * row_length(l) * 4 * VL; }

/* panel (columns, 4, VL) <- scale times VL rows of w (rows, columns); `rows` of them exist, the others are 0. */
static void pack_rows(const float *w, int columns, int rows, float scale, float *panel) {
  for (int from = 0; from < columns && VL <= columns; from += VL) {
    int at = from + VL <= columns ? from : columns - VL; /* the last square may overlap the one before */
    vf square[VL];
    for (int lane = 0; lane < VL; lane++)
      square[lane] = lane < rows ? scale * load(w + (size_t)lane * columns + at) : splat(0);
    transpose(square);
    for (int u = 0; u < VL; u++) store(panel + (size_t)(at + u) * 4 * VL, square[u]);
  }
  for (int u = 0; u < columns && columns < VL; u++)
    for (int lane = 0; lane < VL; lane++)
      panel[(size_t)u * 4 * VL + lane] = lane < rows ? scale * w[(size_t)lane * columns + u] : 0;
}

/* panel[block][row entry][gate][lane], scaled so that a gate's sum is what `powers` needs for its function. */
void NAME(dense_pack)(const Layer *l, float *panel) {
  int D = l->inputs, H = l->hidden, K = row_length(l);
  for (int jb = 0; jb < blocks(l); jb++, panel += (size_t)K * 4 * VL)
    for (int g = 0; g < 4; g++) {
      size_t row = (size_t)g * H + jb * VL;
      int rows = H - jb * VL < VL ? H - jb * VL : VL;
      int tanh = l->rule == GRU ? g >= 2 : g == 2 && l->rule == LSTM_TANH;
      float *gate = panel + g * VL, scale = tanh ? 2 : -1.44269504088896341f;
      if (l->b) pack_rows(l->b + row, 1, rows, scale, gate);
      else store(gate, splat(0));
      pack_rows(l->w_ih + row * D, D, rows, scale, gate + 4 * VL);
      pack_rows(l->w_hh + row * H, H, rows, scale, gate + (size_t)(1 + D) * 4 * VL);
    }
}

/* The sums of all gates. The next block's weights are brought into the second-level cache at the same time. */
INLINE void product(int rows, const float *z, int stride, const float *panel, int K, Ahead *ahead, float *sums) {
  vf acc[ROWS][4];
  for (int r = 0; r < rows; r++)
    for (int g = 0; g < 4; g++) acc[r][g] = load(panel + g * VL); /* the bias: a row begins with 1 */
  panel += 4 * VL;
  for (int u = 1; u < K; u++) {
    vf a[ROWS];
    fetch(ahead);
    for (int r = 0; r < rows; r++) a[r] = splat(z[(size_t)r * stride + u]);
    for (int g = 0; g < 4; g++, panel += VL) {
      vf w = load(panel);
      for (int r = 0; r < rows; r++) acc[r][g] += a[r] * w;
    }
  }
  for (int r = 0; r < rows; r++)
    for (int g = 0; g < 4; g++) store(sums + (r * 4 + g) * VL, acc[r][g]);
}

typedef struct {
  const float *panel, *k; /* k: this step's rows, padded */
  size_t k_stride;        /* 0 when one row serves all samples */
  const float *z;
  float *next, *c, *tape;
  int stride, K, D, H, rule;
} Step;

/* A unit of one sample between its new c and its new h. */
typedef struct {
  vf c, c_new, o;
} Cell;

/* e: what `powers` returned for the four gates; g: the candidate */
INLINE Cell new_cell(const Step *s, const vf *e, vf g, size_t row, int at) {
  int Hp = padded(s->H);
  vf i = 1.0f / e[0], f = 1.0f / e[1], o = 1.0f / e[3], c = load(s->c + row * Hp + at), c_new = f * c + i * g;
  if (s->tape) {
    float *tape = s->tape + row * 6 * Hp + at;
    store_nontemporal(tape, i), store_nontemporal(tape + Hp, f), store_nontemporal(tape + 2 * Hp, g);
    store_nontemporal(tape + 3 * Hp, o), store_nontemporal(tape + 4 * Hp, c);
    store_nontemporal(tape + 5 * Hp, load(s->z + row * s->stride + 1 + s->D + at));
  }
  return (Cell){c, c_new, o};
}

INLINE void finish(const Step *s, const Cell *cell, vf e_minus_1, size_t row, int at) {
  size_t h_at = row * s->stride + 1 + s->D + at;
  vf k = load(s->k + row * s->k_stride + at), h_new = cell->o * after_tanh(e_minus_1, cell->c_new);
  store(s->c + row * padded(s->H) + at, mix(k, cell->c_new, cell->c));
  store(s->next + h_at, mix(k, h_new, load(s->z + h_at)));
}

/* From the gates' sums to the new state. A row's gates are computed together with the tanh of the row before, so that
   nothing has to wait. */
INLINE void functions(int rows, const Step *s, const float *sums, int at, size_t first, int logistic) {
  const int natural[TOGETHER] = {0, 0, !logistic, 0, 1};
  Cell cell = {splat(0), splat(0), splat(0)};
  vf e[TOGETHER], a[TOGETHER];
  for (int r = 0; r < rows; r++, sums += 4 * VL) {
    vf sum_g = load(sums + 2 * VL);
    for (int g = 0; g < 4; g++)
      a[g] = g == 2 && !logistic ? before_tanh(sum_g) : before_logistic(load(sums + g * VL));
    a[4] = before_tanh(cell.c_new + cell.c_new);
    powers(5, natural, a, e);
    if (r) finish(s, &cell, e[4], first + r - 1, at);
    cell = new_cell(s, e, logistic ? 1.0f / e[2] : after_tanh(e[2], sum_g), first + r, at);
  }
  a[4] = before_tanh(cell.c_new + cell.c_new);
  powers(1, natural + 4, a + 4, e);
  finish(s, &cell, e[0], first + rows - 1, at);
}

/* A unit of a GRU between its gates and its candidate; the sums are doubled, as tanh takes them. */
typedef struct {
  vf r, z, sum, sum_h;
} Waiting;

INLINE void finish_gru(const Step *s, const Waiting *cell, vf e_minus_1, size_t row, int at) {
  int Hp = padded(s->H);
  size_t h_at = row * s->stride + 1 + s->D + at;
  vf n = after_tanh(e_minus_1, cell->sum), h = load(s->z + h_at), k = load(s->k + row * s->k_stride + at);
  if (s->tape) { /* there is no c: its place stays as it is, and is not read */
    float *tape = s->tape + row * 6 * Hp + at;
    store_nontemporal(tape, cell->r), store_nontemporal(tape + Hp, cell->z), store_nontemporal(tape + 2 * Hp, n);
    store_nontemporal(tape + 3 * Hp, 0.5f * cell->sum_h), store_nontemporal(tape + 5 * Hp, h);
  }
  store(s->next + h_at, mix(k, (1.0f - cell->z) * n + cell->z * h, h));
}

/* The same for a GRU: a row's two gates together with the candidate of the row before. */
INLINE void gru_functions(int rows, const Step *s, const float *sums, int at, size_t first) {
  const int natural[TOGETHER] = {0, 0, 1};
  Waiting cell = {splat(0), splat(0), splat(0), splat(0)};
  vf e[TOGETHER], a[TOGETHER];
  for (int row = 0; row < rows; row++, sums += 4 * VL) {
    a[0] = before_logistic(load(sums)), a[1] = before_logistic(load(sums + VL)), a[2] = before_tanh(cell.sum);
    powers(3, natural, a, e);
    if (row) finish_gru(s, &cell, e[2], first + row - 1, at);
    vf r = 1.0f / e[0], sum_h = load(sums + 3 * VL);
    cell = (Waiting){r, 1.0f / e[1], load(sums + 2 * VL) + r * sum_h, sum_h};
  }
  a[2] = before_tanh(cell.sum);
  powers(1, natural + 2, a + 2, e);
  finish_gru(s, &cell, e[0], first + rows - 1, at);
}

INLINE void tile(int rows, const Step *s, int jb, int first, Ahead *ahead) {
  float sums[ROWS * 4 * VL] __attribute__((aligned(4 * VL)));
  product(rows, s->z + (size_t)first * s->stride, s->stride, s->panel + (size_t)jb * s->K * 4 * VL, s->K, ahead, sums);
  if (s->rule == GRU) gru_functions(rows, s, sums, jb * VL, first);
  else if (s->rule == LSTM_LOGISTIC) functions(rows, s, sums, jb * VL, first, 1);
  else functions(rows, s, sums, jb * VL, first, 0);
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

/* In tiles of almost equal size: a small tile takes almost as long as a large one. */
static void all_blocks(const Step *step, int from, int to, int samples) {
  int tiles = (samples + ROWS - 1) / ROWS;
  size_t panel = (size_t)step->K * 4 * VL;
  for (int jb = from; jb < to; jb++) {
    const float *next = step->panel + (jb + 1 < to ? jb + 1 : from) * panel;
    Ahead ahead = {next, tiles > 1 ? next + panel : next}; /* weights that are used once are simply read */
    for (int n = 0; n < tiles; n++) {
      int s = samples * n / tiles;
      switch (samples * (n + 1) / tiles - s) {
#if ROWS > 3
        case 6: tile(6, step, jb, s, &ahead); break;
        case 5: tile(5, step, jb, s, &ahead); break;
        case 4: tile(4, step, jb, s, &ahead); break;
#endif
#if ROWS > 2
        case 3: tile(3, step, jb, s, &ahead); break;
#endif
        case 2: tile(2, step, jb, s, &ahead); break;
        case 1: tile(1, step, jb, s, &ahead); break;
      }
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
    Step step = {panel, k, l->k_per_sample ? (size_t)Hp : 0, z, next, c, NULL, stride, row_length(l), D, H, l->rule};
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
