/* The engine as a program of its own, for valgrind and for machines without Python: all paths against a plain loop in
   double precision, their backward passes against each other and against differences, and the Gaussian gate. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/glstm/native/engine.h"
#include "../../src/glstm/native/flush.h"

int glstm_dense_forward(const Layer *);
int glstm_dense_backward(const Layer *, const Gradients *);
int glstm_sparse_forward(const Layer *, const Schedule *);
int glstm_sparse_backward(const Layer *, const Gradients *, const Schedule *);
size_t glstm_sparse_tape_size(const Layer *, const Schedule *);
int64_t glstm_gaussian_exponents(const Gaussian *, double, double, int32_t, int32_t, int32_t *, void *);
void glstm_gaussian_table(const Gaussian *, const int32_t *, const void *, double, int32_t, int32_t, float *);
int glstm_gaussian_slopes(const Gaussian *, const float *, const float *, int32_t, int32_t);
Schedule *glstm_schedule(const float *, int32_t, int32_t);
void glstm_schedule_free(Schedule *);

#ifndef THREADS
#define THREADS 1
#endif

static unsigned state = 1;
static float uniform(void) { return (state = state * 1664525u + 1013904223u) / 4294967296.0f * 2 - 1; }

static float *numbers(size_t n, float scale) {
  float *p = NULL;
  if (posix_memalign((void **)&p, 64, (n + 1) * sizeof(float))) exit(2);
  for (size_t i = 0; i < n; i++) p[i] = scale * uniform();
  return p;
}

static double logistic(double x) { return 1 / (1 + exp(-x)); }

/* The final h and c (B, H), summed with fixed weights: a number that depends on everything. */
static double plain(const Layer *l, double *h, double *c) {
  int B = l->batch, D = l->inputs, H = l->hidden;
  double *a = malloc(sizeof(double) * 4 * H), *fresh = malloc(sizeof(double) * H), total = 0;
  for (int s = 0; s < B; s++) {
    for (int j = 0; j < H; j++) h[s * H + j] = l->h0[s * H + j], c[s * H + j] = l->c0[s * H + j];
    for (int t = 0; t < l->steps; t++) {
      for (int r = 0; r < 4 * H; r++) {
        a[r] = l->b ? l->b[r] : 0;
        for (int d = 0; d < D; d++) a[r] += (double)l->w_ih[r * D + d] * l->x[(t * B + s) * D + d];
        for (int u = 0; u < H; u++) a[r] += (double)l->w_hh[r * H + u] * h[s * H + u];
      }
      for (int j = 0; j < H; j++) {
        double k = l->k[t * H + j], old = c[s * H + j];
        double next = logistic(a[H + j]) * old + logistic(a[j]) * tanh(a[2 * H + j]);
        fresh[j] = k * logistic(a[3 * H + j]) * tanh(next) + (1 - k) * h[s * H + j];
        c[s * H + j] = k * next + (1 - k) * old;
      }
      for (int j = 0; j < H; j++) h[s * H + j] = fresh[j];
    }
    for (int j = 0; j < H; j++) total += h[s * H + j] * (1 + j % 3) + c[s * H + j] * (1 + s % 2);
  }
  free(a), free(fresh);
  return total;
}

static int worst_is_over(const char *what, double worst, double limit) {
  if (worst < limit) return 0;
  printf("%s: off by %g, allowed %g\n", what, worst, limit);
  return 1;
}

static double difference(const float *a, const float *b, size_t n) {
  double worst = 0, size = 1e-6;
  for (size_t i = 0; i < n; i++) {
    worst = fmax(worst, fabs((double)a[i] - b[i]));
    size = fmax(size, fabs(b[i]));
  }
  return worst / size;
}

/* A gate with any values: what it gets from dk must not depend on whether dk is ever a table. l has a tape of samples
   that were computed one by one. */
static int check_gate_inside(const Layer *l, const Schedule *schedule, const float *dh_n, const float *dc_n, const float *dk) {
  size_t H = l->hidden, states = (size_t)l->batch * H;
  double *times = malloc(sizeof(double) * l->steps);
  float *mu = numbers(H, 5), *sigma = numbers(H, 4), *by_table = numbers(2 * H, 1), *inside = numbers(2 * H, 1);
  float *others[5] = {numbers(4 * H * l->inputs, 1), numbers(4 * H * H, 1), numbers(4 * H, 1), numbers(states, 1),
                      numbers(states, 1)};
  for (int t = 0; t < l->steps; t++) times[t] = 1.5 * t;
  for (size_t i = 0; i < 2 * H; i++) by_table[i] = 0;
  Gaussian gate = {times, mu, sigma, by_table, by_table + H, 1, 0}, own = {times, mu, sigma, inside, inside + H, 1, 0};
  Gradients d = {NULL, dh_n, dc_n, NULL, NULL, others[0], others[1], others[2], NULL, others[3], others[4], &own};
  int wrong = glstm_gaussian_slopes(&gate, l->k, dk, l->steps, H) + glstm_sparse_backward(l, &d, schedule);
  wrong += worst_is_over("gate", difference(inside, by_table, 2 * H), 1e-4);
  for (int i = 0; i < 5; i++) free(others[i]);
  free(times), free(mu), free(sigma), free(by_table), free(inside);
  return wrong;
}

