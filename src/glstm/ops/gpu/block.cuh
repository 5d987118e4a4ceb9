// One block for a tile: its warps exchange h through shared memory.

#define TOGETHER

// The weights of the forward pass: rows of a product are 16 units of one gate.
struct Weights {
  u32 r[4][BLOCKS][4];
  __device__ __forceinline__ void load(const float *w_hh, const Place &at) {
#pragma unroll
    for (int gate = 0; gate < 4; gate++)
#pragma unroll
      for (int block = 0; block < BLOCKS; block++)
        load_weights(r[gate][block], rest_at(gate * BLOCKS + block), at.warp * 16, block * 16, [&](int unit, int from) {
          return unit < H && from < H ? w_hh[(gate * H + unit) * H + from] : 0.0f;
        });
  }
};

struct Sums {
  float of[4][4], rests[4][4];
  __device__ __forceinline__ void start(int gate, int unit, int sample, float value) {
    const int n = in_product(unit, sample);
    of[gate][n] = value, rests[gate][n] = 0;
    if (SAMPLES == 1) of[gate][n + 1] = rests[gate][n + 1] = 0;
  }
  __device__ __forceinline__ float total(int gate, int unit, int sample) const {
    const int n = in_product(unit, sample);
    return EXACT ? fmaf(rests[gate][n], 1 / REST, of[gate][n]) : of[gate][n];
  }
  __device__ __forceinline__ void add(const Weights &weights, u32 h) {
#pragma unroll
    for (int block = 0; block < BLOCKS; block += 2) {
      const bool two = block + 1 < BLOCKS;
      u32 q[4], q_rest[4];
      load_columns(q, h + block * 32, two);
      if (EXACT) load_columns(q_rest, h + H_TABLE + block * 32, two);
#pragma unroll
      for (int n = 0; n < 1 + two; n++)
#pragma unroll
        for (int gate = 0; gate < 4; gate++)
          accumulate(of[gate], rests[gate], weights.r[gate][block + n], rest_at(gate * BLOCKS + block + n), q + 2 * n, q_rest + 2 * n);
    }
  }
};

// h of all units, in two tables that alternate.
struct Exchange {
  u32 write_at;
  __device__ __forceinline__ Exchange(u32 tables, i64 *, const Place &at) {
    write_at = tables + at.warp * 32 + share_of_the_way<2>(at, H_STRIDE);
  }
  __device__ __forceinline__ void wait(int) const {}
  __device__ __forceinline__ void pass(int t, int, const Place &, const float h[CELLS]) const {
    const u32 to = write_at + ((t + 1) & 1) * (1 + EXACT) * H_TABLE;
    const u32 rounded[2] = {as_columns(h), as_columns(h + SAMPLES)};
    store_across<2>(to, H_STRIDE, rounded);
    if (EXACT) {
      const u32 rest[2] = {rest_of_columns(h, rounded[0]), rest_of_columns(h + SAMPLES, rounded[1])};
      store_across<2>(to + H_TABLE, H_STRIDE, rest);
    }
  }
  __device__ __forceinline__ void end_step() const { __syncthreads(); }
};

// The gradient of h that a warp's products found is that of its own units.
struct Gathering {
  __device__ __forceinline__ Gathering(i64 *, Part *, const Place &) {}
  __device__ __forceinline__ void send(int, const Place &, const float[TILES][4]) const {}
  __device__ __forceinline__ void add(int, const float sums[TILES][4], float dh[CELLS]) const {
#pragma unroll
    for (int cell = 0; cell < CELLS; cell++) dh[cell] += sums[0][in_product(cell / SAMPLES, cell % SAMPLES)];
  }
};
#define PARTS 1

__device__ __forceinline__ void meet() { __syncthreads(); }
