// A step of the batch-normalised LSTM between two products with R, in training: a warp takes a unit, its lanes the samples, so
// every sum over the batch stays in the warp. The sums are added in the same order each time. Networks that train together are
// rows of the grid.
//
// Constants, given when this is compiled: PER_LANE samples of a lane, at least B / 32; EXACT and LOGISTIC of cell.cuh.
//
// Shapes of one network, with the samples next to each other: sums R h, drive, d_sums, d_drive (T, 4H, B); c, h, dh
// (T + 1, H, B), before the first step and after each; dc (H, B). scales (6, H): gamma of i f g o, gamma and beta of c; d_scales
// (T, 6, H), a step's share each. found (T, 2, 5, H): means and variances of the four sums and of c.

#define EVERYBODY 0xffffffffu
#define EACH _Pragma("unroll") for (int j = 0; j < PER_LANE; j++)

__device__ __forceinline__ float over_batch(float v) {
#pragma unroll
  for (int mask = 16; mask; mask /= 2) v += __shfl_xor_sync(EVERYBODY, v, mask);
  return v; // the same bits in every lane
}
// Samples past the end of the batch are 0: they add nothing.
__device__ __forceinline__ float over_batch(const float v[PER_LANE]) {
  float sum = 0;
  EACH sum += v[j];
  return over_batch(sum);
}
__device__ __forceinline__ float over_batch(const float v[PER_LANE], const float w[PER_LANE]) {
  float sum = 0;
  EACH sum = fmaf(v[j], w[j], sum);
  return over_batch(sum);
}

struct Samples {
  int lane, count;
  __device__ __forceinline__ bool has(int j) const { return j * 32 + lane < count; }
  __device__ __forceinline__ void read(float v[PER_LANE], const float *row) const {
    EACH v[j] = has(j) ? row[j * 32 + lane] : 0;
  }
  __device__ __forceinline__ void write(float *row, const float v[PER_LANE]) const {
    EACH if (has(j)) row[j * 32 + lane] = v[j];
  }
  // Of so many rows, for the launch of the next step; what a row's last sector lacks is the next row's.
  __device__ __forceinline__ void fetch(const float *row, i64 apart, int rows) const {
    if (lane * 32 < count)
      for (int r = 0; r < rows; r++) fetch_early(row + r * apart + lane * 32);
  }
  // To mean 0 and variance 1.
  __device__ __forceinline__ void normalise(float v[PER_LANE], float epsilon, float &mean, float &variance) const {
    mean = over_batch(v) / count;
    EACH v[j] = has(j) ? v[j] - mean : 0;
    variance = over_batch(v, v) / count;
    const float scale = 1 / sqrtf(variance + epsilon);
    EACH v[j] *= scale;
  }
  // The same where both are known. Returns the scale.
  __device__ __forceinline__ float normalise_again(float v[PER_LANE], float epsilon, float mean, float variance) const {
    const float scale = 1 / sqrtf(variance + epsilon);
    EACH v[j] = has(j) ? (v[j] - mean) * scale : 0;
    return scale;
  }
  // From the slopes of gamma * normalised to those of what was normalised. d_gamma, d_shift: the sums over the batch.
  __device__ __forceinline__ void go_back(float slopes[PER_LANE], const float normalised[PER_LANE], float factor,
                                          float &d_gamma, float &d_shift) const {
    d_shift = over_batch(slopes), d_gamma = over_batch(slopes, normalised);
    const float shift = d_shift / count, along = d_gamma / count;
    EACH slopes[j] = factor * (slopes[j] - shift - normalised[j] * along);
  }
};

extern "C" __global__ void __launch_bounds__(32)
bn_forward(const float *sums, const float *drive, const float *scales, float *c, float *h, float *found, double epsilon, int T,
           int H, int B, int n) {
  const int unit = blockIdx.x;
  const Samples samples{(int)threadIdx.x, B};
  const i64 row = (i64)unit * B, gate = (i64)H * B;
  const i64 step = (i64)blockIdx.y * T + n, state_before = step + blockIdx.y; // of all networks'
  sums += 4 * step * gate + row, drive += 4 * step * gate + row, c += state_before * gate + row;
  h += (state_before + 1) * gate + row;
  found += step * 10 * H + unit, scales += blockIdx.y * 6 * H + unit;

  float v[4][PER_LANE], given[4][PER_LANE], state[PER_LANE], means[5], variances[5];
#pragma unroll
  for (int r = 0; r < 4; r++) samples.read(v[r], sums + r * gate);
#pragma unroll
  for (int r = 0; r < 4; r++) samples.read(given[r], drive + r * gate);
  samples.read(state, c);
  if (n + 1 < T) samples.fetch(drive + 4 * gate, gate, 4);
#pragma unroll
  for (int r = 0; r < 4; r++) {
    const float gamma = scales[r * H];
    samples.normalise(v[r], (float)epsilon, means[r], variances[r]);
    EACH v[r][j] = fmaf(gamma, v[r][j], given[r][j]);
  }
  EACH state[j] = samples.has(j) ? fmaf(sigmoid_(v[1][j]), state[j], sigmoid_(v[0][j]) * tanh_(v[2][j])) : 0;
  samples.write(c + gate, state);
  const float gamma = scales[4 * H], beta = scales[5 * H];
  samples.normalise(state, (float)epsilon, means[4], variances[4]);
  EACH state[j] = sigmoid_(v[3][j]) * tanh_(fmaf(gamma, state[j], beta));
  samples.write(h, state);
  if (threadIdx.x == 0)
#pragma unroll
    for (int r = 0; r < 5; r++) found[r * H] = means[r], found[(5 + r) * H] = variances[r];
}

