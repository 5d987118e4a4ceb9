// What the sparse path's two passes have in common.

#define SLOTS (8 * NB)
#define COLUMNS (H + D + 1)          // of the weights' gradient: from units, from inputs, bias
#define PIECES (2 + EXACT)           // of 16 bytes that the tape has of a slot and two samples
#define ROW (4 * PIECES)             // of 8 samples
#define HALVES ((NB + 1) / 2)        // pairs of blocks
#define KEPT (HALVES * NB * 2 * (1 + EXACT) * 32) // threads' parts of the weights between slots

struct Place {
  int lane, row, column, model, tile;
  __device__ __forceinline__ int sample(int n) const { return tile * TILE + column * 2 + n; }
  __device__ __forceinline__ bool holds(u32 slots, int block) const { return slots >> (block * 8 + row) & 1; }
};
__device__ __forceinline__ Place my_place() {
  const int lane = threadIdx.x;
  return {lane, lane >> 2, lane & 3, (int)blockIdx.y, (int)blockIdx.x};
}

// A span's record, in shared memory.
struct Span {
  const int *record;
  __device__ __forceinline__ int start() const { return record[START_AT]; }
  __device__ __forceinline__ int end() const { return record[END_AT]; }
  __device__ __forceinline__ int first() const { return record[FIRST_AT]; }
  __device__ __forceinline__ int reach() const { return record[REACH_AT]; }
  __device__ __forceinline__ u32 open() const { return record[OPEN_AT]; }
  __device__ __forceinline__ u32 opens() const { return record[OPENS_AT]; }
  __device__ __forceinline__ u32 closes() const { return record[CLOSES_AT]; }
  __device__ __forceinline__ u32 again() const { return record[AGAIN_AT]; }
  __device__ __forceinline__ int unit_of(int slot) const { return record[UNITS_AT + slot]; }
  __device__ __forceinline__ int unit(const Place &at, int block) const { return unit_of(block * 8 + at.row); }
};
// Among the open slots: this thread's of a block; 0 if it is closed, because that one has a tape.
__device__ __forceinline__ int rank_in(u32 open, const Place &at, int block) {
  return at.holds(open, block) ? __popc(open & ((1u << (block * 8 + at.row)) - 1)) : 0;
}

// Records come into shared memory before they are needed: COUNT of them are there, or on their way. Every span has to end a
// group of copies and to wait for all but the last few; COUNT says for how many of them.
template <int COUNT> struct Records {
  const int *from, *ring;
  u32 address;
  int lane, spans;
  __device__ __forceinline__ Records(const int *from, int *ring, int spans, const Place &at)
      : from(from), ring(ring), address(shared_address(ring)), lane(at.lane), spans(spans) {}
  __device__ __forceinline__ void ask(int number) const {
    const bool there = number >= 0 && number < spans && lane < RECORD / 4;
    copy_early(address + ((u32)number % COUNT * RECORD + lane * 4) * 4, from + (there ? number * RECORD + lane * 4 : 0), there);
  }
  __device__ __forceinline__ Span at(int number) const { return {ring + (u32)number % COUNT * RECORD}; }
};
__device__ __forceinline__ void let_copies_come() {
  end_copies();
  wait_for_copies<2>();
  __syncwarp();
}
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

// The weights between slots in 16 bits, in shared memory: left sides of products, each a thread's four registers of it. Two
// gates of 8 slots that they go `to`, and 16 slots that h comes `from`. These are the columns; if TRANSPOSED, the rows.
// What is written is seen after __syncwarp().
template <bool TRANSPOSED> struct Between {
  const uint4 *own;
  u32 address;
  __device__ __forceinline__ explicit Between(uint4 *memory) : own(memory + threadIdx.x), address(shared_address(memory)) {
    for (int n = 0; n < KEPT; n += 32) memory[n + threadIdx.x] = make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ static int number(int to, int half, int two) { return ((half * NB + to) * 2 + two) * 32; }
  __device__ __forceinline__ uint4 at(int to, int half, int two, int rest) const { return own[number(to, half, two) + rest * KEPT / 2]; }
  // Of the slots `to` and `from`.
  __device__ __forceinline__ void write(int to, int from, float4 w) const {
    const int row = TRANSPOSED ? from : to, column = TRANSPOSED ? to : from, thread = row % 8 * 4 + column % 8 / 2;
    const u32 where = address + 16 * (number(to / 8, from / 16, 0) + thread) + (TRANSPOSED ? 4 : 8) * (from / 8 % 2) + 2 * (column % 2);
    const u32 low = pack_half(w.x, w.y), high = pack_half(w.z, w.w);
    write(where, low, high);
    if (EXACT) write(where + KEPT * 8, pack_rest(w.x, w.y, low), pack_rest(w.z, w.w, high));
  }
  __device__ __forceinline__ void write(u32 where, u32 low, u32 high) const {
    constexpr int next_gate = TRANSPOSED ? 8 : 4, next_two = 16 * 32;
    store_shared(where, (u16)low), store_shared(where + next_gate, (u16)(low >> 16));
    store_shared(where + next_two, (u16)high), store_shared(where + next_two + next_gate, (u16)(high >> 16));
  }
};
// The weights from and to a unit that comes into a slot: a lane has those of the slot with its number.
struct Edge {
  float4 to, from;
  __device__ __forceinline__ void load(const float4 *w_hh, const Span &span, int slot) {
    const int unit = span.unit_of(slot), mine = span.unit_of(threadIdx.x);
    to = from = make_float4(0, 0, 0, 0);
    if (mine >= 0) to = w_hh[unit * H + mine], from = w_hh[mine * H + unit];
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
