// 16-bit numbers and the matrix instructions that take them: 16 x 16 weights times 16 x 8 states, added to 16 x 8 sums.

#define TILE 8                       // samples: the columns of a product
#define INFINITE 0x7f800000u         // as bits: those of finite numbers, without their sign, are less
#define REST 2048.0f                 // what 16 bits round off is scaled by this, to be a full number again

// the rest of two numbers after rounding to 16 bits, scaled
__device__ __forceinline__ u32 pack_rest(float low, float high, u32 rounded) {
  return pack_half((low - half_low(rounded)) * REST, (high - half_high(rounded)) * REST);
}

// Eight 16-bit numbers, times a power of two, as bfloat16: numbers of any size, for the product that sums over all steps.
__device__ __forceinline__ u32 as_bfloat(u32 two, u32 scale) {
  return multiply_bfloats(pack_bfloat(half_low(two), half_high(two)), scale);
}
__device__ __forceinline__ uint4 as_bfloat(uint4 v, float scale) {
  const u32 both = pack_bfloat(scale, scale);
  return make_uint4(as_bfloat(v.x, both), as_bfloat(v.y, both), as_bfloat(v.z, both), as_bfloat(v.w, both));
}

// The left side of a product: 16 x 16 weights, a thread's part of them, and in EXACT mode what they round off.
// `weight(row, column)` is zero outside.
template <typename Weight>
__device__ __forceinline__ void load_weights(u32 r[4], uint4 *rest, int first_row, int first_column, Weight weight) {
  const int row = (threadIdx.x & 31) >> 2, column = threadIdx.x & 3;
  float v[4][2];
#pragma unroll
  for (int part = 0; part < 4; part++)
#pragma unroll
    for (int n = 0; n < 2; n++)
      v[part][n] = weight(first_row + row + (part & 1) * 8, first_column + column * 2 + (part >> 1) * 8 + n);
#pragma unroll
  for (int part = 0; part < 4; part++) r[part] = pack_half(v[part][0], v[part][1]);
  if (EXACT)
    *rest = make_uint4(pack_rest(v[0][0], v[0][1], r[0]), pack_rest(v[1][0], v[1][1], r[1]),
                       pack_rest(v[2][0], v[2][1], r[2]), pack_rest(v[3][0], v[3][1], r[3]));
}

// sums += weights x right side; in EXACT mode the products with a rest go to `rests`.
__device__ __forceinline__ void accumulate(float sums[4], float rests[4], const u32 r[4], const uint4 *rest,
                                           const u32 q[2], const u32 q_rest[2]) {
  multiply(sums, r, q[0], q[1]);
  if (EXACT) {
    uint4 w = *rest;
    u32 of_weights[4] = {w.x, w.y, w.z, w.w};
    multiply(rests, of_weights, q[0], q[1]);
    multiply(rests, r, q_rest[0], q_rest[1]);
  }
}

// Powers of two that take the largest number to about 2^4, and back: 16 bits then hold 18 octaves below it in full.
__device__ __forceinline__ float scale_for(u32 largest_bits, float *back) {
  int e = (int)(largest_bits >> 23);
  e = e < 30 ? 30 : e > 220 ? 220 : e;
  *back = __int_as_float((e - 4) << 23);
  return __int_as_float((258 - e) << 23);
}