// dh: of h after the step, all of it; dc: of c after the step on the way in, before it on the way out.
extern "C" __global__ void __launch_bounds__(32)
bn_backward(const float *sums, const float *drive, const float *scales, const float *c, const float *found, const float *dh,
            float *dc, float *d_sums, float *d_drive, float *d_scales, double epsilon, int T, int H, int B, int n) {
  const int unit = blockIdx.x;
  const Samples samples{(int)threadIdx.x, B};
  const i64 row = (i64)unit * B, gate = (i64)H * B;
  const i64 step = (i64)blockIdx.y * T + n, state_before = step + blockIdx.y; // of all networks'
  sums += 4 * step * gate + row, drive += 4 * step * gate + row, c += state_before * gate + row;
  dh += (state_before + 1) * gate + row, dc += blockIdx.y * gate + row;
  d_sums += 4 * step * gate + row, d_drive += 4 * step * gate + row;
  found += step * 10 * H + unit, scales += blockIdx.y * 6 * H + unit, d_scales += step * 6 * H + unit;

  float v[4][PER_LANE], a[4][PER_LANE], before[PER_LANE], now[PER_LANE], slope_h[PER_LANE], slope_c[PER_LANE];
#pragma unroll
  for (int r = 0; r < 4; r++) samples.read(v[r], sums + r * gate);
#pragma unroll
  for (int r = 0; r < 4; r++) samples.read(a[r], drive + r * gate);
  samples.read(before, c), samples.read(now, c + gate), samples.read(slope_h, dh), samples.read(slope_c, dc);
  if (n > 0) samples.fetch(sums - 4 * gate, gate, 4), samples.fetch(drive - 4 * gate, gate, 4), samples.fetch(c - gate, gate, 1);
  float factors[4], d_gammas[5], d_shifts[5];
#pragma unroll
  for (int r = 0; r < 4; r++) {
    const float gamma = scales[r * H];
    factors[r] = gamma * samples.normalise_again(v[r], (float)epsilon, found[r * H], found[(5 + r) * H]);
    EACH a[r][j] = fmaf(gamma, v[r][j], a[r][j]);
  }
  const float gamma_c = scales[4 * H], beta_c = scales[5 * H];
  const float factor_c = gamma_c * samples.normalise_again(now, (float)epsilon, found[4 * H], found[9 * H]);
  EACH {
    const float squashed = tanh_(fmaf(gamma_c, now[j], beta_c)), o = sigmoid_(a[3][j]);
    a[3][j] = slope_h[j] * squashed * fmaf(-o, o, o);
    slope_h[j] *= o * fmaf(-squashed, squashed, 1); // from here on, of what tanh is of
  }
  samples.go_back(slope_h, now, factor_c, d_gammas[4], d_shifts[4]);
  EACH {
    const float i = sigmoid_(a[0][j]), f = sigmoid_(a[1][j]), g = tanh_(a[2][j]);
    const float slope = samples.has(j) ? slope_c[j] + slope_h[j] : 0;
    a[0][j] = slope * g * fmaf(-i, i, i);
    a[1][j] = slope * before[j] * fmaf(-f, f, f);
    a[2][j] = slope * i * fmaf(-g, g, 1);
    slope_c[j] = slope * f;
  }
  samples.write(dc, slope_c);
#pragma unroll
  for (int r = 0; r < 4; r++) {
    samples.write(d_drive + r * gate, a[r]);
    samples.go_back(a[r], v[r], factors[r], d_gammas[r], d_shifts[r]);
    samples.write(d_sums + r * gate, a[r]);
  }
  if (threadIdx.x == 0) {
#pragma unroll
    for (int r = 0; r < 5; r++) d_scales[r * H] = d_gammas[r];
    d_scales[5 * H] = d_shifts[4];
  }
}
