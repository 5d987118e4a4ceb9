// Adds up `parts` over the tiles of each model, into torch's order: a thread a unit and a column. A unit's weights have a
// gradient from those that opened before it closed; what was not written is not read.
extern "C" __global__ void finish_weights(const float4 *__restrict__ parts, const int *__restrict__ whole, const int *__restrict__ moments,
                                          float *__restrict__ dw_ih, float *__restrict__ dw_hh, float *__restrict__ db, int models, int tiles) {
  const i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x, each = (i64)H * COLUMNS;
  if (n >= models * each) return;
  const int column = n % COLUMNS, unit = n / COLUMNS % H;
  const i64 model = n / each;
  const int *opened_at = moments + model * 2 * H, closed_at = opened_at[H + unit];
  const bool written = (column < H ? opened_at[column] : 0) < closed_at;
  const float4 *part = parts + model * tiles * each + n % each;
  float sums[4] = {0};
#pragma unroll 4
  for (int tile = 0; tile < tiles; tile++)
    if (written || whole[model * tiles + tile]) {
      const float4 v = part[tile * each];
      sums[0] += v.x, sums[1] += v.y, sums[2] += v.z, sums[3] += v.w;
    }
#pragma unroll
  for (int g = 0; g < 4; g++) {
    const i64 out = model * 4 * H + g * H + unit;
    if (column < H) dw_hh[out * H + column] = sums[g];
    else if (column < H + D) dw_ih[out * D + column - H] = sums[g];
    else db[out] = sums[g];
  }
}

#define STEPS 4 // that a warp of finish_k takes: their loads go together

// Adds up dk over the tiles of each model, and takes it apart: 0 where a unit is closed.
extern "C" __global__ void finish_k(const float *__restrict__ pairs, const int *__restrict__ records, const int *__restrict__ steps,
                                    const int *__restrict__ counts, const i64 *__restrict__ firsts, float *__restrict__ dk, int T, int tiles) {
  const int lane = threadIdx.x & 31, begin = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * STEPS;
  const i64 model = blockIdx.y, first = firsts[model], own = counts[model * COUNTS + PAIRS_AT];
  int unit[STEPS];
  i64 pair[STEPS];
  float sums[STEPS];
#pragma unroll
  for (int n = 0; n < STEPS; n++) {
    const int t = begin + n < T ? begin + n : T - 1;
    const int *record = records + (model * T + (first < 0 ? 0 : steps[model * T + t])) * RECORD;
    const u32 open = record[OPEN_AT];
    const bool there = begin + n < T && first >= 0 && (open >> lane & 1);
    unit[n] = there ? record[UNITS_AT + lane] : -1, sums[n] = 0;
    pair[n] = there ? record[FIRST_AT] + (i64)(t - record[START_AT]) * __popc(open) + __popc(open & ((1u << lane) - 1)) : 0;
  }
#pragma unroll 4
  for (int tile = 0; tile < tiles; tile++)
#pragma unroll
    for (int n = 0; n < STEPS; n++)
      if (unit[n] >= 0) sums[n] += pairs[first + tile * own + pair[n]];
#pragma unroll
  for (int n = 0; n < STEPS; n++) {
    float *out = dk + (model * T + begin + n) * H;
    if (begin + n < T)
      for (int u = lane; u < H; u += 32) out[u] = 0;
    __syncwarp();
    if (unit[n] >= 0) out[unit[n]] = sums[n];
  }
}