/* The table of a Gaussian gate, and the slopes of its sum with fixed weights, against double precision. */
static int check_gate(int T, int H, double threshold, int falling, int wide) {
  size_t n = (size_t)T * H;
  double *times = malloc(sizeof(double) * T), *right = calloc(2 * H, sizeof(double)), worst = 0, size = 1e-6;
  double *exponents = malloc(sizeof(double) * n), reach = sqrt(threshold > 0 ? -log(threshold) : 87.0);
  float *mu = numbers(H, 6), *sigma = numbers(H, 5), *found = numbers(2 * H, 0), *k = numbers(n, 1), *dk = numbers(n, 1);
  int32_t *ranges = malloc(sizeof(int32_t) * 2 * H);
  for (int t = 0; t < T; t++) times[t] = (falling ? T - 1 - t : t) * 0.75 - 3;
  for (int t = 0; !wide && t < T; t++) ((float *)times)[t] = (falling ? T - 1 - t : t) * 0.75f - 3;
  sigma[0] = 0;
  Gaussian gate = {times, mu, sigma, found, found + H, wide, 0};
  int64_t count = glstm_gaussian_exponents(&gate, reach, -87, T, H, ranges, exponents);
  for (int64_t i = 0; i < count; i++) {
    if (wide) exponents[i] = exp(exponents[i]);
    else ((float *)exponents)[i] = expf(((float *)exponents)[i]);
  }
  glstm_gaussian_table(&gate, ranges, exponents, threshold, T, H, k);
  int wrong = glstm_gaussian_slopes(&gate, k, dk, T, H);
  for (size_t i = 0; i < n; i++) {
    int j = i % H, t = i / H;
    double width = fmax(fabs(sigma[j]), 1e-6), time = (falling ? T - 1 - t : t) * 0.75 - 3;
    double distance = (time - mu[j]) / width, exact = exp(-distance * distance);
    int sure = fabs(exact - threshold) > 1e-6; /* either is right where rounding decides */
    worst = fmax(worst, sure ? fabs(k[i] - (exact > threshold ? exact : 0)) : 0);
    right[j] += 2 * dk[i] * k[i] * distance / width;
    right[H + j] += 2 * dk[i] * k[i] * distance * distance / width * (sigma[j] < 0 ? -1 : 1);
  }
  wrong += worst_is_over("table of a gate", worst, 2e-6);
  for (int j = 0; j < 2 * H; j++) size = fmax(size, fabs(right[j]));
  for (int j = 0; j < 2 * H; j++) wrong += worst_is_over("slope of a gate", fabs(found[j] - right[j]) / size, 1e-5);
  free(times), free(right), free(exponents), free(ranges), free(mu), free(sigma), free(found), free(k), free(dk);
  return wrong;
}

