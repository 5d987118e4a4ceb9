// gates: (T, M, B, 4H), the input's share on the way in. h, c: (T + 1, M, B, H), before every step and after the last.
// ring: [2][COPIES][M, pairs of samples][EIGHTS][2] messages of h. A block takes its tiles of samples one after the other at every step:
// while the messages of one are on their way, it computes another.

#define STRIDE 36                             // vectors of four gates
#define PARTS (WARPS * SUBS * 4 * STRIDE)     // in one of two buffers
#define STAGED (ROWS * UNITS / 8)             // messages that a block sends of a tile

struct Arriving { // a chunk
  uint4 h[2], rest[2];
  __device__ __forceinline__ void read(const uint4 *from, i64 copy, const Where &at, int n, bool again, u32 tag) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int eight = at.chunk(n) * 4 + half * 2 + at.quarter / 2;
      const uint4 *message = from + eight_there(eight) * 2 + at.quarter % 2;
      read_message(h[half], message, !again || is_late(h[half], tag));
      if (EXACT) read_message(rest[half], message + copy, !again || is_late(rest[half], tag));
    }
  }
  __device__ __forceinline__ bool late(u32 tag) const {
    bool some = is_late(h[0], tag) | is_late(h[1], tag);
    if (EXACT) some |= is_late(rest[0], tag) | is_late(rest[1], tag);
    return some;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
wide_forward(const float *__restrict__ w_hh, const float *__restrict__ k, const float *__restrict__ h0,
             const float *__restrict__ c0, float *__restrict__ gates, float *__restrict__ h, float *__restrict__ c, uint4 *ring,
             int models, int T, int B, int groups, int most_tiles, int first_model) {
  float4 *parts = (float4 *)(rest_of_weights + RESTS);
  uint4 *staged = rest_of_weights + RESTS + 2 * PARTS;
  float2 *states = (float2 *)(rest_of_weights + RESTS + 2 * PARTS + COPIES * STAGED);
  const Where at = my_place(groups, most_tiles, first_model, B);
  const int tiles = at.tiles;
  const i64 cells = (i64)models * B * H, copy = (i64)models * at.pairs * EIGHTS * 2;
  w_hh += (i64)at.model * 4 * H * H;
  u32 r[OWN][PRODUCTS][4];
#pragma unroll
  for (int n = 0; n < OWN; n++)
#pragma unroll
    for (int column = 0; column < PRODUCTS; column++) {
      const int gate = column / SUBS, unit = blockIdx.x * UNITS + column % SUBS * 8 + at.row;
      load_eight(r[n][column], rest_at(n * PRODUCTS + column), [&](int m) {
        const int from = at.chunk(n) * 32 + m / 4 * 16 + at.quarter * 4 + m % 4;
        return unit < H && from < H ? w_hh[((i64)gate * H + unit) * H + from] : 0.0f;
      });
    }

  // Where a thread's message of a tile goes to: one of the four of a warp's cells, or of their rests. Known before the loop,
  // because all blocks wait for it.
  const int which = at.lane / 4;
  const i64 slot = COPIES * copy, tile_step = ROWS / 2 * EIGHTS * 2;
  int message[CELLS];
  uint4 *to[CELLS];
#pragma unroll
  for (int n = 0; n < CELLS; n++) {
    message[n] = (threadIdx.x + n * THREADS - at.lane) / 8 + at.lane % 4;
    const i64 pair = (i64)at.model * at.pairs + at.first_sample / 2 + message[n] / (SUBS * 2);
    to[n] = ring + which * copy + (pair * EIGHTS + blockIdx.x * SUBS) * 2 + message[n] % (SUBS * 2);
  }
  auto pass_on = [&](int step, int tile, int n, const Cell &my, float value) {
    stage(staged, staged + STAGED, my.row / 2 * SUBS * 2 + my.own / 4, my, value, tag_of(step));
    __syncwarp();
    if (which < COPIES && at.first_sample + tile * ROWS + message[n] / (SUBS * 2) * 2 < B)
      write_message(to[n] + (step & 1 ? slot : 0) + tile * tile_step, staged[which * STAGED + message[n]]);
  };

  // What a turn needs is loaded two turns ahead: one is not always longer than memory takes.
  float next_drive[CELLS][4], next_k[CELLS], later_drive[CELLS][4] = {{0}}, later_k[CELLS] = {0};
  int later_t = 0, later_tile = 0;
  auto fetch = [&]() {
#pragma unroll
    for (int n = 0; n < CELLS; n++) {
      const Cell my = cell_of(at, later_tile, n);
      const bool wanted = my.real && later_t < T;
      const float *drive = gates + (later_t * cells + my.cell - my.unit) * 4 + my.unit;
#pragma unroll
      for (int gate = 0; gate < 4; gate++) {
        next_drive[n][gate] = later_drive[n][gate];
        load_early(later_drive[n][gate], drive + gate * H, wanted);
      }
      next_k[n] = later_k[n];
      load_early(later_k[n], k + openness_at(at, my, T, later_t), wanted);
    }
    if (++later_tile == tiles) later_tile = 0, later_t++;
  };
  for (int tile = 0; tile < tiles; tile++)
#pragma unroll
    for (int n = 0; n < CELLS; n++) {
      const Cell my = cell_of(at, tile, n);
      if (!my.there) continue;
      const float2 state = my.real ? make_float2(c0[my.cell], h0[my.cell]) : make_float2(0, 0);
      states[tile * ROWS * UNITS + my.number] = state;
      if (my.real) c[my.cell] = state.x, h[my.cell] = state.y;
      pass_on(0, tile, n, my, state.y);
      __syncwarp();
    }
  fetch();
  fetch();

  int turn = 0;
  for (int t = 0; t < T; t++)
    for (int tile = 0; tile < tiles; tile++, turn ^= 1) {
      const uint4 *from = ring + (t & 1 ? slot : 0) + at.pair(tile) * EIGHTS * 2;
      const u32 tag = tag_of(t);
      Arriving arriving[OWN];
#pragma unroll
      for (int n = 0; n < OWN; n++) arriving[n].read(from, copy, at, n, false, tag);
      for (;;) {
        bool late = false;
#pragma unroll
        for (int n = 0; n < OWN; n++) late |= arriving[n].late(tag);
        if (!__any_sync(0xffffffffu, late)) break;
#pragma unroll
        for (int n = 0; n < OWN; n++) arriving[n].read(from, copy, at, n, true, tag);
      }
      float sums[PRODUCTS][4] = {{0}}, rests[PRODUCTS][4] = {{0}};
#pragma unroll
      for (int n = 0; n < OWN; n++) accumulate_eights<PRODUCTS, 1>(sums, rests, &arriving[n].h, &arriving[n].rest, r[n], n * PRODUCTS);
      float4 *mine = parts + turn * PARTS + at.warp * SUBS * 4 * STRIDE;
#pragma unroll
      for (int sub = 0; sub < SUBS; sub++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
          float v[4];
#pragma unroll
          for (int gate = 0; gate < 4; gate++) {
            const int column = gate * SUBS + sub;
            v[gate] = EXACT ? fmaf(rests[column][n], 1 / REST, sums[column][n]) : sums[column][n];
          }
          mine[part_at<STRIDE>(sub, n, at.lane)] = make_float4(v[0], v[1], v[2], v[3]);
        }
      __syncthreads(); // and one a turn is enough: the next turn writes the other buffer
#pragma unroll
      for (int n = 0; n < CELLS; n++) {
        const Cell my = cell_of(at, tile, n);
        if (!my.there) continue; // whole warps
        float v[4] = {next_drive[n][0], next_drive[n][1], next_drive[n][2], next_drive[n][3]};
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++) {
          const float4 part = parts[turn * PARTS + warp * SUBS * 4 * STRIDE + part_of<STRIDE>(my)];
          v[0] += part.x, v[1] += part.y, v[2] += part.z, v[3] += part.w;
        }
        float2 state = states[tile * ROWS * UNITS + my.number];
        step_cell(v, my.real ? next_k[n] : 0, state.x, state.y);
        if (t + 1 < T) pass_on(t + 1, tile, n, my, state.y);
        states[tile * ROWS * UNITS + my.number] = state;
        if (my.real) {
          const i64 after = (t + 1) * cells + my.cell;
          float *made = gates + (t * cells + my.cell - my.unit) * 4 + my.unit;
#pragma unroll
          for (int gate = 0; gate < 4; gate++) made[gate * H] = v[gate];
          c[after] = state.x, h[after] = state.y;
        }
      }
      fetch();
    }
}
