// One step of a layer too large for the registers of a cluster: one launch per step. A block takes 16 units and 32
// samples; its warps share the products, whose weights are stored in the order in which a matrix instruction reads them.
//
// Constants, besides cell.cuh's: H units, K_PER_SAMPLE.

#define BLOCKS ((H + 15) / 16)       // of units
#define WARPS 4
#define THREADS (WARPS * 32)
#define TILES 4                      // of 8 samples, in a block
#define SAMPLES (TILES * TILE)
#define CELLS (16 * SAMPLES / THREADS)

// Pieces: the right sides of products, 16 numbers of 8 samples in 32 pairs of 32-bit words; in EXACT mode a second half of
// all of them holds what they round off. The place of one number, in 16-bit words, where a piece is (block, tile of samples).
__device__ __forceinline__ i64 in_piece(i64 piece, int number, int sample) {
  return (piece * 32 + sample * 4 + number % 8 / 2) * 4 + number / 8 * 2 + number % 2;
}
__device__ __forceinline__ void write_piece(u16 *pieces, i64 rests, i64 place, float v) {
  const u32 rounded = pack_half(v, 0);
  pieces[place] = (u16)rounded;
  if (EXACT) pieces[rests + place] = (u16)pack_rest(v, 0, rounded);
}

// The recurrent weights as left sides, a warp each: of (unit block, gate, block they come from) for the forward pass, of
// (block they come from, unit block, gate) transposed for the backward pass; then what they round off.
extern "C" __global__ void pack_weights(const float *__restrict__ w_hh, uint4 *__restrict__ packed, int models, int transposed) {
  const i64 n = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32, all = (i64)models * BLOCKS * 4 * BLOCKS;
  if (n >= all) return;
  const int gate = transposed ? n % 4 : n / BLOCKS % 4;
  const int rows = n / (4 * BLOCKS) % BLOCKS, columns = transposed ? n / 4 % BLOCKS : n % BLOCKS;
  const float *w = w_hh + n / (4 * BLOCKS) / BLOCKS * 4 * H * H;
  u32 r[4];
  uint4 rest;
  load_weights(r, &rest, rows * 16, columns * 16, [&](int row, int column) {
    const int unit = transposed ? column : row, from = transposed ? row : column;
    return unit < H && from < H ? w[(gate * H + unit) * H + from] : 0.0f;
  });
  packed[n * 32 + (threadIdx.x & 31)] = make_uint4(r[0], r[1], r[2], r[3]);
  if (EXACT) packed[(all + n) * 32 + (threadIdx.x & 31)] = rest;
}

// h0 (M, B, H) into the pieces that the first step reads.
extern "C" __global__ void pack_h(const float *__restrict__ h0, u16 *__restrict__ pieces, i64 rests, i64 cells, int B, int tiles) {
  const i64 cell = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (cell >= cells) return;
  const int unit = cell % H, sample = cell / H % B;
  const i64 model = cell / H / B;
  write_piece(pieces, rests, in_piece((model * tiles + sample / TILE) * BLOCKS + unit / 16, unit % 16, sample % TILE), h0[cell]);
}

struct Where {
  int block, warp, lane, first_sample, model;
  i64 first_tile; // of all models' tiles
};
__device__ __forceinline__ Where my_place(int tiles) {
  const int groups = tiles / TILES, model = blockIdx.y / groups, group = blockIdx.y % groups;
  return {(int)blockIdx.x, (int)threadIdx.x >> 5, (int)threadIdx.x & 31, group * SAMPLES, model, (i64)model * tiles + group * TILES};
}
// One of a thread's cells: `row` and `column` in the block's 16 units x 32 samples, `cell` in (M, B, H).
struct Cell {
  int row, column, unit, sample;
  i64 cell;
  bool there;
};
__device__ __forceinline__ Cell cell_of(const Where &at, int n, int B) {
  const int one = threadIdx.x + n * THREADS, row = one % 16, column = one / 16;
  const int unit = at.block * 16 + row, sample = at.first_sample + column;
  return {row, column, unit, sample, ((i64)at.model * B + sample) * H + unit, unit < H && sample < B};
}
// A warp's sums for 16 units x 8 samples, to where the block adds them up.
__device__ __forceinline__ void hand_in(float (*table)[SAMPLES + 1], const float sums[4], const Where &at, int tile) {
#pragma unroll
  for (int n = 0; n < 4; n++) table[at.lane / 4 + (n >> 1) * 8][tile * TILE + at.lane % 4 * 2 + (n & 1)] = sums[n];
}
__device__ __forceinline__ float openness(const float *k, int model, const Cell &my, int T, int B, int t) {
  const i64 step = (i64)model * T + t;
  return k[(K_PER_SAMPLE ? step * B + my.sample : step) * H + my.unit];
}

