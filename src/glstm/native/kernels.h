/* Names and small helpers shared by the kernels. Each kernel is compiled once for every kind of machine. */
#ifndef GLSTM_KERNELS_H
#define GLSTM_KERNELS_H

#include <stddef.h>

#include "flush.h"
#include "vector.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#ifndef MACHINE
#define MACHINE _plain
#endif
#define NAME(name) JOIN(glstm_##name, MACHINE)

/* A number of units, or of samples, rounded up to whole vectors. */
static inline int padded(int n) { return (n + VL - 1) / VL * VL; }

static inline int any_open(const float *k, int hidden) {
  for (int j = 0; j < hidden; j++)
    if (!is_shut(k[j])) return 1;
  return 0;
}

/* is_shut for a vector: ones where k is 0, and not where it is subnormal. */
INLINE vi shut(vf k) { return ((vi)k & 0x7fffffff) == 0; }

/* k new + (1 - k) old: exact for k = 1, and for k = 0 the old value bit for bit. */
INLINE vf mix(vf k, vf new_, vf old) { return choose(shut(k), old, k * new_ + (1.0f - k) * old); }

#endif
