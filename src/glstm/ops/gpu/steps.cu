// One step's cells, for networks whose recurrent weights do not fit into the registers of a cluster: torch
// multiplies, this does the rest. One thread a cell (model, sample, unit).
//
// Constants, besides cell.cuh's: H units, K_PER_SAMPLE.

__device__ __forceinline__ float openness(const float *k, i64 cell, int T, int B, int t) {
  i64 row = cell / H, model = row / B, step = model * T + t;
  return k[(K_PER_SAMPLE ? step * B + row % B : step) * H + cell % H];
}

// a: (T, M, B, 4H), sums on the way in and gates on the way out. h, c: (T + 1, M, B, H), before every step and after the last.
extern "C" __global__ void cells_forward(float *__restrict__ a, const float *__restrict__ k, float *__restrict__ h,
                                         float *__restrict__ c, i64 cells, int T, int B, int t) {
  i64 cell = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (cell >= cells) return;
  i64 before = t * cells + cell, after = before + cells;
  float *sums = a + (before / H) * 4 * H + cell % H;
  float v[4] = {sums[0], sums[H], sums[2 * H], sums[3 * H]}, c_now = c[before], h_now = h[before];
  step_cell(v, openness(k, cell, T, B, t), c_now, h_now);
  sums[0] = v[0], sums[H] = v[1], sums[2 * H] = v[2], sums[3 * H] = v[3];
  c[after] = c_now, h[after] = h_now;
}

// dh_out, dc_out: (T, M, B, H) or null. dh and dc: (M, B, H), of this step on the way in; kept shares of the step before on
// the way out. da: (T, M, B, 4H), dk: (T, M, B, H).
extern "C" __global__ void cells_backward(const float *__restrict__ gates, const float *__restrict__ k,
                                          const float *__restrict__ h, const float *__restrict__ c,
                                          const float *__restrict__ dh_out, const float *__restrict__ dc_out,
                                          float *__restrict__ dh, float *__restrict__ dc, float *__restrict__ da,
                                          float *__restrict__ dk, i64 cells, int T, int B, int t) {
  i64 cell = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (cell >= cells) return;
  i64 before = t * cells + cell, row = (before / H) * 4 * H + cell % H;
  const float *g = gates + row, v[4] = {g[0], g[H], g[2 * H], g[3 * H]};
  float dh_now = dh[cell] + (dh_out ? dh_out[before] : 0), dc_now = dc[cell] + (dc_out ? dc_out[before] : 0), slopes[4], dk_now;
  Known known;
  known.find(v, c[before], h[before], openness(k, cell, T, B, t));
  known.step(dh_now, dc_now, 1, slopes, dk_now);
  float *d = da + row;
  d[0] = slopes[0], d[H] = slopes[1], d[2 * H] = slopes[2], d[3 * H] = slopes[3];
  dk[before] = dk_now, dh[cell] = dh_now, dc[cell] = dc_now;
}
