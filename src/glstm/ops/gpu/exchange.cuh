// For layers too large for a cluster: blocks of UNITS units each, all running at the same time, each on a multiprocessor
// of its own, which send each other what a step makes through the cache that all share.
//
// Constants, besides cell.cuh's: H units, UNITS of a block (8 or 16), WARPS, K_PER_SAMPLE.
//
// A product's rows are 16 samples: what all blocks sent. Its columns are units of this block, whose weights stay in
// registers. It is summed over all units, in chunks of 32, which the warps share. A message has eight 16-bit numbers, of
// four units and two neighbouring samples: just as a thread of a matrix instruction takes them.

#define BLOCKS ((H + UNITS - 1) / UNITS)
#define EIGHTS (BLOCKS * UNITS / 8)          // of units
#define CHUNKS ((EIGHTS + 3) / 4)            // of four eights
#define OWN ((CHUNKS + WARPS - 1) / WARPS)   // chunks of a warp
#define WHOLE (EIGHTS == 4 * OWN * WARPS)    // no chunk of a warp is cut, or missing
#define SUBS (UNITS / 8)                     // of eight columns, of a block
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
struct Where {
  int warp, lane, row, quarter, model, first_sample, B, pairs, tiles; // pairs of samples of a model, tiles of this group
  // The two samples whose messages this thread reads for products: neighbours, the rows `row` and `row + 8`. Where there
  // are none the last ones' messages are read instead, and nothing is done with the result. Those are of the same tile:
  // nobody would wait for one who read another tile's.
  __device__ __forceinline__ i64 pair(int tile) const {
    const int pair = first_sample / 2 + tile * (ROWS / 2) + row;
    return (i64)model * pairs + (pair < pairs ? pair : pairs - 1);
  }
  __device__ __forceinline__ int chunk(int n) const { return n * WARPS + warp; }
};
__device__ __forceinline__ Where my_place(int groups, int tiles, int first_model, int B) {
  const int lane = threadIdx.x & 31, first = (int)blockIdx.y % groups * tiles * ROWS, left = (B - first + ROWS - 1) / ROWS;
  return {(int)threadIdx.x >> 5, lane, lane >> 2, lane & 3, first_model + (int)blockIdx.y / groups,
          first, B, (B + 1) / 2, min(tiles, left)};
}
// Units past the last have no weight: the last eight's messages are read instead.
__device__ __forceinline__ int eight_there(int eight) { return WHOLE || eight < EIGHTS ? eight : EIGHTS - 1; }

// One of a thread's cells in a tile; a warp has whole pairs of samples. `cell` is its place in (M, B, H).
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

// A cell's number goes into a message that its warp puts together in shared memory: the message's eight numbers are
// (unit 0 and 1 of the first sample), (of the second), (unit 2 and 3 of the first), (of the second).
__device__ __forceinline__ void stage(uint4 *messages, uint4 *rests, int message, const Cell &my, float v, u32 tag) {
  const int place = message * 8 + (my.own & 2) * 2 + (my.row & 1) * 2 + (my.own & 1);
  const bool first = (my.own & 3) == 0 && (my.row & 1) == 0;
  u32 rounded = pack_half(v, 0);
  rounded = first ? (rounded & 0xfffe) | tag : rounded;
  ((u16 *)messages)[place] = (u16)rounded;
  if (EXACT) {
    const u32 rest = pack_rest(v, 0, rounded);
    ((u16 *)rests)[place] = (u16)(first ? (rest & 0xfffe) | tag : rest);
  }
}

// Sums of a product, [columns' eight][number of the thread's four][thread], with gaps: no two in one bank for those who
// write and for those who read.
template <int STRIDE> __device__ __forceinline__ int part_at(int sub, int n, int lane) { return (sub * 4 + n) * STRIDE + lane; }
template <int STRIDE> __device__ __forceinline__ int part_of(const Cell &my) {
  return part_at<STRIDE>(my.own >> 3, (my.row & 1) * 2 + (my.own & 1), (my.row >> 1) * 4 + (my.own & 7) / 2);
}

// Shared memory: what 16 bits round off the weights, then as many vectors as each kernel says.
extern __shared__ uint4 rest_of_weights[];
#define PRODUCTS (4 * SUBS)                  // of a chunk
#define RESTS (EXACT ? OWN * PRODUCTS * THREADS : 0)
__device__ __forceinline__ uint4 *rest_at(int fragment) { return rest_of_weights + fragment * THREADS + threadIdx.x; }

// The right side of two products, a thread's eight weights along the sum, in one column: four of each.
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

// sums += left x right, over the 32 numbers that four threads' two messages have of a sample. N products side by side,
// because one that adds to the same sum as the one before has to wait for it; their left sides are LEFTS different ones.
template <int N, int LEFTS>
__device__ __forceinline__ void accumulate_eights(float sums[N][4], float rests[N][4], const uint4 left[LEFTS][2],
                                                  const uint4 left_rest[LEFTS][2], const u32 r[N][4], int first_rest) {
  auto multiply_all = [&](float to[N][4], const uint4 by[LEFTS][2], auto right) {
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int n = 0; n < N; n++) {
        const uint4 message = by[n * LEFTS / N][half], w = right(n);
        const u32 four[4] = {message.x, message.y, message.z, message.w};
        if (half) multiply(to[n], four, w.z, w.w);
        else multiply(to[n], four, w.x, w.y);
      }
  };
  auto weights = [&](int n) { return make_uint4(r[n][0], r[n][1], r[n][2], r[n][3]); };
  multiply_all(sums, left, weights);
  if (EXACT) {
    multiply_all(rests, left, [&](int n) { return *rest_at(first_rest + n); });
    multiply_all(rests, left_rest, weights);
  }
}
