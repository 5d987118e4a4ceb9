// 16-bit numbers and the matrix instructions that take them: 16 x 16 weights times 16 x 8 states, added to 16 x 8 sums.

#define TILE 8                       // samples: the columns of a product
#define REST 2048.0f                 // what 16 bits round off is scaled by this, to be a full number again

__device__ __forceinline__ u32 pack_half(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ u32 pack_bfloat(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ float half_low(u32 p) {
  float f;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(f) : "r"(p));
  return f;
}
__device__ __forceinline__ float half_high(u32 p) {
  float f;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(f) : "r"(p));
  return f;
}
// the rest of two numbers after rounding to 16 bits, scaled
__device__ __forceinline__ u32 pack_rest(float low, float high, u32 rounded) {
  return pack_half((low - half_low(rounded)) * REST, (high - half_high(rounded)) * REST);
}

__device__ __forceinline__ void multiply(float d[4], const u32 a[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Once, before the loop: the compiler would rather find it anew at every step.
__device__ __forceinline__ u32 shared_address(const void *p) {
  u32 address = (u32)__cvta_generic_to_shared(p), kept;
  asm volatile("mov.u32 %0, %1;" : "=r"(kept) : "r"(address));
  return kept;
}

// Loads for the next step that stay where they are written. The compiler would move them down to where there are free
// registers, behind the products, and the step would end by waiting for them.
__device__ __forceinline__ float load_early(const float *p) {
  float v;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}
// The same, if wanted; else v stays as it is. Not a branch, which would wait for the load where its ways meet.
__device__ __forceinline__ void load_early(float &v, const float *p, bool wanted) {
  asm volatile("{.reg .pred w;\n setp.ne.u32 w, %2, 0;\n @w ld.global.cs.f32 %0, [%1];}" : "+f"(v) : "l"(p), "r"((u32)wanted));
}
__device__ __forceinline__ void load_early(float2 &v, const float2 *p, bool wanted) {
  asm volatile("{.reg .pred w;\n setp.ne.u32 w, %3, 0;\n @w ld.global.cs.v2.f32 {%0,%1}, [%2];}"
               : "+f"(v.x), "+f"(v.y) : "l"(p), "r"((u32)wanted));
}
__device__ __forceinline__ void load_early(float4 &v, const float4 *p, bool wanted) {
  asm volatile("{.reg .pred w;\n setp.ne.u32 w, %5, 0;\n @w ld.global.cs.v4.f32 {%0,%1,%2,%3}, [%4];}"
               : "+f"(v.x), "+f"(v.y), "+f"(v.z), "+f"(v.w) : "l"(p), "r"((u32)wanted));
}

// 32 columns of 8 rows, the right side of two products; or 16, of one.
__device__ __forceinline__ void load_columns(u32 r[4], u32 address, bool two) {
  if (two)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address));
}

// Eight 16-bit numbers, times a power of two, as bfloat16: numbers of any size, for the product that sums over all steps.
__device__ __forceinline__ u32 as_bfloat(u32 two, u32 scale) {
  u32 r, rounded = pack_bfloat(half_low(two), half_high(two)), nothing = 0x80008000u; // -0: x * 1 + -0 is x
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(rounded), "r"(scale), "r"(nothing));
  return r;
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

// The last 16 numbers of a row of the weights' gradient's left side: one of two samples' inputs, 1 for the bias, zeros.
__device__ __forceinline__ void end_row(void *end_of_row, const float *x_0, const float *x_1, int which) {
  float end[8];
#pragma unroll
  for (int d = 0; d < 8; d++) end[d] = d < D ? (which ? x_1[d < D ? d : 0] : x_0[d < D ? d : 0]) : d == D;
  if (EXACT) {
    float4 *p = (float4 *)end_of_row;
    p[0] = make_float4(end[0], end[1], end[2], end[3]), p[1] = make_float4(end[4], end[5], end[6], end[7]);
    p[2] = p[3] = make_float4(0, 0, 0, 0);
  } else {
    uint4 *p = (uint4 *)end_of_row;
    p[0] = make_uint4(pack_bfloat(end[0], end[1]), pack_bfloat(end[2], end[3]), pack_bfloat(end[4], end[5]), pack_bfloat(end[6], end[7]));
    p[1] = make_uint4(0, 0, 0, 0);
  }
}
