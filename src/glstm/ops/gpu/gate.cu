// Kernels of a gate: its table of openness from its values and the times, and the values' gradients from the table's.
// v_0 to v_2: (H), the values of the units; null where the gate has fewer.

#define LANES 32
#define ROWS 8 // of a table, that a block takes at once
#define BLOCK (LANES * ROWS)

__device__ __forceinline__ void load_values(Real v[MOST_VALUES], const float *v_0, const float *v_1, const float *v_2, int unit) {
  v[0] = v_0 ? v_0[unit] : 0, v[1] = v_1 ? v_1[unit] : 0, v[2] = v_2 ? v_2[unit] : 0;
}

// k: (T, H), or (T, samples, H) with times per sample; b: (4H), the sum of two biases, which may be null. A thread a number.
extern "C" __global__ void open_gate(const void *times, const float *__restrict__ v_0, const float *__restrict__ v_1,
                                     const float *__restrict__ v_2, const float *__restrict__ b_ih, const float *__restrict__ b_hh,
                                     float *__restrict__ k, float *__restrict__ b, double origin, double unit, double threshold,
                                     double leak, int H, int first, int T, int samples, int reversed) {
  i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  const i64 table = (i64)T * samples * H;
  if (n < table) {
    const Moments moments = {times, origin, unit, first, T, samples, reversed};
    Real v[MOST_VALUES];
    load_values(v, v_0, v_1, v_2, n % H);
    const Real open = openness(v, moments.at(n / H), (Real)leak);
    k[n] = open <= (Real)threshold ? 0.0f : (float)open;
  } else if ((n -= table) < 4 * H)
    b[n] = (b_ih ? b_ih[n] : 0) + (b_hh ? b_hh[n] : 0);
}

// parts: (chunks, MOST_VALUES, H), for `finish` to add up. dk: (tiles, T * samples, H). A block takes 32 units and a chunk of
// rows, always in the same order.
extern "C" __global__ void __launch_bounds__(BLOCK)
gate_slopes(const void *times, const float *__restrict__ v_0, const float *__restrict__ v_1, const float *__restrict__ v_2,
            const float *__restrict__ k, const float *__restrict__ dk, float *__restrict__ parts, double origin, double unit,
            double leak, int H, int first, int T, int samples, int reversed, int tiles) {
  __shared__ Real sums[MOST_VALUES][ROWS][LANES];
  const Moments moments = {times, origin, unit, first, T, samples, reversed};
  const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, my_unit = blockIdx.x * LANES + lane;
  const i64 rows = (i64)T * samples, share = (rows + gridDim.y - 1) / gridDim.y;
  const i64 from = blockIdx.y * share, to = from + share < rows ? from + share : rows;
  Real sum[MOST_VALUES] = {0, 0, 0};
  if (my_unit < H) {
    Real v[MOST_VALUES];
    load_values(v, v_0, v_1, v_2, my_unit);
    for (i64 row = from + warp; row < to; row += ROWS) {
      const float open = k[row * H + my_unit];
      float d = 0;
#pragma unroll 32
      for (int tile = 0; tile < tiles; tile++) d += dk[(tile * rows + row) * H + my_unit];
      Real by[MOST_VALUES] = {0, 0, 0};
      slopes(v, moments.at(row), (Real)leak, (Real)open, by);
#pragma unroll
      for (int n = 0; n < MOST_VALUES; n++) sum[n] += open == 0 ? (Real)0 : (Real)d * by[n];
    }
  }
#pragma unroll
  for (int n = 0; n < MOST_VALUES; n++) sums[n][warp][lane] = sum[n];
  __syncthreads();
  if (warp >= MOST_VALUES || my_unit >= H) return;
  Real total = 0;
  for (int row = 0; row < ROWS; row++) total += sums[warp][row][lane];
  parts[((i64)blockIdx.y * MOST_VALUES + warp) * H + my_unit] = (float)total;
}
