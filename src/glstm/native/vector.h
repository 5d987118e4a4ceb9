/* Vectors of VL floats, in whatever width the compiler was told to use: gcc's and clang's vector extension, no
   intrinsics, so that one source serves AVX-512, AVX2, NEON and plain machines. */
#ifndef GLSTM_VECTOR_H
#define GLSTM_VECTOR_H

#include <stdint.h>
#include <string.h>

#ifndef VL
#define VL 4
#endif

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
/* The same at any address: numpy and torch promise no more than the alignment of a float. */
typedef float vf_anywhere __attribute__((vector_size(4 * VL), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vf load(const float *p) { return *(const vf_anywhere *)p; }
INLINE void store(float *p, vf v) { *(vf_anywhere *)p = v; }
INLINE vf splat(float x) { return x - (vf){0}; }

/* mask lanes are all ones or all zeros, as comparisons make them */
INLINE vf choose(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }
INLINE vf vmin(vf a, vf b) { return choose(a < b, a, b); }
INLINE vf vmax(vf a, vf b) { return choose(a > b, a, b); }

/* Lanes are added in one fixed order: the same bits on every run. */
INLINE float sum_lanes(vf v) {
  float lanes[VL];
  memcpy(lanes, &v, sizeof lanes);
  for (int width = VL / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
}

/* e^x - 1, for x in [-88.3, 88.3], to about one unit in the last place.
   x = n ln 2 + r with |r| <= ln 2 / 2; p = e^r - 1 by a polynomial; the result is 2^n p + (2^n - 1), which
   for n = 0 is p itself: nothing cancels near 0. */
INLINE vf expm1_reduced(vf x, vf *power) {
  const vf magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
  vf t = x * 1.44269504088896341f + magic;
  vf n = t - magic;
  vf r = x - n * 0.693359375f; /* ln 2 in two parts, the first short enough for an exact product */
  r = r + n * 2.12194440e-4f;
  /* Pairs first: a single sequence waits for this chain at every step, and so it is half as long. */
  vf r2 = r * r;
  vf high = (1.9875691500e-4f * r + 1.3981999507e-3f) * r2 + (8.3334519073e-3f * r + 4.1665795894e-2f);
  vf low = 1.6666665459e-1f * r + 5.0000001201e-1f;
  vf p = (high * r2 + low) * r2 + r;
  vi exponent = ((vi)t - (vi)magic + 127) << 23;
  *power = (vf)exponent;
  return p;
}

INLINE vf sigmoid(vf x) {
  vf power;
  vf z = vmin(vmax(-x, splat(-88.3f)), splat(88.3f)); /* beyond, the result is 1 or less than the smallest normal */
  vf p = expm1_reduced(z, &power);
  return 1.0f / ((power * p + power) + 1.0f);
}

/* Of |x|, with the sign put back: the quotient's error is smallest for large positive x. */
INLINE vf tanh_(vf x) {
  vf power;
  vi sign = (vi)x & (vi)splat(-0.0f);
  vf z = (vf)((vi)x ^ sign);
  z = vmin(z + z, splat(30.0f));
  vf p = expm1_reduced(z, &power);
  vf e = power * p + (power - 1.0f);
  return (vf)((vi)(e / (e + 2.0f)) | sign);
}

#endif
