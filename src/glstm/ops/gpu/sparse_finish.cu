// Adds up `parts` over the tiles of each model, into torch's order: a thread a unit and a column.
extern "C" __global__ void finish_weights(const float4 *__restrict__ parts, float *__restrict__ dw_ih, float *__restrict__ dw_hh,
                                          float *__restrict__ db, int models, int tiles) {
  const i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x, each = (i64)H * COLUMNS;
  if (n >= models * each) return;
  const int column = n % COLUMNS, unit = n / COLUMNS % H;
  const i64 model = n / each;
  const float4 *part = parts + model * tiles * each + n % each;
  float sums[4] = {0};
#pragma unroll 4
  for (int tile = 0; tile < tiles; tile++) {
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

// Adds up dk over the tiles of each model, and takes it apart: a warp a step, 0 where a unit is closed.
extern "C" __global__ void finish_k(const float *__restrict__ pairs, const int *__restrict__ records, const int *__restrict__ steps,
                                    const int *__restrict__ counts, float *__restrict__ dk, i64 room, int T, int models, int tiles) {
  const int lane = threadIdx.x & 31, t = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const Place at = {lane, lane >> 2, lane & 3, (int)blockIdx.y, 0};
  const i64 step = (i64)at.model * T + t, first = first_row(counts, at, models, tiles, room);
  if (t >= T) return;
  for (int u = lane; u < H; u += 32) dk[step * H + u] = 0;
  if (first < 0) return;
  const int *record = records + ((i64)at.model * T + steps[step]) * RECORD;
  const u32 open = record[OPEN_AT];
  __syncwarp();
  if (!(open >> lane & 1)) return;
  const i64 own = counts[at.model * COUNTS + PAIRS_AT];
  const float *from = pairs + first + record[FIRST_AT] + (i64)(t - record[START_AT]) * __popc(open) + __popc(open & ((1u << lane) - 1));
  float sum = 0;
#pragma unroll 4
  for (int tile = 0; tile < tiles; tile++) sum += from[tile * own];
  dk[step * H + record[UNITS_AT + lane]] = sum;
}
