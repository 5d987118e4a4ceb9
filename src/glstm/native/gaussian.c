/* A table of openness where it is not 0, and the gradients of mu and sigma from a table's. */
#include "engine.h"
#include "gaussian.h"
#include "kernels.h"

/* The first step at or after a moment. Times rise, or fall where a sequence is read from its end: `sign` is -1 then. */
static int place(const double *times, int steps, double moment, int sign) {
  int low = 0, high = steps;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (sign * times[middle] < moment) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* e^-(d^2), and 0 where that is not a normal number. */
INLINE vf bell(vf distance) {
  vf z = distance * distance, x = clamp(-z, -87.0f, 0.0f);
  Exponential e = exponential(x, x * 1.44269504088896341f);
  return choose(z > 86.99f, splat(0), e.power * (e.r2 * e.q + e.r) + e.power);
}

size_t NAME(gaussian_space)(int steps) { return (size_t)steps + VL; }

/* k (T, H), 0 where it is not above the threshold. `reach`: how many widths from mu k may be above it. Returns how many
   numbers are not 0. */
int64_t NAME(gaussian_table)(const Gaussian *gate, float threshold, double reach, int T, int H, float *k, float *space) {
  int sign = T && gate->times[0] > gate->times[T - 1] ? -1 : 1;
  int64_t open = 0;
  memset(k, 0, sizeof(float) * T * H);
  for (int j = 0; j < H; j++) {
    float mu = gate->mu[j], width = width_of(gate->sigma[j]);
    double radius = 1.00001 * reach * width, low = sign * (double)mu - radius, high = sign * (double)mu + radius;
    int known = low <= high; /* not so where a value is not a number: then k is not a number at any step */
    int first = known ? place(gate->times, T, low, sign) : 0, end = known ? place(gate->times, T, high, sign) : T;
    for (int t = end; t < T && sign * gate->times[t] <= high; t++) end = t + 1;
    for (int t = first; t < end; t++) space[t - first] = (float)(gate->times[t] - mu);
    for (int t = 0; t < end - first; t += VL) store(space + t, bell(load(space + t) / width));
    for (int t = first; t < end; t++) {
      float value = space[t - first] <= threshold ? 0 : space[t - first];
      k[(size_t)t * H + j] = value, open += !is_shut(value);
    }
  }
  return open;
}

/* From k and dk (T, H). `space`: 4H, zeros. */
void NAME(gaussian_slopes)(const Gaussian *gate, const float *k, const float *dk, int T, int H, float *space) {
  enum { TOGETHER = 64 }; /* steps: sums of sums have a smaller rounding error */
  float *restrict sum = space, *restrict squared = space + H, *restrict total = space + 2 * H;
  for (int first = 0; first < T; first += TOGETHER) {
    for (int t = first; t < T && t < first + TOGETHER; t++)
      for (int j = 0; j < H; j++) {
        float distance = (float)(gate->times[t] - gate->mu[j]) / width_of(gate->sigma[j]);
        float open = k[(size_t)t * H + j], by = open != 0 ? dk[(size_t)t * H + j] * open * distance : 0;
        sum[j] += by, squared[j] += by * distance;
      }
    for (int n = 0; n < 2 * H; n++) total[n] += sum[n], sum[n] = 0;
  }
  for (int j = 0; j < H; j++) finish_slopes(gate->sigma[j], total[j], total[H + j], gate->d_mu + j, gate->d_sigma + j);
}
