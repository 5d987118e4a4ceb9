/* Vectors of VL floats, in whatever width the compiler was told to use: gcc's and clang's vector extension, so that one
   source serves AVX-512, AVX2, NEON and plain machines. Only the few things for which the extension has no word are
   asked for by a machine's own name, where that is worth it. */
#ifndef GLSTM_VECTOR_H
#define GLSTM_VECTOR_H

#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

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

/* pick: one lane of v, in all lanes. stream: store to a whole multiple of the vector's size what nobody reads soon, past
   the caches, so that the memory is not read first. */
#if VL == 16 && defined __AVX512F__
INLINE void stream(float *p, vf v) { _mm512_stream_ps(p, (__m512)v); }
INLINE vf vmin(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf pick(vf v, int lane) { return (vf)_mm512_permutexvar_ps(_mm512_set1_epi32(lane), (__m512)v); }
#elif VL == 8 && defined __AVX2__
INLINE void stream(float *p, vf v) { _mm256_stream_ps(p, (__m256)v); }
INLINE vf vmin(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf pick(vf v, int lane) { return (vf)_mm256_permutevar8x32_ps((__m256)v, _mm256_set1_epi32(lane)); }
#elif VL == 4 && defined __AVX__
INLINE void stream(float *p, vf v) { _mm_stream_ps(p, (__m128)v); }
INLINE vf vmin(vf a, vf b) { return (vf)_mm_min_ps((__m128)a, (__m128)b); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm_max_ps((__m128)a, (__m128)b); }
INLINE vf pick(vf v, int lane) { return (vf)_mm_permutevar_ps((__m128)v, _mm_set1_epi32(lane)); }
#else
INLINE void stream(float *p, vf v) { store(p, v); }
INLINE vf vmin(vf a, vf b) { return choose(a < b, a, b); }
INLINE vf vmax(vf a, vf b) { return choose(a > b, a, b); }
INLINE vf pick(vf v, int lane) { return splat(v[lane]); }
#endif

typedef float vf_half __attribute__((vector_size(2 * VL), may_alias));

/* Lanes are added in one fixed order: the same bits on every run. */
INLINE float sum_lanes(vf v) {
  float lanes[VL / 2];
  const vf_half *halves = (const vf_half *)&v;
  vf_half sum = halves[0] + halves[1];
  memcpy(lanes, &sum, sizeof lanes);
  for (int width = VL / 4; width > 0; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
}

/* For x in [-88.3, 88.3]: p and power with e^x = power (1 + p), to about one unit in the last place.
   x = n ln 2 + r with |r| <= ln 2 / 2; p = e^r - 1 by a polynomial, power = 2^n. For n = 0, where e^x - 1 would cancel,
   p is e^x - 1 itself. A single sequence waits for this chain twice a step, so it is kept short: the polynomial is
   summed in pairs, and where products and sums are fused, the last bits of r come in only at its end. */
INLINE vf expm1_reduced(vf x, vf *power) {
  const vf magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
  vf t = x * 1.44269504088896341f + magic;
  vf n = t - magic;
#if defined __FMA__ || defined __ARM_FEATURE_FMA
  vf nearly = x - n * 0.693147182464599609375f, r = nearly + n * 1.904654299957767e-9f;
#else
  vf nearly = x - n * 0.693359375f; /* ln 2 in two parts, the first short enough for an exact product */
  nearly = nearly + n * 2.12194440e-4f;
  vf r = nearly;
#endif
  vf square = nearly * nearly;
  vf high = (1.9875691500e-4f * nearly + 1.3981999507e-3f) * square + (8.3334519073e-3f * nearly + 4.1665795894e-2f);
  vf low = 1.6666665459e-1f * nearly + 5.0000001201e-1f;
  *power = (vf)(((vi)t - (vi)magic + 127) << 23);
  return (high * square + low) * square + r;
}

INLINE vf sigmoid(vf x) {
  vf power;
  vf z = vmin(vmax(-x, splat(-88.3f)), splat(88.3f)); /* beyond, the result is 1 or less than the smallest normal */
  vf p = expm1_reduced(z, &power);
  return 1.0f / (power * p + (power + 1.0f));
}

/* tanh x = above / below, undivided: who waits for the quotient can multiply what he has first. Of |x|, with the sign
   put back, for the quotient's error is smallest for large positive x; the error of e is in both, and cancels there. */
typedef struct {
  vf above, below;
} Quotient;

INLINE Quotient tanh_parts(vf x) {
  vf power;
  vi sign = (vi)x & (vi)splat(-0.0f);
  vf z = (vf)((vi)x ^ sign);
  z = vmin(z + z, splat(30.0f));
  vf p = expm1_reduced(z, &power);
  vf e = power * p + (power - 1.0f);
  return (Quotient){(vf)((vi)e ^ sign), e + 2.0f};
}

INLINE vf tanh_(vf x) {
  Quotient t = tanh_parts(x);
  return t.above / t.below;
}

#endif
