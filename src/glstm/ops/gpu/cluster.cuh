// A cluster of blocks for a tile: blocks write directly into each other's shared memory, and a block that waits
// counts the bytes that have arrived.

#define TOGETHER __cluster_dims__(RANKS, 1, 1)

__device__ __forceinline__ void meet() {
  __syncthreads();
  meet_cluster();
}

// Messages of so many bytes, whose parts arrive from all blocks, also from this one, in two buffers that alternate. A
// buffer is written again two messages later, by blocks that have received the whole message between, so that no block
// still reads it.
struct Mail {
  u32 barriers, bytes;
  __device__ __forceinline__ u32 box(int n) const { return barriers + (n & 1) * 8; }
  __device__ __forceinline__ Mail(i64 *two, u32 size) : barriers(shared_address(two)), bytes(size) {
    if (threadIdx.x == 0) make_barrier(box(0)), make_barrier(box(1)), show_barriers();
    __syncthreads();
    if (threadIdx.x == 0) expect_bytes(box(0), bytes), expect_bytes(box(1), bytes);
  }
  // Waits for message n; then its buffer expects message n + 2.
  __device__ __forceinline__ void wait(int n) const {
    wait_for_phase(box(n), (n >> 1) & 1);
    if (threadIdx.x == 0) expect_bytes(box(n), bytes);
  }
  template <typename Part> __device__ __forceinline__ void post(int n, int rank, u32 address, Part part) const {
    send(in_block(address, rank), in_block(box(n), rank), part);
  }
};

// The weights of the forward pass: rows of a product are 8 units of two gates, so that a thread has all four of one.
struct Weights {
  u32 r[2][BLOCKS][4];
  __device__ __forceinline__ void load(const float *w_hh, const Place &at) {
#pragma unroll
    for (int pair = 0; pair < 2; pair++)
#pragma unroll
      for (int block = 0; block < BLOCKS; block++)
        load_weights(r[pair][block], rest_at(pair * BLOCKS + block), 0, block * 16, [&](int row, int from) {
          int gate = 2 * pair + (row >> 3), unit = (at.rank * WARPS + at.warp) * 8 + (row & 7);
          return unit < H && from < H ? w_hh[(gate * H + unit) * H + from] : 0.0f;
        });
  }
};

struct Sums {
  float of[2][2][4], rests[2][4]; // two sums per row: shorter chains of additions
  __device__ __forceinline__ void start(int gate, int, int sample, float value) {
    const int pair = gate >> 1, n = in_product(gate & 1, sample);
    of[pair][0][n] = value, of[pair][1][n] = rests[pair][n] = 0;
    if (SAMPLES == 1) of[pair][0][n + 1] = of[pair][1][n + 1] = rests[pair][n + 1] = 0;
  }
  __device__ __forceinline__ float total(int gate, int, int sample) const {
    const int pair = gate >> 1, n = in_product(gate & 1, sample);
    float sum = of[pair][0][n] + of[pair][1][n];
    return EXACT ? fmaf(rests[pair][n], 1 / REST, sum) : sum;
  }
  __device__ __forceinline__ void add(const Weights &weights, u32 h) {
#pragma unroll
    for (int block = 0; block < BLOCKS; block += 2) {
      u32 q[4], q_rest[4];
      load_columns(q, h + block * 32, true);
      if (EXACT) load_columns(q_rest, h + H_TABLE + block * 32, true);
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int pair = 0; pair < 2; pair++)
          accumulate(of[pair][n], rests[pair], weights.r[pair][block + n], rest_at(pair * BLOCKS + block + n), q + 2 * n, q_rest + 2 * n);
    }
  }
};

// h of all units, in two tables that alternate; every block has its own.
struct Exchange {
  Mail mail;
  u32 write_at;
  __device__ __forceinline__ Exchange(u32 tables, i64 *barriers, const Place &at) : mail(barriers, 2 * (1 + EXACT) * SIZE * HP) {
    write_at = tables + (at.row * H_STRIDE + (at.rank * WARPS + at.warp) * 8 + at.column * 2) * 2;
  }
  __device__ __forceinline__ void wait(int t) const {
    if (t > 0) mail.wait(t - 1);
  }
  // Transposed, a thread has two units of one row, which it sends to every block. To collect eight first takes longer.
  __device__ __forceinline__ void pass(int t, int T, const Place &at, const float h[CELLS]) const {
    if (t + 1 == T) return;
    const u32 to = write_at + ((t + 1) & 1) * (1 + EXACT) * H_TABLE, rounded = as_columns(h);
    const u32 units = transpose(rounded), rest = EXACT ? transpose(rest_of_columns(h, rounded)) : units;
    if (at.row % APART == 0)
#pragma unroll
      for (int rank = 0; rank < RANKS; rank++) {
        mail.post(t, rank, to, units);
        if (EXACT) mail.post(t, rank, to + H_TABLE, rest);
      }
  }
  __device__ __forceinline__ void end_step() const {}
};

// The gradient of h that a warp's products found is a part of other units', each eight of one warp of one block: that
// block adds the parts up. To send the slopes themselves round would be four times as much.
struct Gathering {
  Mail mail;
  const Part *parts; // [buffer][block it came from][thread]
  u32 write_at;
  __device__ __forceinline__ Gathering(i64 *barriers, Part *parts, const Place &at)
      : mail(barriers, sizeof(Part) * RANKS * THREADS), parts(parts), write_at(shared_address(parts + at.rank * THREADS + at.lane)) {}
  __device__ __forceinline__ void send(int n, const Place &at, const float sums[TILES][4]) const {
#pragma unroll
    for (int half = 0; half < 2 * TILES; half++) {
      const int owner = at.warp * 2 * TILES + half;
      const float *found = sums[half >> 1] + in_product(half & 1, 0);
      const u32 to = write_at + ((n & 1) * RANKS * THREADS + owner % WARPS * 32) * sizeof(Part);
      if (SAMPLES == 2) mail.post(n, owner / WARPS, to, make_uint2(__float_as_uint(found[0]), __float_as_uint(found[1])));
      else mail.post(n, owner / WARPS, to, __float_as_uint(found[0]));
    }
  }
  __device__ __forceinline__ void add(int n, const float[TILES][4], float dh[CELLS]) const {
    mail.wait(n);
    Part from[RANKS];
#pragma unroll
    for (int rank = 0; rank < RANKS; rank++) from[rank] = parts[((n & 1) * RANKS + rank) * THREADS + threadIdx.x];
#pragma unroll
    for (int rank = 0; rank < RANKS; rank++)
#pragma unroll
      for (int s = 0; s < SAMPLES; s++) dh[s] += from[rank].of[s];
  }
};
#define PARTS (2 * RANKS * THREADS)
