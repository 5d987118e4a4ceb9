// One step's cells, for networks whose recurrent weights do not fit into the registers of a cluster: torch
// multiplies, this does the rest. One thread a cell (model, sample, unit).
//
// Constants, besides cell.cuh's: H units, K_PER_SAMPLE.

// a: (M, B, 4H), sums on the way in and gates on the way out. k: of this step, and how far the next model's is.
extern "C" __global__ void cells_forward(float *__restrict__ a, const float *__restrict__ k, i64 k_model,
                                         const float *__restrict__ h, const float *__restrict__ c,
                                         float *__restrict__ h_next, float *__restrict__ c_next, int B, i64 cells) {
  i64 cell = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (cell >= cells) return;
  i64 row = cell / H, model = row / B;
  int j = cell % H;
  float *sums = a + row * 4 * H + j;
  float v[4] = {sums[0], sums[H], sums[2 * H], sums[3 * H]}, c_now = c[cell], h_now = h[cell];
  step_cell(v, k[model * k_model + (K_PER_SAMPLE ? (row % B) * H : 0) + j], c_now, h_now);
  sums[0] = v[0], sums[H] = v[1], sums[2 * H] = v[2], sums[3 * H] = v[3];
  c_next[cell] = c_now, h_next[cell] = h_now;
}

// dh and dc: of this step on the way in; kept shares of the step before on the way out. da: (M, B, 4H), dk: (M, B, H).
extern "C" __global__ void cells_backward(const float *__restrict__ gates, const float *__restrict__ k, i64 k_model,
                                          const float *__restrict__ h, const float *__restrict__ c,
                                          const float *__restrict__ dh_out, const float *__restrict__ dc_out,
                                          float *__restrict__ dh, float *__restrict__ dc, float *__restrict__ da,
                                          float *__restrict__ dk, int B, i64 cells) {
  i64 cell = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (cell >= cells) return;
  i64 row = cell / H, model = row / B;
  int j = cell % H;
  const float *g = gates + row * 4 * H + j;
  const float v[4] = {g[0], g[H], g[2 * H], g[3 * H]};
  float dh_now = dh[cell] + (dh_out ? dh_out[cell] : 0), dc_now = dc[cell] + (dc_out ? dc_out[cell] : 0), slopes[4], dk_now;
  Known known;
  known.find(v, c[cell], h[cell], k[model * k_model + (K_PER_SAMPLE ? (row % B) * H : 0) + j]);
  known.step(dh_now, dc_now, 1, slopes, dk_now);
  float *d = da + row * 4 * H + j;
  d[0] = slopes[0], d[H] = slopes[1], d[2 * H] = slopes[2], d[3 * H] = slopes[3];
  dk[cell] = dk_now, dh[cell] = dh_now, dc[cell] = dc_now;
}
