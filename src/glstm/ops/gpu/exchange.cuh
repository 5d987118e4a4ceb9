// For layers too large for a cluster: blocks of UNITS units each, all running at the same time, each on a multiprocessor
// of its own, which send each other what a step makes through the cache that all share.
//
// Constants, besides cell.cuh's: H units, UNITS of a block (8 or 16), WARPS, K_PER_SAMPLE.
//
// A product's rows are 16 samples: what all blocks sent. Its columns are units of this block, whose weights stay in
// registers. It is summed over all units, in chunks of 32, which the warps share.

#define BLOCKS ((H + UNITS - 1) / UNITS)
#define EIGHTS (BLOCKS * UNITS / 8)          // of units: a message has eight numbers of one sample
#define CHUNKS ((EIGHTS + 3) / 4)            // of four eights
#define OWN ((CHUNKS + WARPS - 1) / WARPS)   // chunks of a warp
#define WINDOW (OWN < 2 ? OWN : 2)           // chunks of a warp that are on their way at once
#define SUBS (UNITS / 8)                     // products side by side: eight columns each
#define THREADS (WARPS * 32)
#define ROWS 16
#define CELLS ((ROWS * UNITS + THREADS - 1) / THREADS) // of a thread, in a tile of samples
#define COPIES (1 + EXACT)                   // of a message: in EXACT mode a second one has what the first rounds off

// Which message is which: two places for each, which alternate, and a tag in the last bit of its first number, which
// changes every second time. A block that waits reads a message until it has the tag: no flag, no order of writes to
// rely on. Message n + 2 replaces message n only when all blocks have read it: its sender has received everybody's
// message n + 1, and nobody sends that before all its warps have read message n. The memory is zero before the first.
__device__ __forceinline__ u32 tag_of(int n) { return ~(n >> 1) & 1; }
__device__ __forceinline__ bool is_late(uint4 v, u32 tag) { return (v.x & 1) != tag; }
// A number and what it rounds off, in 16 bits; the first of eight has the tag.
__device__ __forceinline__ void round_for_message(u16 rounded[2], float v, bool first, u32 tag) {
  u32 all = pack_half(v, 0);
  all = first ? (all & 0xfffe) | tag : all;
  rounded[0] = (u16)all;
  if (EXACT) {
    const u32 rest = pack_rest(v, 0, all);
    rounded[1] = (u16)(first ? (rest & 0xfffe) | tag : rest);
  }
}

struct Where {
  int warp, lane, row, quarter, model, first_sample, B;
  // The messages of two samples that this thread reads for products, `row` and `row + 8` of the tile. A sample that is
  // not there stands for nobody: the last one's messages are read instead, and nothing is done with the result.
  __device__ __forceinline__ i64 sample_row(int tile, int half) const {
    const int sample = first_sample + tile * ROWS + row + half * 8;
    return (i64)model * B + (sample < B ? sample : B - 1);
  }
  __device__ __forceinline__ int chunk(int n) const { return n * WARPS + warp; }
};
__device__ __forceinline__ Where my_place(int groups, int tiles, int first_model, int B) {
  const int lane = threadIdx.x & 31;
  return {(int)threadIdx.x >> 5, lane, lane >> 2, lane & 3, first_model + (int)blockIdx.y / groups,
          (int)blockIdx.y % groups * tiles * ROWS, B};
}
// Units past the last have no weight: the last eight's message is read instead.
__device__ __forceinline__ int eight_there(int eight) { return eight < EIGHTS ? eight : EIGHTS - 1; }

// One of a thread's cells in a tile; neighbours in a warp are eights of one sample. `cell` is its place in (M, B, H).
struct Cell {
  int number, row, own, unit, sample;
  i64 cell;
  bool there, real; // somebody computes it; it is no padding
};
__device__ __forceinline__ Cell cell_of(const Where &at, int tile, int n) {
  const int number = threadIdx.x + n * THREADS, row = number / UNITS, own = number % UNITS;
  const int unit = blockIdx.x * UNITS + own, sample = at.first_sample + tile * ROWS + row;
  const bool there = number < ROWS * UNITS;
  return {number, row, own, unit, sample, ((i64)at.model * at.B + sample) * H + unit, there, there && unit < H && sample < at.B};
}
__device__ __forceinline__ i64 openness_at(const Where &at, const Cell &my, int T, int t) {
  const i64 step = (i64)at.model * T + t;
  return (K_PER_SAMPLE ? step * at.B + my.sample : step) * H + my.unit;
}

// Sums of a product, [columns' eight][number of the thread's four][thread], with gaps: no two in one bank for those who
// write and for those who read.
template <int STRIDE> __device__ __forceinline__ int part_at(int sub, int n, int lane) { return (sub * 4 + n) * STRIDE + lane; }
template <int STRIDE> __device__ __forceinline__ int part_of(const Cell &my) {
  const int column = my.own & 7;
  return part_at<STRIDE>(my.own >> 3, (my.row >> 3) * 2 + (column & 1), (my.row & 7) * 4 + (column >> 1));
}

// Shared memory: what 16 bits round off the weights, then as many vectors as each kernel says.
extern __shared__ uint4 rest_of_weights[];
#define FRAGMENTS (OWN * 4 * SUBS)           // of weights, in a thread
#define RESTS (EXACT ? FRAGMENTS * THREADS : 0)
__device__ __forceinline__ uint4 *rest_at(int fragment) { return rest_of_weights + fragment * THREADS + threadIdx.x; }

// The right side of two products: a thread's eight weights along the sum, in one column.
template <typename Weight> __device__ __forceinline__ void load_eight(u32 r[4], uint4 *rest, Weight weight) {
  u32 rests[4];
#pragma unroll
  for (int n = 0; n < 4; n++) {
    const float low = weight(2 * n), high = weight(2 * n + 1);
    r[n] = pack_half(low, high);
    rests[n] = EXACT ? pack_rest(low, high, r[n]) : 0;
  }
  if (EXACT) *rest = make_uint4(rests[0], rests[1], rests[2], rests[3]);
}

// sums += left x right, over the 32 numbers of four threads' eights. left: of rows `row` and `row + 8`.
__device__ __forceinline__ void accumulate_eights(float sums[4], float rests[4], const uint4 left[2], const uint4 left_rest[2],
                                                  const u32 r[4], const uint4 *rest) {
  const u32 a[2][4] = {{left[0].x, left[1].x, left[0].y, left[1].y}, {left[0].z, left[1].z, left[0].w, left[1].w}};
#pragma unroll
  for (int n = 0; n < 2; n++) multiply(sums, a[n], r[2 * n], r[2 * n + 1]);
  if (EXACT) {
    const u32 b[2][4] = {{left_rest[0].x, left_rest[1].x, left_rest[0].y, left_rest[1].y},
                         {left_rest[0].z, left_rest[1].z, left_rest[0].w, left_rest[1].w}};
    const uint4 w = *rest;
    multiply(rests, a[0], w.x, w.y);
    multiply(rests, a[1], w.z, w.w);
#pragma unroll
    for (int n = 0; n < 2; n++) multiply(rests, b[n], r[2 * n], r[2 * n + 1]);
  }
}
