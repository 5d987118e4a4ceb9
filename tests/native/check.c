/* The engine as a program of its own, for valgrind and for machines without Python: dense, sparse and single against a
   plain loop in double precision, and the two backward passes against each other and against differences. */
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
Schedule *glstm_schedule(const float *, int32_t, int32_t);
void glstm_schedule_free(Schedule *);

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

static int check(int T, int B, int D, int H, double openness) {
  size_t states = (size_t)B * H, Hp = (H + 15) / 16 * 16, Bp = (B + 15) / 16 * 16;
  float *x = numbers((size_t)T * B * D, 1), *w_ih = numbers((size_t)4 * H * D, 0.5f), *b = numbers(4 * H, 0.5f);
  float *w_hh = numbers((size_t)4 * H * H, 0.5f), *k = numbers((size_t)T * H, 1), *h0 = numbers(states, 1);
  float *c0 = numbers(states, 1), *all_h = numbers((size_t)T * states, 1), *tape = numbers((size_t)T * Bp * 6 * Hp + H * Bp, 1);
  float *ends[4] = {numbers(states, 1), numbers(states, 1), numbers(states, 1), numbers(states, 1)};
  double *h = malloc(sizeof(double) * states), *c = malloc(sizeof(double) * states);
  int wrong = 0;
  for (int i = 0; i < T * H; i++) k[i] = (k[i] + 1) / 2 < openness ? (k[i] + 1.1f) / 2.2f : 0;
  Layer l = {.steps = T, .batch = B, .inputs = D, .hidden = H, .threads = 1, .x = x, .w_ih = w_ih, .w_hh = w_hh, .b = b,
             .k = k, .h0 = h0, .c0 = c0, .h = all_h};
  Schedule *schedule = glstm_schedule(k, T, H);
  double right = plain(&l, h, c);
  for (int way = 0; way < 3; way++) { /* dense, sparse or single, sparse with a tape */
    l.h_n = ends[0], l.c_n = ends[1], l.tape = way == 2 ? tape : NULL;
    if (way ? glstm_sparse_forward(&l, schedule) : glstm_dense_forward(&l)) return 1;
    double worst = 0;
    for (size_t i = 0; i < states; i++) worst = fmax(worst, fmax(fabs(ends[0][i] - h[i]), fabs(ends[1][i] - c[i])));
    wrong += worst_is_over("forward", worst, 1e-5);
    wrong += worst_is_over("last output", difference(all_h + (size_t)(T - 1) * states, ends[0], states), 1e-6);
  }
  for (size_t i = 0; i < states; i++) ends[2][i] = 1 + (i % H) % 3, ends[3][i] = 1 + (i / H) % 2;
  size_t sizes[7] = {(size_t)T * B * D, (size_t)4 * H * D, (size_t)4 * H * H, 4 * H, (size_t)T * H, states, states};
  float *found[2][7];
  for (int way = 0; way < 2; way++) {
    for (int i = 0; i < 7; i++) found[way][i] = numbers(sizes[i], 1);
    Gradients d = {NULL, ends[2], ends[3], NULL, found[way][0], found[way][1], found[way][2], found[way][3],
                   found[way][4], found[way][5], found[way][6]};
    l.tape = tape, l.h = NULL;
    if (way ? glstm_sparse_forward(&l, schedule) : glstm_dense_forward(&l)) return 1;
    if (way ? glstm_sparse_backward(&l, &d, schedule) : glstm_dense_backward(&l, &d)) return 1;
  }
  for (int i = 0; i < 7; i++) wrong += worst_is_over("backward", difference(found[1][i], found[0][i], sizes[i]), 1e-4);
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
  for (int way = 0; way < 2; way++)
    for (int i = 0; i < 7; i++) free(found[way][i]);
  for (int i = 0; i < 4; i++) free(ends[i]);
  free(x), free(w_ih), free(w_hh), free(b), free(k), free(h0), free(c0), free(all_h), free(tape), free(h), free(c);
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
  int wrong = 0, sizes[][4] = {{1, 1, 1, 1}, {7, 1, 1, 5}, {9, 3, 2, 17}, {12, 5, 3, 4}, {6, 19, 1, 33}};
  double openness[] = {0, 0.1, 0.4, 1.1};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (size_t o = 0; o < sizeof openness / sizeof *openness; o++)
      wrong += check(sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3], openness[o]);
  wrong += subnormals_are_gone();
  puts(wrong ? "the engine is wrong" : "the engine is right");
  return wrong != 0;
}
