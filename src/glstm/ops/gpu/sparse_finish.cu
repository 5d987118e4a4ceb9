// Sums over the tiles of each model. Where there are many tiles, `groups` of a block's threads take every so many of them,
// and what they find is added up in the order of the groups.

// The sum of `parts`, into torch's order: a thread a unit and a column. A unit's weights have a gradient from those that
// opened before it closed; what was not written is not read.
extern "C" __global__ void finish_weights(const float4 *__restrict__ parts, const int *__restrict__ whole, const int *__restrict__ moments,
                                          float *__restrict__ dw_ih, float *__restrict__ dw_hh, float *__restrict__ db, int models, int tiles, int groups) {
  __shared__ __align__(16) float4 found[256];
  const int together = blockDim.x / groups, group = threadIdx.x / together;
  const i64 n = (i64)blockIdx.x * together + threadIdx.x % together, each = (i64)H * COLUMNS;
  const bool there = n < models * each;
  const i64 model = there ? n / each : 0;
  const int column = n % COLUMNS, unit = n / COLUMNS % H;
  const int *opened_at = moments + model * 2 * H, closed_at = opened_at[H + unit];
  const bool written = (column < H ? opened_at[column] : 0) < closed_at;
  const float4 *part = parts + model * tiles * each + n % each;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
  for (int tile = group; tile < tiles; tile += groups)
    if (there && (written || whole[model * tiles + tile])) {
      const float4 v = part[tile * each];
      sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
  if (groups > 1) {
    found[threadIdx.x] = sum;
    __syncthreads();
    for (int other = 1; other < groups && group == 0; other++) {
      const float4 v = found[other * together + threadIdx.x];
      sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
  }
  if (!there || group > 0) return;
#pragma unroll
  for (int g = 0; g < 4; g++) {
    const i64 out = model * 4 * H + g * H + unit;
    if (column < H) dw_hh[out * H + column] = (&sum.x)[g];
    else if (column < H + D) dw_ih[out * D + column - H] = (&sum.x)[g];
    else db[out] = (&sum.x)[g];
  }
}

#define STEPS 4 // that a warp of finish_k takes: their loads go together

// The sum of dk, taken apart: 0 where a unit is closed.
extern "C" __global__ void finish_k(const float *__restrict__ pairs, const int *__restrict__ records, const int *__restrict__ steps,
                                    const int *__restrict__ counts, const i64 *__restrict__ firsts, float *__restrict__ dk, int T, int tiles, int groups) {
  __shared__ __align__(16) float4 found[256];
  const int together = blockDim.x / 32 / groups, warp = threadIdx.x / 32, group = warp / together;
  const int lane = threadIdx.x & 31, begin = (blockIdx.x * together + warp % together) * STEPS;
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
  for (int tile = group; tile < tiles; tile += groups)
#pragma unroll
    for (int n = 0; n < STEPS; n++)
      if (unit[n] >= 0) sums[n] += pairs[first + tile * own + pair[n]];
  if (groups > 1) {
    found[threadIdx.x] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    __syncthreads();
    for (int other = 1; other < groups && group == 0; other++) {
      const float4 v = found[other * together * 32 + threadIdx.x];
      sums[0] += v.x, sums[1] += v.y, sums[2] += v.z, sums[3] += v.w;
    }
  }
  if (group > 0) return;
#pragma unroll
  for (int n = 0; n < STEPS; n++) {
    float *out = dk + (model * T + begin + n) * H;
    if (begin + n < T)
      for (int u = lane; u < H; u += 32) out[u] = 0;
    __syncwarp();
    if (unit[n] >= 0) out[unit[n]] = sums[n];
  }
}
