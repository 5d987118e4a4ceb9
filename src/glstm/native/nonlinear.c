/* The nonlinear functions by themselves, for tests of their accuracy. */
#include "kernels.h"

int NAME(sigmoid_tanh)(const float *x, float *s, float *t, int n) {
  for (int i = 0; i + VL <= n; i += VL) store(s + i, sigmoid(load(x + i))), store(t + i, tanh_(load(x + i)));
  return n / VL * VL;
}

/* The same as the dense path computes them, several at once, from what it sums: 1 / (2^x + 1) and tanh of x / 2. */
int NAME(by_powers)(const float *x, float *s, float *t, int n) {
  const int natural[2] = {0, 1};
  for (int i = 0; i + VL <= n; i += VL) {
    vf v = load(x + i), a[2] = {before_logistic(v), before_tanh(v)}, e[2];
    powers(2, natural, a, e);
    store(s + i, 1.0f / e[0]), store(t + i, after_tanh(e[1], v));
  }
  return n / VL * VL;
}
