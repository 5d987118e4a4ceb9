// One gated LSTM layer over a whole sequence in one kernel, forward and backward: what both share.
//
// A block takes 8 samples of one model through all steps. The gates are computed transposed, R h^T, so that the samples
// are the 8 columns of a matrix instruction and the recurrent weights R stay in registers from the first step to the
// last: a warp owns 16 units, and a thread has all four gates of its cells (2 units x 2 samples) at hand. What goes round
// is h, in 16 bits, through a little shared memory.
//
// Constants, given when this is compiled: H units, D inputs (0: the input's share of the gates comes ready-made),
// LOGISTIC candidate, K_PER_SAMPLE, SEQUENCE (h of every step goes out, or its gradient comes in), TAPED (forward keeps
// what backward needs), EXACT (float32 throughout: every 16-bit number has a second one for what it rounds off).

typedef unsigned int u32;
typedef unsigned short u16;
typedef long long i64;

#define HP ((H + 15) / 16 * 16)
#define BLOCKS (HP / 16)             // of 16 units: as many warps, and as many products along the units
#define THREADS (BLOCKS * 32)
#define TILE 8                       // samples
#define H_STRIDE (HP + 8)            // 16-bit numbers in a row of shared memory: no two rows of a load in one bank
#define DA_STRIDE (4 * HP + 8)
#define ROW (HP + 16)                // of the weights' gradient's left side: h, x, 1, in whole sectors of memory
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

#if EXACT
__device__ __forceinline__ float sigmoid_(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ __forceinline__ float tanh_(float x) {
  float e = __expf(-2 * fabsf(x));
  return copysignf(__fdividef(1 - e, 1 + e), x);
}
#else
__device__ __forceinline__ float tanh_(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float sigmoid_(float x) { return fmaf(0.5f, tanh_(0.5f * x), 0.5f); }
#endif

__device__ __forceinline__ void multiply(float d[4], const u32 a[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// 16 columns of 8 rows: the right side of one product
__device__ __forceinline__ void load_2(u32 r[2], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address));
}
// 32 columns: of two
__device__ __forceinline__ void load_4(u32 r[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}

// A cell is a unit of a sample; a thread's four are (unit, sample) = (0, 0) (0, 1) (1, 0) (1, 1).
struct Place {
  int warp, lane, row, column, tile, model;
  __device__ __forceinline__ int unit(int cell) const { return warp * 16 + row + (cell & 2 ? 8 : 0); }
  __device__ __forceinline__ int sample(int cell) const { return tile * TILE + column * 2 + (cell & 1); }
};
__device__ __forceinline__ Place my_place() {
  int lane = threadIdx.x & 31;
  return {(int)threadIdx.x >> 5, lane, lane >> 2, lane & 3, (int)blockIdx.x, (int)blockIdx.y};
}

// The thread's cells into shared memory, where a row is a sample: two 8 x 8 matrices, transposed on the way.
__device__ __forceinline__ void share(u16 *table, int stride, const Place &at, u32 unit_0, u32 unit_1) {
#if __CUDA_ARCH__ >= 900
  int matrix = (at.lane >> 3) & 1, row = at.lane & 7;
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};"
               :: "r"(shared_address(table + row * stride + at.warp * 16 + matrix * 8)), "r"(unit_0), "r"(unit_1)
               : "memory");
#else
#pragma unroll
  for (int cell = 0; cell < 4; cell++)
    table[(at.column * 2 + (cell & 1)) * stride + at.unit(cell)] =
        (u16)((cell & 2 ? unit_1 : unit_0) >> (cell & 1 ? 16 : 0));
#endif
}
// In 16 bits, and in EXACT mode what they round off, into the table that follows.
__device__ __forceinline__ void share_cells(u16 *table, int rows, int stride, const Place &at, const float v[4]) {
  u32 unit_0 = pack_half(v[0], v[1]), unit_1 = pack_half(v[2], v[3]);
  share(table, stride, at, unit_0, unit_1);
  if (EXACT) share(table + rows * stride, stride, at, pack_rest(v[0], v[1], unit_0), pack_rest(v[2], v[3], unit_1));
}

// The left side of a product: 16 x 16 weights, a thread's part of them. `weight(row, column)` are zero outside.
template <typename Weight>
__device__ __forceinline__ void load_weights(u32 r[4], uint4 *rest, const Place &at, int first_row, int first_column, Weight weight) {
  float v[4][2];
#pragma unroll
  for (int part = 0; part < 4; part++)
#pragma unroll
    for (int n = 0; n < 2; n++)
      v[part][n] = weight(first_row + at.row + (part & 1) * 8, first_column + at.column * 2 + (part >> 1) * 8 + n);
#pragma unroll
  for (int part = 0; part < 4; part++) r[part] = pack_half(v[part][0], v[part][1]);
  if (EXACT)
    *rest = make_uint4(pack_rest(v[0][0], v[0][1], r[0]), pack_rest(v[1][0], v[1][1], r[1]),
                       pack_rest(v[2][0], v[2][1], r[2]), pack_rest(v[3][0], v[3][1], r[3]));
}

// Where the rest of the weights lies in EXACT mode: [warp][gate][block][lane], too much for the registers.
extern __shared__ uint4 rest_of_weights[];
__device__ __forceinline__ uint4 *rest_at(const Place &at, int gate, int block) {
  return rest_of_weights + (((at.warp * 4 + gate) * BLOCKS + block) * 32 + at.lane);
}

// sums += weights x right side; in EXACT mode the rests' products go to `rests`.
__device__ __forceinline__ void accumulate(float sums[4], float rests[4], const u32 r[4], const Place &at, int gate,
                                           int block, const u32 q[2], const u32 q_rest[2]) {
  multiply(sums, r, q[0], q[1]);
  if (EXACT) {
    uint4 w = *rest_at(at, gate, block);
    u32 rest[4] = {w.x, w.y, w.z, w.w};
    multiply(rests, rest, q[0], q[1]);
    multiply(rests, r, q_rest[0], q_rest[1]);
  }
}

// Eight 16-bit numbers, times a power of two, as bfloat16: numbers of any size, for the product that sums over all steps.
__device__ __forceinline__ uint4 as_bfloat(uint4 v, float scale) {
  return make_uint4(pack_bfloat(half_low(v.x) * scale, half_high(v.x) * scale), pack_bfloat(half_low(v.y) * scale, half_high(v.y) * scale),
                    pack_bfloat(half_low(v.z) * scale, half_high(v.z) * scale), pack_bfloat(half_low(v.w) * scale, half_high(v.w) * scale));
}
