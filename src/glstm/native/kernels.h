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

/* Rows of a tile whose sums, four vectors each, are in registers during a product, with one number per row and one
   vector of weights. There are 32 registers with AVX-512 and on ARM, else 16; without fused products one more is used. */
#if defined __AVX512F__ || defined __aarch64__
#define ROWS 6
#elif defined __FMA__
#define ROWS 3
#else
#define ROWS 2
#endif
#define LINE 16 /* floats in a line of the cache */

/* Memory that will be needed soon, and is brought into the cache meanwhile, line by line. */
typedef struct {
  const float *at, *end;
} Ahead;

INLINE void fetch(Ahead *ahead) {
  if (ahead->at < ahead->end) __builtin_prefetch(ahead->at, 0, 2), ahead->at += LINE;
}

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
