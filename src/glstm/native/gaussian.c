/* A Gaussian gate's table of openness, made only where it may differ from 0; and the gradients of mu and sigma from a
   table's. Exponentials are left to torch, so that a table has the same bits whoever makes it: with its own, a unit could
   open one step earlier in training than in evaluation. */
#include "gaussian.h"

#include <stdlib.h>

#include "flush.h"

/* A moment as the gate gets it: in 64 bits where times have so many, else in 32. */
typedef struct {
  const float *narrow;
  const double *wide; /* or NULL */
} Moments;

static Moments moments_of(const Gaussian *gate) {
  if (gate->wide) return (Moments){NULL, gate->times};
  return (Moments){gate->times, NULL};
}

static double moment(Moments m, int t) { return m.wide ? m.wide[t] : m.narrow[t]; }

/* The first step at or after a moment. Times rise, or fall where a sequence is read from its end: `sign` is -1 then. */
static int place(Moments m, int steps, double at, int sign) {
  int low = 0, high = steps;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (sign * moment(m, middle) < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* The exponents -((t - mu) / sigma)^2 of every unit, one unit after the other, in `exponents`, floats or doubles; of the
   steps from ranges[2 j] to ranges[2 j + 1], at which t is at most `reach` widths from mu. None is below `least`: torch
   takes far longer for exponentials that are not normal numbers. Returns how many there are. */
int64_t glstm_gaussian_exponents(const Gaussian *gate, double reach, double least, int32_t T, int32_t H, int32_t *ranges,
                                 void *exponents) {
  Moments m = moments_of(gate);
  float near_least = (float)least;
  int sign = T && moment(m, 0) > moment(m, T - 1) ? -1 : 1;
  int64_t count = 0;
  for (int j = 0; j < H; j++) {
    double mu = gate->mu[j], width = width_of(gate->sigma[j]), radius = 1.00001 * reach * width;
    int first = 0, end = T; /* all, where a value is not a number: then no k is */
    if (sign * mu - radius <= sign * mu + radius) {
      first = place(m, T, sign * mu - radius, sign), end = place(m, T, sign * mu + radius, sign);
      while (end < T && sign * moment(m, end) <= sign * mu + radius) end++;
    }
    ranges[2 * j] = first, ranges[2 * j + 1] = end;
    if (m.wide) {
      double *to = (double *)exponents + count, exact_width = exact_width_of(gate->sigma[j]);
      for (int t = first; t < end; t++) {
        double distance = (m.wide[t] - mu) / exact_width, exponent = -(distance * distance);
        to[t - first] = exponent < least ? least : exponent;
      }
    } else {
      float *to = (float *)exponents + count, near_mu = gate->mu[j], near_width = width_of(gate->sigma[j]);
      for (int t = first; t < end; t++) {
        float distance = (m.narrow[t] - near_mu) / near_width, exponent = -(distance * distance);
        to[t - first] = exponent < near_least ? near_least : exponent;
      }
    }
    count += end - first;
  }
  return count;
}

/* k (T, H) from the exponentials of these exponents: 0 where one is not above `limit`. Subnormal numbers are what they
   are for the caller, as in a table that torch makes. */
void glstm_gaussian_table(const Gaussian *gate, const int32_t *ranges, const void *exponentials, double limit, int32_t T,
                          int32_t H, float *k) {
  const float *narrow = exponentials, near_limit = (float)limit;
  const double *wide = exponentials;
  memset(k, 0, sizeof(float) * T * H);
  for (int j = 0; j < H; j++)
    for (int t = ranges[2 * j]; t < ranges[2 * j + 1]; t++) {
      float *to = k + (size_t)t * H + j;
      if (gate->wide) *to = *wide <= limit ? 0 : (float)*wide, wide++;
      else *to = *narrow <= near_limit ? 0 : *narrow, narrow++;
    }
}

/* Adds to d_mu and d_sigma what follows from k and dk (T, H). Returns 0 on success, 1 when memory is short. */
int glstm_gaussian_slopes(const Gaussian *gate, const float *k, const float *dk, int32_t T, int32_t H) {
  enum { TOGETHER = 64 }; /* steps: sums of sums have a smaller rounding error */
  Moments m = moments_of(gate);
  float *sums = calloc(4 * (size_t)H + 1, sizeof(float)), *squares = sums + H, *totals = sums + 2 * H;
  if (!sums) return 1;
  FloatState before = flush_subnormals();
  for (int t = 0; t < T; t++) {
    for (int j = 0; j < H; j++) {
      float open = k[(size_t)t * H + j];
      if (is_shut(open)) continue;
      float distance = (float)(moment(m, t) - gate->mu[j]) / width_of(gate->sigma[j]);
      float by = dk[(size_t)t * H + j] * open * distance;
      sums[j] += by, squares[j] += by * distance;
    }
    for (int n = 0; ((t + 1) % TOGETHER == 0 || t + 1 == T) && n < 2 * H; n++) totals[n] += sums[n], sums[n] = 0;
  }
  for (int j = 0; j < H; j++) finish_slopes(gate, j, totals[j], totals[H + j]);
  set_float_state(before);
  free(sums);
  return 0;
}