// gates: (T, M, B, 4H), the input's share on the way in. h, c: (T + 1, M, B, H), before every step and after the last.
// pieces: of h, two sets that alternate.
extern "C" __global__ void __launch_bounds__(THREADS)
step_forward(const uint4 *__restrict__ weights, u16 *__restrict__ pieces, i64 rests, float *__restrict__ gates,
             const float *__restrict__ k, float *__restrict__ h, float *__restrict__ c, int models, int T, int B, int tiles, int t) {
  __shared__ float parts[WARPS][4][16][SAMPLES + 1];
  const Where at = my_place(tiles);
  const i64 set = (i64)models * tiles * BLOCKS * 128; // 16-bit words of all pieces
  const u16 *from = pieces + (t & 1) * set;
  u16 *to = pieces + ((t + 1) & 1) * set;
  float sums[4][TILES][4] = {{{0}}}, small[4][TILES][4] = {{{0}}};
#pragma unroll 2
  for (int block = at.warp; block < BLOCKS; block += WARPS) {
    uint2 q[TILES], q_rest[TILES];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
      const i64 place = ((at.first_tile + tile) * BLOCKS + block) * 32 + at.lane;
      q[tile] = ((const uint2 *)from)[place];
      if (EXACT) q_rest[tile] = ((const uint2 *)(from + rests))[place];
    }
#pragma unroll
    for (int gate = 0; gate < 4; gate++) {
      const i64 n = (((i64)at.model * BLOCKS + at.block) * 4 + gate) * BLOCKS + block;
      const uint4 w = weights[n * 32 + at.lane], *rest = weights + ((i64)models * BLOCKS * 4 * BLOCKS + n) * 32 + at.lane;
      const u32 r[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int tile = 0; tile < TILES; tile++) {
        const u32 right[2] = {q[tile].x, q[tile].y}, right_rest[2] = {q_rest[tile].x, q_rest[tile].y};
        accumulate(sums[gate][tile], small[gate][tile], r, rest, right, right_rest);
      }
    }
  }
#pragma unroll
  for (int gate = 0; gate < 4; gate++)
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
      for (int n = 0; n < 4; n++)
        if (EXACT) sums[gate][tile][n] = fmaf(small[gate][tile][n], 1 / REST, sums[gate][tile][n]);
      hand_in(parts[at.warp][gate], sums[gate][tile], at, tile);
    }
  __syncthreads();
  const i64 cells = (i64)models * B * H;
  for (int n = 0; n < CELLS; n++) {
    const Cell my = cell_of(at, n, B);
    if (!my.there) continue;
    const i64 before = t * cells + my.cell;
    float *drive = gates + before / H * 4 * H + my.unit, v[4];
    for (int gate = 0; gate < 4; gate++) {
      v[gate] = drive[gate * H];
      for (int warp = 0; warp < WARPS; warp++) v[gate] += parts[warp][gate][my.row][my.column];
    }
    float c_now = c[before], h_now = h[before];
    step_cell(v, openness(k, at.model, my, T, B, t), c_now, h_now);
    for (int gate = 0; gate < 4; gate++) drive[gate * H] = v[gate];
    c[before + cells] = c_now, h[before + cells] = h_now;
    write_piece(to, rests, in_piece((at.first_tile + my.column / TILE) * BLOCKS + at.block, my.row, my.column % TILE), h_now);
  }
}

