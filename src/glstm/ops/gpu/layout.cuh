// Which thread computes what. A tile of samples of one model goes through all steps in one block, or in a cluster of RANKS
// blocks that share the units. The gates are computed transposed, R h^T: units are the rows of a matrix instruction, samples
// its 8 columns, and the recurrent weights R, its left side, stay in registers from the first step to the last. A thread has
// all four gates of its cells: UNITS units x SAMPLES samples. A tile has 8 samples; or 4, which take every second column, with
// zeros in the others: then a thread has half as many cells to compute, and there are twice as many blocks.
//
// Constants, besides cell.cuh's: H units, RANKS, SAMPLES of a thread (2, or 1), D inputs (0: the input's share of the gates
// comes ready-made), K_PER_SAMPLE, K_H (behind the table of every sample lies another one, for h), SEQUENCE (h of every step goes
// out, or its gradient comes in; 2: also that of c), TAPED (forward keeps what backward needs), FULL_ROWS (the two sides of the
// weights' gradient are in float32, not in bfloat16), AHEAD (ahead.cuh). In EXACT mode every 16-bit number has a second one for
// what it rounds off.

#define UNITS (RANKS == 1 ? 2 : 1)   // of a thread; they lie 8 apart
#define CELLS (SAMPLES * UNITS)      // of a thread, unit by unit
#define SIZE (4 * SAMPLES)           // samples of a tile
#define APART (2 / SAMPLES)          // columns of a product, and rows of shared memory, from one sample to the next
#define OWN ((H + 8 * UNITS * RANKS - 1) / (8 * UNITS * RANKS) * (8 * UNITS)) // units of a block
#define WARPS (OWN / (8 * UNITS))
#define THREADS (WARPS * 32)
#define HP (RANKS * OWN)             // units of all blocks
#define BLOCKS (HP / 16)             // products along the units
#define H_STRIDE (HP + 8)            // 16-bit numbers in a row of shared memory: no two rows of a load in one bank
#define H_TABLE (TILE * H_STRIDE * 2) // bytes
#define DA_STRIDE (4 * OWN + 8)
#define DA_TABLE (TILE * DA_STRIDE * 2)
#define TILES (BLOCKS / WARPS)       // of 16 units that a warp finds the gradient of h for
#define ROW (HP + 16)                // of the weights' gradient's right side: h, x, 1, in whole sectors of memory
#define RESTS (EXACT * HP * HP / (2 * RANKS)) // of the weights, 16 bytes each
#define K_OWN (K_PER_SAMPLE ? CELLS : UNITS) // words of a table that a thread reads at every step
#define K_WORDS ((1 + K_H) * K_OWN)

struct Place {
  int rank, warp, lane, row, column, tile, model;
  __device__ __forceinline__ int unit(int n) const { return (rank * WARPS + warp) * 8 * UNITS + n * 8 + row; }
  __device__ __forceinline__ int sample(int n) const { return tile * SIZE + column * SAMPLES + n; }
  // A padding unit or sample uses the address of a real one, and has no effect: then loads need no condition.
  __device__ __forceinline__ int unit_there(int n) const { return unit(n) < H ? unit(n) : 0; }
  __device__ __forceinline__ int sample_there(int n, int B) const { return sample(n) < B ? sample(n) : 0; }
};
__device__ __forceinline__ Place my_place() {
  int lane = threadIdx.x & 31;
  return {(int)blockIdx.x % RANKS, (int)threadIdx.x >> 5, lane, lane >> 2, lane & 3, (int)blockIdx.x / RANKS, (int)blockIdx.y};
}

// Who copies what threads have in common (ahead.cuh): k, where all samples have one, and the inputs of a sample.
struct Asker { int place; bool asks; };
__device__ __forceinline__ Asker asker_of_k(const Place &at) {
  if (K_PER_SAMPLE) return {(int)threadIdx.x, true};
  return {at.warp * 8 + at.row, at.column == 0};
}
__device__ __forceinline__ Asker asker_of_x(const Place &at) {
  if (!D) return {(int)threadIdx.x, true};
  return {at.warp * 4 + at.column, at.row == 0};
}

// What 16 bits round off the weights: [block of 16 x 16][thread]. Too much for the registers.
extern __shared__ uint4 rest_of_weights[];
__device__ __forceinline__ uint4 *rest_at(int block) { return rest_of_weights + block * THREADS + threadIdx.x; }

// N matrices of 8 units x 8 samples, a thread's two numbers of each, into shared memory side by side, where rows are
// samples. `mine` is the corner of the first, plus this thread's share of the way.
template <int N> __device__ __forceinline__ u32 share_of_the_way(const Place &at, int stride) {
#if __CUDA_ARCH__ >= 900
  return ((at.lane & 7) * stride + (at.lane >> 3) % N * 8) * 2;
#else
  return (at.column * 2 * stride + at.row) * 2;
#endif
}
template <int N> __device__ __forceinline__ void store_across(u32 mine, int stride, const u32 v[N]) {
#if __CUDA_ARCH__ >= 900
  if (N == 2) store_two_across(mine, v);
  else store_four_across(mine, v);
#else
#pragma unroll
  for (int n = 0; n < 2 * N; n++)
    store_shared(mine + ((n & 1) * stride + (n >> 1) * 8) * 2, (u16)(v[n >> 1] >> (n & 1) * 16));
#endif
}

// A unit's numbers of a thread's samples, in 16 bits, as the two columns of a product that the thread has; and their rests.
__device__ __forceinline__ u32 as_columns(const float v[SAMPLES]) { return pack_half(v[0], SAMPLES == 2 ? v[SAMPLES - 1] : 0); }
__device__ __forceinline__ u32 rest_of_columns(const float v[SAMPLES], u32 rounded) {
  return pack_rest(v[0], SAMPLES == 2 ? v[SAMPLES - 1] : 0, rounded);
}
// Where a product has a thread's unit and sample: it has two columns of two rows.
__device__ __forceinline__ constexpr int in_product(int row, int sample) { return row * 2 + sample; }

// A part of the gradient of a unit's h, of a thread's samples.
struct __align__(4 * SAMPLES) Part { float of[SAMPLES]; };

// Numbers from a place of the first table to the same place of the second.
__device__ __forceinline__ i64 to_second_table(int T, int B) { return K_H ? (i64)gridDim.y * T * B * H : 0; }

// Every loop over the steps exists twice: one that skips closed units, for tables k with zeros in them, and one without
// the branches that this needs. Gates that open once are closed at the first step or at the last.
struct Dense { static constexpr bool skips = false; };
struct Sparse { static constexpr bool skips = true; };
__device__ __forceinline__ bool has_zeros(const float *k, const Place &at, int T, int B) {
  bool found = false;
#pragma unroll
  for (int cell = 0; cell < CELLS; cell++) {
    const int place = (K_PER_SAMPLE ? at.sample_there(cell % SAMPLES, B) * H : 0) + at.unit_there(cell / SAMPLES);
    found |= k[place] == 0 || k[(i64)(T - 1) * H * (K_PER_SAMPLE ? B : 1) + place] == 0;
  }
  return __syncthreads_or(found);
}
