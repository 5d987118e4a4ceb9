/* Vectors of VL floats, in the width that the compiler was told to use: gcc's and clang's vector extension, so that
   one source serves AVX-512, AVX2, NEON and plain machines. Intrinsics of one machine are used only for the few
   operations that the extension does not have. */
#ifndef GLSTM_VECTOR_H
#define GLSTM_VECTOR_H

#include <stdint.h>
#include <string.h>
#ifdef __SSE__
#include <immintrin.h>
#endif

#ifndef VL
#define VL 4
#endif

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
/* The same at any address: numpy and torch guarantee only the alignment of a float. */
typedef float vf_anywhere __attribute__((vector_size(4 * VL), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vf load(const float *p) { return *(const vf_anywhere *)p; }
INLINE void store(float *p, vf v) { *(vf_anywhere *)p = v; }
INLINE vf splat(float x) { return x - (vf){0}; }

/* mask lanes are all ones or all zeros, as comparisons return them */
INLINE vf choose(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }

/* pick: one lane of v, in all lanes. store_nontemporal: a store that bypasses the caches, for data that is not read
   soon; the address is a multiple of the vector's size. The memory is then not read before it is written. This is for
   vectors as wide as a line of the cache; half a line would be written twice. */
#ifdef __SSE__
INLINE void end_nontemporal(void) { _mm_sfence(); } /* before another thread may read the data */
#else
INLINE void end_nontemporal(void) {}
#endif
#if VL == 16 && defined __AVX512F__
INLINE void store_nontemporal(float *p, vf v) { _mm512_stream_ps(p, (__m512)v); }
INLINE vf vmin(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf pick(vf v, int lane) { return (vf)_mm512_permutexvar_ps(_mm512_set1_epi32(lane), (__m512)v); }
#elif VL == 8 && defined __AVX2__
INLINE void store_nontemporal(float *p, vf v) { store(p, v); }
INLINE vf vmin(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf pick(vf v, int lane) { return (vf)_mm256_permutevar8x32_ps((__m256)v, _mm256_set1_epi32(lane)); }
#elif VL == 4 && defined __AVX__
INLINE void store_nontemporal(float *p, vf v) { store(p, v); }
INLINE vf vmin(vf a, vf b) { return (vf)_mm_min_ps((__m128)a, (__m128)b); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm_max_ps((__m128)a, (__m128)b); }
INLINE vf pick(vf v, int lane) { return (vf)_mm_permutevar_ps((__m128)v, _mm_set1_epi32(lane)); }
#else
INLINE void store_nontemporal(float *p, vf v) { store(p, v); }
INLINE vf vmin(vf a, vf b) { return choose(a < b, a, b); }
INLINE vf vmax(vf a, vf b) { return choose(a > b, a, b); }
INLINE vf pick(vf v, int lane) { return splat(v[lane]); }
#endif

/* permute: lane n of the result is lane lanes[n] of v. */
#if VL == 16 && defined __AVX512F__
INLINE vf permute(vf v, vi lanes) { return (vf)_mm512_permutexvar_ps((__m512i)lanes, (__m512)v); }
#elif VL == 8 && defined __AVX2__
INLINE vf permute(vf v, vi lanes) { return (vf)_mm256_permutevar8x32_ps((__m256)v, (__m256i)lanes); }
#else
INLINE vf permute(vf v, vi lanes) {
  vf result;
  for (int n = 0; n < VL; n++) result[n] = v[lanes[n]];
  return result;
}
#endif

/* Each two rows that are `distance` apart exchange the lanes that would be in the other one if the square of VL rows
   were transposed; for distances 1, 2, 4, ... one after the other, it is. */
INLINE void exchange(vf rows[VL], int distance) {
  const int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  vi lane;
  memcpy(&lane, numbers, sizeof lane);
  vi other = lane ^ distance, upper = (lane & distance) != 0;
  for (int n = 0; n < VL; n++)
    if (!(n & distance)) {
      vf a = rows[n], b = rows[n + distance];
      rows[n] = choose(upper, permute(b, other), a);
      rows[n + distance] = choose(upper, b, permute(a, other));
    }
}

INLINE void transpose(vf rows[VL]) {
  exchange(rows, 1);
  exchange(rows, 2);
  if (VL > 4) exchange(rows, 4);
  if (VL > 8) exchange(rows, 8);
}

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

/* The parts of e^x = power (1 + r + r2 q), for x in [-88.3, 88.3]: x = n ln 2 + r with |r| <= ln 2 / 2, power = 2^n,
   and q by a polynomial. In parts, so that e^x - 1 and e^x + 1 add their 1 where the rounding error is smallest.
   `x_log2e` is x / ln 2. The chain of dependent operations is short: the polynomial is summed in pairs, and where
   products and sums are fused, the last bits of r are added late. */
typedef struct {
  vf power, r, r2, q;
} Exponential;

INLINE Exponential exponential(vf x, vf x_log2e) {
  const vf magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
  vf t = x_log2e + magic;
  vf n = t - magic;
#if defined __FMA__ || defined __ARM_FEATURE_FMA
  vf nearly = x - n * 0.693147182464599609375f, r = nearly + n * 1.904654299957767e-9f;
#else
  vf nearly = x - n * 0.693359375f; /* ln 2 in two parts, the first short enough for an exact product */
  nearly = nearly + n * 2.12194440e-4f;
  vf r = nearly;
#endif
  vf power = (vf)(((vi)t - (vi)magic + 127) << 23);
  vf square = nearly * nearly;
  vf high = (1.9875691500e-4f * nearly + 1.3981999507e-3f) * square + (8.3334519073e-3f * nearly + 4.1665795894e-2f);
  vf q = high * square + (1.6666665459e-1f * nearly + 5.0000001201e-1f);
  return (Exponential){power, r, square, q};
}

/* A NaN stays a NaN: min and max return their second argument if one of the two is NaN. */
INLINE vf clamp(vf x, float low, float high) { return vmin(splat(high), vmax(splat(low), x)); }

INLINE vf sigmoid(vf x) {
  vf z = clamp(x, -88.3f, 88.3f); /* beyond, the result is 1 or less than the smallest normal */
  Exponential e = exponential(-z, z * -1.44269504088896341f);
  return 1.0f / (e.power * (e.r2 * e.q + e.r) + (e.power + 1.0f));
}

/* tanh x = above / below, not divided yet: the caller can multiply first and divide once. Computed for |x|, with the
   sign restored at the end, because the quotient's error is smallest for large positive x: there the error of e is in
   both parts and cancels. */
typedef struct {
  vf above, below;
} Quotient;

INLINE Quotient tanh_parts(vf x) {
  vi sign = (vi)x & (vi)splat(-0.0f);
  vf z = vmin(splat(15.0f), (vf)((vi)x ^ sign));
  Exponential p = exponential(z + z, z * 2.88539008177792681f);
  vf e = (p.power * p.r2) * p.q + (p.power * p.r + (p.power - 1.0f));
  return (Quotient){(vf)((vi)e ^ sign), e + 2.0f};
}

INLINE vf tanh_(vf x) {
  Quotient t = tanh_parts(x);
  return t.above / t.below;
}

/* For `count` vectors, 2^a + 1, or e^a - 1 where `natural`, which loses nothing if a is small. The vectors take turns,
   operation by operation: they do not depend on each other, and a processor looks only a few dozen operations ahead.
   The reduction is as in `exponential`; for 2^a it is exact, for e^a its error is in the last bits of large results.
   2^r = 1 + r p has a relative error of 3e-9. */
enum { TOGETHER = 5 };

INLINE void powers(int count, const int *natural, const vf *a, vf *sum) {
  const vf magic = splat(12582912.0f);
  vf t[TOGETHER], n[TOGETHER], r[TOGETHER], power[TOGETHER], square[TOGETHER], p[TOGETHER], low[TOGETHER];
  for (int i = 0; i < count; i++) t[i] = natural[i] ? a[i] * 1.44269504088896341f + magic : a[i] + magic;
  for (int i = 0; i < count; i++) n[i] = t[i] - magic;
  for (int i = 0; i < count; i++) r[i] = natural[i] ? a[i] - n[i] * 0.693147182464599609375f : a[i] - n[i];
  for (int i = 0; i < count; i++) power[i] = (vf)(((vi)t[i] - (vi)magic + 127) << 23);
  for (int i = 0; i < count; i++) square[i] = r[i] * r[i];
  for (int i = 0; i < count; i++)
    p[i] = natural[i] ? 1.9875691500e-4f * r[i] + 1.3981999507e-3f : 1.53264729e-4f * r[i] + 1.33908063e-3f;
  for (int i = 0; i < count; i++)
    low[i] = natural[i] ? 8.3334519073e-3f * r[i] + 4.1665795894e-2f : 9.61850584e-3f * r[i] + 5.55035993e-2f;
  for (int i = 0; i < count; i++) p[i] = p[i] * square[i] + low[i];
  for (int i = 0; i < count; i++)
    low[i] = natural[i] ? 1.6666665459e-1f * r[i] + 5.0000001201e-1f : 2.40226477e-1f * r[i] + 6.93147182e-1f;
  for (int i = 0; i < count; i++) p[i] = p[i] * square[i] + low[i];
  for (int i = 0; i < count; i++)
    sum[i] = natural[i] ? (power[i] * square[i]) * p[i] + (power[i] * r[i] + (power[i] - 1.0f))
                        : (power[i] * r[i]) * p[i] + (power[i] + 1.0f);
}

/* The logistic function of x is 1 / (2^a + 1) with a = -x log2 e, and tanh x is (e^a - 1) / (e^a + 1) with a = 2 x, for
   |x|, as in tanh_parts. Before: what `powers` takes. After: the quotient of what it returns; the sign may come from x or
   from any positive multiple of it. */
INLINE vf sign_of(vf x) { return (vf)((vi)x & (vi)splat(-0.0f)); }
INLINE vf with_sign(vf x, vf sign) { return (vf)((vi)x ^ (vi)sign); }
INLINE vf before_logistic(vf a) { return clamp(a, -127.4f, 127.4f); }
INLINE vf before_tanh(vf a) { return vmin(splat(30.0f), with_sign(a, sign_of(a))); }
INLINE vf after_tanh(vf e_minus_1, vf x) { return with_sign(e_minus_1, sign_of(x)) / (e_minus_1 + 2.0f); }

/* The same functions with a shorter delay, for a single sequence, which waits for their result: a quotient of
   polynomials is ready after half as many cycles. It is fitted to tanh on [-9, 9] with a relative error of 2e-8; in
   float32 the error is 4e-7. The sigmoid made from it has an absolute error of that size, not a relative one, which is
   enough where errors do not add up over the steps. */
INLINE vf polynomial(vf y, vf y2, float c1, float c2, float c3, float c4) {
  return ((c3 * y + c2) + c4 * y2) * y2 + (c1 * y + 1.0f);
}

INLINE Quotient fast_tanh(vf x) {
  vf z = clamp(x, -9.0f, 9.0f), y = z * z, y2 = y * y;
  vf above = z * polynomial(y, y2, 1.3381039e-1f, 3.4956033e-3f, 2.0609303e-5f, 1.3354914e-8f);
  return (Quotient){above, polynomial(y, y2, 4.6714354e-1f, 2.5877042e-2f, 3.2856586e-4f, 7.776673e-7f)};
}

INLINE Quotient fast_sigmoid(vf half_x) {
  Quotient t = fast_tanh(half_x);
  return (Quotient){t.below + t.above, t.below + t.below};
}

/* The sigmoid of 16 w, for i and f, whose errors do add up over the steps. c is multiplied by f at every step, so f
   must not exceed 1, and 1 - f and i must have a small relative error where they are small. With x = 16 w, e^(x/8) = n
   / m is a quotient of the same polynomial in w and in -w, fitted for |x| <= 20; its eighth power is e^x. The relative
   error is 7e-6 where the result is small; elsewhere the absolute error is 3e-7. */
INLINE Quotient fast_sigmoid_i_f(vf w) {
  vf z = clamp(w, -1.25f, 1.25f), y = z * z;
  vf odd = z * ((1.018829e-3f * y + 1.1049804e-1f) * y + 1.0f), even = (1.5629537e-2f * y + 4.4383132e-1f) * y + 1.0f;
  vf n = even + odd, m = even - odd;
  n = n * n, m = m * m;
  n = n * n, m = m * m;
  n = n * n, m = m * m;
  return (Quotient){n, n + m};
}

#endif