static int check(int T, int B, int D, int H, double openness) {
  enum { DENSE, TOGETHER, ONE_BY_ONE, PATHS };
  size_t states = (size_t)B * H, Hp = (H + 15) / 16 * 16;
  float *x = numbers((size_t)T * B * D, 1), *w_ih = numbers((size_t)4 * H * D, 0.5f), *b = numbers(4 * H, 0.5f);
  float *w_hh = numbers((size_t)4 * H * H, 0.5f), *k = numbers((size_t)T * H, 1), *h0 = numbers(states, 1);
  float *c0 = numbers(states, 1), *all_h = numbers((size_t)T * states, 1);
  float *ends[4] = {numbers(states, 1), numbers(states, 1), numbers(states, 1), numbers(states, 1)};
  double *h = malloc(sizeof(double) * states), *c = malloc(sizeof(double) * states);
  int wrong = 0;
  for (int i = 0; i < T * H; i++) k[i] = (k[i] + 1) / 2 < openness ? (k[i] + 1.1f) / 2.2f : 0;
  Layer l = {.steps = T, .batch = B, .inputs = D, .hidden = H, .threads = THREADS, .x = x, .w_ih = w_ih, .w_hh = w_hh, .b = b,
             .k = k, .h0 = h0, .c0 = c0, .h = all_h};
  Schedule *schedule = glstm_schedule(k, T, H);
  double right = plain(&l, h, c);
  size_t tape_size = (size_t)T * B * 6 * Hp;
  for (l.one_by_one = 0; l.one_by_one < 2; l.one_by_one++) {
    size_t needed = glstm_sparse_tape_size(&l, schedule);
    tape_size = needed > tape_size ? needed : tape_size;
  }
  float *tape = numbers(tape_size, 1);
  for (int way = 0; way < 2 * PATHS; way++) { /* each without a tape, and with one */
    int path = way / 2;
    l.h_n = ends[0], l.c_n = ends[1], l.tape = way % 2 ? tape : NULL, l.one_by_one = path == ONE_BY_ONE;
    if (path ? glstm_sparse_forward(&l, schedule) : glstm_dense_forward(&l)) return 1;
    double worst = 0;
    for (size_t i = 0; i < states; i++) worst = fmax(worst, fmax(fabs(ends[0][i] - h[i]), fabs(ends[1][i] - c[i])));
    wrong += worst_is_over("forward", worst, 1e-5);
    wrong += worst_is_over("last output", difference(all_h + (size_t)(T - 1) * states, ends[0], states), 1e-6);
  }
  for (size_t i = 0; i < states; i++) ends[2][i] = 1 + (i % H) % 3, ends[3][i] = 1 + (i / H) % 2;
  size_t sizes[7] = {(size_t)T * B * D, (size_t)4 * H * D, (size_t)4 * H * H, 4 * H, (size_t)T * H, states, states};
  float *found[PATHS][7], *all_dh = numbers((size_t)T * states, 1);
  for (int way = 0; way < 2 * PATHS; way++) { /* gradients of all outputs, and then of the final state alone */
    int path = way % PATHS;
    for (int i = 0; i < 7; i++) {
      if (way >= PATHS) free(found[path][i]);
      found[path][i] = numbers(sizes[i], 1);
    }
    Gradients d = {way < PATHS ? all_dh : NULL, ends[2], ends[3], NULL, found[path][0], found[path][1], found[path][2],
                   found[path][3], found[path][4], found[path][5], found[path][6], NULL};
    l.tape = tape, l.h = NULL, l.one_by_one = path == ONE_BY_ONE;
    if (path ? glstm_sparse_forward(&l, schedule) : glstm_dense_forward(&l)) return 1;
    if (path ? glstm_sparse_backward(&l, &d, schedule) : glstm_dense_backward(&l, &d)) return 1;
    for (int i = 0; path && i < 7; i++)
      wrong += worst_is_over("backward", difference(found[path][i], found[0][i], sizes[i]), 1e-4);
  }
  wrong += check_gate_inside(&l, schedule, ends[2], ends[3], found[ONE_BY_ONE][4]);
  float *operands[7] = {x, w_ih, w_hh, b, NULL, h0, c0};
  for (int i = 0; i < 7; i++)
    if (operands[i] && sizes[i]) {
      size_t at = sizes[i] / 2;
      float before = operands[i][at], step = 1e-3f;
      operands[i][at] = before + step;
      double more = plain(&l, h, c);
      operands[i][at] = before;
      double slope = (more - right) / step;
      wrong += worst_is_over("slope", fabs(slope - found[0][i][at]) / (1 + fabs(slope)), 2e-2);
    }
  for (int path = 0; path < PATHS; path++)
    for (int i = 0; i < 7; i++) free(found[path][i]);
  for (int i = 0; i < 4; i++) free(ends[i]);
  free(x), free(w_ih), free(w_hh), free(b), free(k), free(h0), free(c0), free(all_h), free(all_dh), free(tape), free(h), free(c);
  glstm_schedule_free(schedule);
  if (wrong) printf("at T %d, B %d, D %d, H %d, openness %g\n", T, B, D, H, openness);
  return wrong;
}

/* Whether this thread still has subnormal numbers: the engine must put the caller's setting back. */
static int subnormals_are_gone(void) {
  volatile float small = 1e-30f, smaller = 1e-10f;
  small *= smaller;
  if (!is_shut(small)) return 0;
  puts("after a call, subnormal numbers count as 0 in the caller's thread");
  return 1;
}

int main(void) {
  int wrong = 0, sizes[][4] = {{1, 1, 1, 1}, {7, 1, 1, 5}, {9, 3, 2, 17}, {12, 5, 3, 4}, {6, 19, 1, 33}, {3, 1, 1, 129}};
  double openness[] = {0, 0.1, 0.4, 1.1};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (size_t o = 0; o < sizeof openness / sizeof *openness; o++)
      wrong += check(sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3], openness[o]);
  for (int kind = 0; kind < 4; kind++) {
    int falling = kind % 2, wide = kind / 2;
    wrong += check_gate(1, 1, 0, falling, wide) + check_gate(9, 5, 0.01, falling, wide);
    wrong += check_gate(70, 33, 0, falling, wide);
  }
  wrong += subnormals_are_gone();
  puts(wrong ? "the engine is wrong" : "the engine is right");
  return wrong != 0;
}
