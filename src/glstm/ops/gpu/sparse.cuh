// What the sparse path's two passes have in common.

#define SLOTS (8 * NB)
#define COLUMNS (H + D + 1)          // of the weights' gradient: from units, from inputs, bias
#define PIECES (2 + EXACT)           // of 16 bytes that the tape has of a slot and two samples
#define ROW (4 * PIECES)             // of 8 samples
#define KEPT (NB * NB * (1 + EXACT) * 32) // threads' parts of the weights between slots

struct Place {
  int lane, row, column, model, tile;
  __device__ __forceinline__ int sample(int n) const { return tile * TILE + column * 2 + n; }
  __device__ __forceinline__ bool holds(u32 slots, int block) const { return slots >> (block * 8 + row) & 1; }
};
__device__ __forceinline__ Place my_place() {
  const int lane = threadIdx.x;
  return {lane, lane >> 2, lane & 3, (int)blockIdx.y, (int)blockIdx.x};
}

// A span's record. A thread has the units of its rows, and that of the slot with its lane's number.
struct Span {
  int start, end, first, reach, mine, unit[NB];
  u32 open, opens, closes, again;
  __device__ __forceinline__ void load(const int *from, const Place &at) {
    const uint4 head = *(const uint4 *)from, sets = *(const uint4 *)(from + OPEN_AT);
    start = head.x, end = head.y, first = head.z, reach = head.w;
    open = sets.x, opens = sets.y, closes = sets.z, again = sets.w;
    mine = from[UNITS_AT + at.lane];
#pragma unroll
    for (int n = 0; n < NB; n++) unit[n] = from[UNITS_AT + n * 8 + at.row];
  }
  __device__ __forceinline__ int unit_of(int slot) const { return __shfl_sync(EVERYBODY, (u32)mine, slot); }
  // Among the open slots: this thread's of a block; 0 if it is closed, because that one has a tape.
  __device__ __forceinline__ int rank(const Place &at, int block) const {
    return at.holds(open, block) ? __popc(open & ((1u << (block * 8 + at.row)) - 1)) : 0;
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

// The weights between slots in 16 bits, in shared memory, in the order in which products take them: a thread has, for 8
// rows and 8 columns, those of its row and its two columns, gate by gate. What is written is seen after __syncwarp().
struct Between {
  const uint4 *own;
  u32 address;
  __device__ __forceinline__ explicit Between(uint4 *memory) : own(memory + threadIdx.x), address(shared_address(memory)) {
    for (int n = 0; n < KEPT; n += 32) memory[n + threadIdx.x] = make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ uint4 at(int row, int column, int rest) const { return own[((rest * NB + row) * NB + column) * 32]; }
  __device__ __forceinline__ void write(int row, int column, float4 w) const {
    const u32 to = address + 2 * (((row / 8 * NB + column / 8) * 32 + row % 8 * 4 + column % 8 / 2) * 8 + column % 2);
    const u32 low = pack_half(w.x, w.y), high = pack_half(w.z, w.w);
    write(to, low, high);
    if (EXACT) write(to + KEPT * 8, pack_rest(w.x, w.y, low), pack_rest(w.z, w.w, high));
  }
  __device__ __forceinline__ void write(u32 to, u32 low, u32 high) const {
    store_shared(to, (u16)low), store_shared(to + 4, (u16)(low >> 16));
    store_shared(to + 8, (u16)high), store_shared(to + 12, (u16)(high >> 16));
  }
};
// The weights from and to a unit that comes into a slot: a lane has those of the slot with its number.
struct Edge {
  float4 to, from;
  __device__ __forceinline__ void load(const float4 *w_hh, const Span &span, int slot) {
    const int unit = span.unit_of(slot);
    const bool there = span.mine >= 0;
    to = from = make_float4(0, 0, 0, 0);
    if (there) to = w_hh[unit * H + span.mine], from = w_hh[span.mine * H + unit];
  }
};

// The 16-bit right side of a product, of 8 slots x 8 samples, and in EXACT mode what it rounds off.
__device__ __forceinline__ void make_right(const float v[2], u32 &right, u32 &rest) {
  const u32 two = pack_half(v[0], v[1]);
  right = transpose(two);
  if (EXACT) rest = transpose(pack_rest(v[0], v[1], two));
}

// Sums over the four columns of a row: this thread's is that of v[column].
__device__ __forceinline__ float sum_by_column(const float v[4], const Place &at) {
  const bool upper = at.column & 2, odd = at.column & 1;
  float one = upper ? v[2] : v[0], other = upper ? v[3] : v[1];
  one += __shfl_xor_sync(EVERYBODY, upper ? v[0] : v[2], 2), other += __shfl_xor_sync(EVERYBODY, upper ? v[1] : v[3], 2);
  return (odd ? other : one) + __shfl_xor_sync(EVERYBODY, odd ? one : other, 1);
}
// Over the eight rows of a column, for everybody.
__device__ __forceinline__ float sum_over_rows(float v) {
#pragma unroll
  for (int n = 4; n < 32; n *= 2) v += __shfl_xor_sync(EVERYBODY, v, n);
  return v;
}
// The same of eight numbers: each is added up by one row, and then sent to all.
__device__ __forceinline__ void sum_eight_over_rows(float v[8], const Place &at) {
  float four[4], two[2];
#pragma unroll
  for (int n = 0; n < 4; n++) {
    const bool upper = at.row & 4;
    four[n] = (upper ? v[n + 4] : v[n]) + __shfl_xor_sync(EVERYBODY, upper ? v[n] : v[n + 4], 16);
  }
#pragma unroll
  for (int n = 0; n < 2; n++) {
    const bool upper = at.row & 2;
    two[n] = (upper ? four[n + 2] : four[n]) + __shfl_xor_sync(EVERYBODY, upper ? four[n] : four[n + 2], 8);
  }
  const bool odd = at.row & 1;
  const float one = (odd ? two[1] : two[0]) + __shfl_xor_sync(EVERYBODY, odd ? two[0] : two[1], 4);
#pragma unroll
  for (int n = 0; n < 8; n++) v[n] = __uint_as_float(__shfl_sync(EVERYBODY, __float_as_uint(one), n * 4 + at.column));
}
