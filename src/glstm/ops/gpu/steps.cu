// One step's cells, for networks whose recurrent weights do not fit into the registers of one multiprocessor: torch
// multiplies, this does the rest. One thread a cell (model, sample, unit).
//
// Constants: H units, LOGISTIC candidate, K_PER_SAMPLE.

typedef long long i64;

__device__ __forceinline__ float sigmoid_(float x) { return 1.0f / (1.0f + expf(-x)); }

// a: (M, B, 4H), sums on the way in and gates on the way out. k: of this step, and how far the next model's is.
extern "C" __global__ void cells_forward(float *__restrict__ a, const float *__restrict__ k, i64 k_model,
                                         const float *__restrict__ h, const float *__restrict__ c,
                                         float *__restrict__ h_next, float *__restrict__ c_next, int B, i64 cells) {
  i64 cell = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (cell >= cells) return;
  i64 row = cell / H, model = row / B;
  int j = cell % H;
  float *sums = a + row * 4 * H + j;
  float i = sigmoid_(sums[0]), f = sigmoid_(sums[H]), o = sigmoid_(sums[3 * H]);
  float g = LOGISTIC ? sigmoid_(sums[2 * H]) : tanhf(sums[2 * H]);
  float kk = k[model * k_model + (K_PER_SAMPLE ? (row % B) * H : 0) + j];
  float c_new = fmaf(f, c[cell], i * g), h_new = o * tanhf(c_new);
  sums[0] = i, sums[H] = f, sums[2 * H] = g, sums[3 * H] = o;
  c_next[cell] = kk == 0 ? c[cell] : fmaf(kk, c_new, (1 - kk) * c[cell]);
  h_next[cell] = kk == 0 ? h[cell] : fmaf(kk, h_new, (1 - kk) * h[cell]);
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
  const float *v = gates + row * 4 * H + j;
  float i = v[0], f = v[H], g = v[2 * H], o = v[3 * H], c_old = c[cell];
  float kk = k[model * k_model + (K_PER_SAMPLE ? (row % B) * H : 0) + j];
  float dh_now = dh[cell] + (dh_out ? dh_out[cell] : 0), dc_now = dc[cell] + (dc_out ? dc_out[cell] : 0);
  float c_new = fmaf(f, c_old, i * g), squashed = tanhf(c_new);
  bool shut = kk == 0; // a closed unit's gates may be NaN, where its input was: they must not matter
  float dh_new = kk * dh_now, dc_new = fmaf(kk, dc_now, dh_new * o * (1 - squashed * squashed));
  float *d = da + row * 4 * H + j;
  d[0] = shut ? 0 : dc_new * g * i * (1 - i);
  d[H] = shut ? 0 : dc_new * c_old * f * (1 - f);
  d[2 * H] = shut ? 0 : dc_new * i * (LOGISTIC ? g * (1 - g) : 1 - g * g);
  d[3 * H] = shut ? 0 : dh_new * squashed * o * (1 - o);
  dk[cell] = shut ? 0 : fmaf(dc_now, c_new - c_old, dh_now * (o * squashed - h[cell]));
  dh[cell] = shut ? dh_now : (1 - kk) * dh_now;
  dc[cell] = shut ? dc_now : fmaf(f, dc_new, (1 - kk) * dc_now);
}
