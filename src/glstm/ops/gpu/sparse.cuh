// What the sparse path's two passes have in common.

#define SLOTS (8 * NB)
#define COLUMNS (H + D + 1)          // of the weights' gradient: from units, from inputs, bias
#define PIECES (2 + EXACT)           // of 16 bytes that the tape has of a slot and two samples
#define ROW (4 * PIECES)             // of 8 samples

struct Place {
  int lane, row, column, model, tile;
  __device__ __forceinline__ int sample(int n) const { return tile * TILE + column * 2 + n; }
  __device__ __forceinline__ bool holds(u32 slots, int block) const { return slots >> (block * 8 + row) & 1; }
};
__device__ __forceinline__ Place my_place() {
  const int lane = threadIdx.x;
  return {lane, lane >> 2, lane & 3, (int)blockIdx.y, (int)blockIdx.x};
}

// What every step needs of a span's record; the rest is read where a span begins, from the cache.
struct Span {
  const int *record;
  int start, end, unit[NB]; // units in this thread's rows
  u32 open;
  __device__ __forceinline__ void load(const int *from, const Place &at) {
    record = from, start = from[START_AT], end = from[END_AT], open = from[OPEN_AT];
#pragma unroll
    for (int n = 0; n < NB; n++) unit[n] = from[UNITS_AT + n * 8 + at.row];
  }
  // The unit in one of this thread's two columns of a block.
  __device__ __forceinline__ int across(const Place &at, int block, int n) const { return record[UNITS_AT + block * 8 + at.column * 2 + n]; }
  // Among the model's pairs: that of a slot of this thread at step t.
  __device__ __forceinline__ int pair(const Place &at, int block, int t) const {
    return record[FIRST_AT] + (t - start) * __popc(open) + __popc(open & ((1u << (block * 8 + at.row)) - 1));
  }
};
__device__ __forceinline__ int blocks_of(u32 slots) { return (32 - __clz(slots) + 7) / 8; }
__device__ __forceinline__ u32 blocks_with(u32 slots) {
  u32 found = 0;
#pragma unroll
  for (int n = 0; n < NB; n++) found |= (slots >> n * 8 & 255) ? 1u << n : 0;
  return found;
}

__device__ __forceinline__ i64 from_lane(i64 v, int lane) {
  const u32 low = __shfl_sync(EVERYBODY, (u32)v, lane), high = __shfl_sync(EVERYBODY, (u32)(v >> 32), lane);
  return (i64)high << 32 | low;
}
// Where this warp's part of the tape begins, in rows: every tile of the models before, and the tiles before. -1 if the
// schedule does not fit into NB blocks of slots, or the tapes of all models not into `room` pairs.
__device__ __forceinline__ i64 first_row(const int *counts, const Place &at, int models, int tiles, i64 room) {
  i64 before = 0, all = 0;
  int slots = 0;
  for (int m = at.lane; m < models; m += 32) {
    all += counts[m * COUNTS + PAIRS_AT], before += m < at.model ? counts[m * COUNTS + PAIRS_AT] : 0;
    slots = max(slots, counts[m * COUNTS + SLOTS_AT]);
  }
#pragma unroll
  for (int n = 1; n < 32; n *= 2) {
    all += from_lane(all, at.lane ^ n), before += from_lane(before, at.lane ^ n);
    slots = max(slots, (int)__shfl_sync(EVERYBODY, (u32)slots, at.lane ^ n));
  }
  return slots > SLOTS || all > room ? -1 : before * tiles + (i64)at.tile * counts[at.model * COUNTS + PAIRS_AT];
}

// The 16-bit right side of a product, of 8 slots x 8 samples, and in EXACT mode what it rounds off.
__device__ __forceinline__ void make_right(const float v[2], float scale, u32 &right, u32 &rest) {
  const float low = v[0] * scale, high = v[1] * scale;
  const u32 two = pack_half(low, high);
  right = transpose(two);
  if (EXACT) rest = transpose(pack_rest(low, high, two));
}

// Sums over the four columns of a row: this thread's is that of v[column].
__device__ __forceinline__ float sum_by_column(const float v[4], const Place &at) {
  const bool upper = at.column & 2, odd = at.column & 1;
  float one = upper ? v[2] : v[0], other = upper ? v[3] : v[1];
  one += __shfl_xor_sync(EVERYBODY, upper ? v[0] : v[2], 2), other += __shfl_xor_sync(EVERYBODY, upper ? v[1] : v[3], 2);
  return (odd ? other : one) + __shfl_xor_sync(EVERYBODY, odd ? one : other, 1);
}
// Over the eight rows of a column.
__device__ __forceinline__ float sum_over_rows(float v) {
#pragma unroll
  for (int n = 4; n < 32; n *= 2) v += __shfl_xor_sync(EVERYBODY, v, n);
  return v;
}