// Step t backward, from the slopes of step t + 1 on; t = -1 only finds the gradient of the first h. dh_out, dc_out:
// (T, M, B, H) or null. dh and dc: (M, B, H), of the last state to begin with. da: (T, M, B, 4H), dk: (T, M, B, H).
// pieces: of slopes, two sets that alternate, scaled by powers of two that `backs` (2, blocks of a launch) undo.
extern "C" __global__ void __launch_bounds__(THREADS)
step_backward(const uint4 *__restrict__ weights, u16 *__restrict__ pieces, i64 rests, float *__restrict__ backs,
              const float *__restrict__ gates, const float *__restrict__ k, const float *__restrict__ h,
              const float *__restrict__ c, const float *__restrict__ dh_out, const float *__restrict__ dc_out,
              float *__restrict__ dh, float *__restrict__ dc, float *__restrict__ da, float *__restrict__ dk, int models,
              int T, int B, int tiles, int t) {
  __shared__ float parts[WARPS][16][SAMPLES + 1];
  __shared__ u32 largest_of_warp[WARPS];
  const Where at = my_place(tiles);
  const i64 set = (i64)models * tiles * BLOCKS * 4 * 128;
  const u16 *from = pieces + ((t + 1) & 1) * set;
  u16 *to = pieces + (t & 1) * set;
  const float *backs_from = backs + (i64)((t + 1) & 1) * gridDim.x * gridDim.y + blockIdx.y * BLOCKS;
  float *backs_to = backs + (i64)(t & 1) * gridDim.x * gridDim.y + blockIdx.y * BLOCKS;
  float sums[TILES][4] = {{0}};
  if (t + 1 < T)
    for (int block = at.warp; block < BLOCKS; block += WARPS) {
      const float back = backs_from[block];
      float part[TILES][4] = {{0}}, small[TILES][4] = {{0}};
#pragma unroll
      for (int gate = 0; gate < 4; gate++) {
        const i64 n = (((i64)at.model * BLOCKS + at.block) * BLOCKS + block) * 4 + gate;
        const uint4 w = weights[n * 32 + at.lane], *rest = weights + ((i64)models * BLOCKS * 4 * BLOCKS + n) * 32 + at.lane;
        const u32 r[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
          const i64 place = (((at.first_tile + tile) * BLOCKS + block) * 4 + gate) * 32 + at.lane;
          const uint2 q = ((const uint2 *)from)[place], q_rest = EXACT ? ((const uint2 *)(from + rests))[place] : q;
          const u32 right[2] = {q.x, q.y}, right_rest[2] = {q_rest.x, q_rest.y};
          accumulate(part[tile], small[tile], r, rest, right, right_rest);
        }
      }
#pragma unroll
      for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int n = 0; n < 4; n++)
          sums[tile][n] = fmaf(back, EXACT ? fmaf(small[tile][n], 1 / REST, part[tile][n]) : part[tile][n], sums[tile][n]);
    }
#pragma unroll
  for (int tile = 0; tile < TILES; tile++) hand_in(parts[at.warp], sums[tile], at, tile);
  __syncthreads();
  const i64 cells = (i64)models * B * H;
  Known known[CELLS];
  float dh_now[CELLS], dc_now[CELLS];
  u32 most = 0;
#pragma unroll
  for (int n = 0; n < CELLS; n++) {
    const Cell my = cell_of(at, n, B);
    if (!my.there) continue;
    dh_now[n] = dh[my.cell], dc_now[n] = dc[my.cell];
    for (int warp = 0; warp < WARPS; warp++) dh_now[n] += parts[warp][my.row][my.column];
    if (t < 0) {
      dh[my.cell] = dh_now[n];
      continue;
    }
    const i64 before = t * cells + my.cell;
    dh_now[n] += dh_out ? dh_out[before] : 0, dc_now[n] += dc_out ? dc_out[before] : 0;
    const float *g = gates + before / H * 4 * H + my.unit, v[4] = {g[0], g[H], g[2 * H], g[3 * H]};
    known[n].find(v, c[before], h[before], openness(k, at.model, my, T, B, t));
    const u32 bound = __float_as_uint(known[n].bound(dh_now[n], dc_now[n]));
    most = max(most, bound < INFINITE ? bound : 0); // one sample that is not finite must not change others
  }
  if (t < 0) return;
  most = __reduce_max_sync(0xffffffffu, most);
  if (at.lane == 0) largest_of_warp[at.warp] = most;
  __syncthreads();
  for (int warp = 0; warp < WARPS; warp++) most = max(most, largest_of_warp[warp]);
  float back, scale = scale_for(most, &back);
  if (threadIdx.x == 0) backs_to[at.block] = back;
#pragma unroll
  for (int n = 0; n < CELLS; n++) {
    const Cell my = cell_of(at, n, B);
    if (!my.there) continue;
    const i64 before = t * cells + my.cell;
    float slopes[4], dk_now;
    known[n].step(dh_now[n], dc_now[n], scale, slopes, dk_now);
    for (int gate = 0; gate < 4; gate++) {
      da[before / H * 4 * H + gate * H + my.unit] = slopes[gate] * back;
      const i64 piece = ((at.first_tile + my.column / TILE) * BLOCKS + at.block) * 4 + gate;
      write_piece(to, rests, in_piece(piece, my.row, my.column % TILE), slopes[gate]);
    }
    dk[before] = dk_now, dh[my.cell] = dh_now[n], dc[my.cell] = dc_now[n];
  }
}
