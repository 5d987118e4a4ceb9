/* The nonlinear functions by themselves, for tests of their accuracy. */
#include "kernels.h"

int NAME(sigmoid_tanh)(const float *x, float *s, float *t, int n) {
  for (int i = 0; i + VL <= n; i += VL) store(s + i, sigmoid(load(x + i))), store(t + i, tanh_(load(x + i)));
  return n / VL * VL;
}
