// dh_out, dc_out: (T, M, B, H) or null. dh, dc: (M, B, H), of the last state on the way in, of the first on the way out.
// da: (T, M, B, 4H), dk: (T, M, B, H). ring: [2][COPIES][M, pairs of samples][EIGHTS][2][4 gates] messages of slopes. They
// are scaled by powers of two, one for each sample's eight units, that `backs` [2][M, pairs][2][CHUNKS][4] undo, which have
// a tag each.

#define STRIDE 40                             // numbers
#define PARTS (WARPS * SUBS * 4 * STRIDE / 4) // vectors in one of two buffers
#define STAGED (ROWS * UNITS / 2)
// Messages are read lot by lot; so many lots are on their way at once as registers allow.
#define LOT (EXACT ? 2 : 4)                   // eights
#define LOTS (4 / LOT * OWN)                  // of a warp
#define WINDOW (LOTS > 1 && WARPS <= 8 ? 2 : 1)

struct Arriving { // a lot
  uint4 da[LOT][2], rest[LOT][2], backs[2];
  int chunk, first; // eight
  __device__ __forceinline__ void begin(const Where &at, int lot) {
    chunk = at.chunk(lot * LOT / 4), first = chunk * 4 + lot * LOT % 4;
    chunk = WHOLE || chunk < CHUNKS ? chunk : CHUNKS - 1;
  }
  __device__ __forceinline__ bool late_backs(int half, u32 tag) const { // nobody sends those of eights past the last
    const u32 v[4] = {backs[half].x, backs[half].y, backs[half].z, backs[half].w};
    bool late = false;
#pragma unroll
    for (int n = 0; n < 4; n++) late |= (WHOLE || chunk * 4 + n < EIGHTS) && (v[n] & 1) != tag;
    return late;
  }
  __device__ __forceinline__ void read_backs(const uint4 *backs_from, bool again, u32 tag) {
#pragma unroll
    for (int half = 0; half < 2; half++) read_message(backs[half], backs_from + half * CHUNKS + chunk, !again || late_backs(half, tag));
  }
  __device__ __forceinline__ void read(const uint4 *from, i64 copy, const uint4 *backs_from, bool again, u32 tag) {
    read_backs(backs_from, again, tag);
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
      for (int n = 0; n < LOT; n++) {
        const uint4 *message = from + eight_there(first + n) * 8 + half * 4;
        read_message(da[n][half], message, !again || is_late(da[n][half], tag));
        if (EXACT) read_message(rest[n][half], message + copy, !again || is_late(rest[n][half], tag));
      }
    }
  }
  __device__ __forceinline__ bool late(u32 tag) const {
    bool some = late_backs(0, tag) | late_backs(1, tag);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int n = 0; n < LOT; n++) {
        some |= is_late(da[n][half], tag);
        if (EXACT) some |= is_late(rest[n][half], tag);
      }
    return some;
  }
  __device__ __forceinline__ float back(int eight, int half) const { return __uint_as_float((&backs[half].x)[eight] & ~1u); }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
wide_backward(const float *__restrict__ w_hh, const float *__restrict__ k, const float *__restrict__ gates,
              const float *__restrict__ h, const float *__restrict__ c, const float *__restrict__ dh_out,
              const float *__restrict__ dc_out, float *__restrict__ dh, float *__restrict__ dc, float *__restrict__ da,
              float *__restrict__ dk, uint4 *ring, u32 *backs, int models, int T, int B, int groups, int most_tiles, int first_model) {
  float *parts = (float *)(rest_of_weights + RESTS);
  uint4 *staged = rest_of_weights + RESTS + 2 * PARTS;
  float2 *states = (float2 *)(rest_of_weights + RESTS + 2 * PARTS + COPIES * STAGED);
  const Where at = my_place(groups, most_tiles, first_model, B);
  const int tiles = at.tiles;
  const i64 pairs = (i64)models * at.pairs, cells = (i64)models * B * H, copy = pairs * EIGHTS * 8;
  w_hh += (i64)at.model * 4 * H * H;
  // Transposed: columns are the units that h comes from, a thread's eight are those of one gate.
  u32 r[OWN * PRODUCTS][4];
#pragma unroll
  for (int n = 0; n < OWN * PRODUCTS; n++) {
    const int eight = at.chunk(n / PRODUCTS) * 4 + n / SUBS % 4, from = blockIdx.x * UNITS + n % SUBS * 8 + at.row;
    load_eight(r[n], rest_at(n), [&](int m) {
      const int unit = eight * 8 + m;
      return unit < H && from < H ? w_hh[((i64)at.quarter * H + unit) * H + from] : 0.0f;
    });
  }

  // Where a thread's message of a tile goes to: one of the 16 of a warp's cells, or of their rests; and what undoes their
  // scale. Known before the loop, because all blocks wait for it.
  const int which = at.lane / 16;
  const i64 slot = COPIES * copy, tile_step = ROWS / 2 * EIGHTS * 8;
  int message[CELLS];
  uint4 *to[CELLS];
  u32 *back_to[CELLS];
#pragma unroll
  for (int n = 0; n < CELLS; n++) {
    message[n] = (threadIdx.x + n * THREADS - at.lane) / 2 + at.lane % 16;
    const i64 pair = (i64)at.model * at.pairs + at.first_sample / 2 + message[n] / (SUBS * 8);
    to[n] = ring + which * copy + (pair * EIGHTS + blockIdx.x * SUBS) * 8 + message[n] % (SUBS * 8);
    const Cell my = cell_of(at, 0, n);
    back_to[n] = backs + ((i64)at.model * at.pairs * 2 + my.sample) * CHUNKS * 4 + my.unit / 8;
  }
  auto pass_on = [&](int step, int tile, int n, const Cell &my, const float slopes[4], float back) {
    const u32 tag = tag_of(step);
#pragma unroll
    for (int gate = 0; gate < 4; gate++)
      stage(staged, staged + STAGED, (my.row / 2 * SUBS + my.own / 8) * 8 + (my.own & 4) + gate, my, slopes[gate], tag);
    __syncwarp();
    if (which < COPIES && at.first_sample + tile * ROWS + message[n] / (SUBS * 8) * 2 < B)
      write_message(to[n] + (step & 1 ? slot : 0) + tile * tile_step, staged[which * STAGED + message[n]]);
    if (my.own % 8 == 0 && my.sample / 2 < at.pairs)
      write_message(back_to[n] + (step & 1 ? pairs * 2 * CHUNKS * 4 : 0) + tile * ROWS * CHUNKS * 4, __float_as_uint(back) | tag);
  };

  // What the next turn needs is loaded while this one is computed.
  struct Loaded { float gates[4], c, h, k, dh, dc; } next[CELLS];
#pragma unroll
  for (int n = 0; n < CELLS; n++) next[n] = Loaded();
  auto fetch = [&](int t, int tile) {
#pragma unroll
    for (int n = 0; n < CELLS; n++) {
      const Cell my = cell_of(at, tile, n);
      const i64 before = t * cells + my.cell;
      const float *made = gates + (before - my.unit) * 4 + my.unit;
#pragma unroll
      for (int gate = 0; gate < 4; gate++) load_early(next[n].gates[gate], made + gate * H, my.real);
      load_early(next[n].c, c + before, my.real);
      load_early(next[n].h, h + before, my.real);
      load_early(next[n].k, k + openness_at(at, my, T, t), my.real);
      load_early(next[n].dh, dh_out + before, my.real && dh_out);
      load_early(next[n].dc, dc_out + before, my.real && dc_out);
    }
  };
  for (int tile = 0; tile < tiles; tile++)
#pragma unroll
    for (int n = 0; n < CELLS; n++) {
      const Cell my = cell_of(at, tile, n);
      if (my.there) states[tile * ROWS * UNITS + my.number] = my.real ? make_float2(dh[my.cell], dc[my.cell]) : make_float2(0, 0);
    }
  fetch(T - 1, 0);

  int turn = 0;
  for (int t = T - 1; t >= -1; t--) // the last turn only finds the gradient of the first h
    for (int tile = 0; tile < tiles; tile++, turn ^= 1) {
      Known known[CELLS];
      float dh_here[CELLS], dc_here[CELLS];
#pragma unroll
      for (int n = 0; n < CELLS; n++) {
        const bool real = cell_of(at, tile, n).real;
        known[n].find(next[n].gates, next[n].c, next[n].h, real ? next[n].k : 0);
        dh_here[n] = real ? next[n].dh : 0, dc_here[n] = real ? next[n].dc : 0;
      }
      const bool last_tile = tile + 1 == tiles;
      if (t > 0 || (t == 0 && !last_tile)) fetch(last_tile ? t - 1 : t, last_tile ? 0 : tile + 1);
      float sums[SUBS][4] = {{0}};
      if (t + 1 < T) {
        const int step = T - 2 - t; // whose slopes arrive, counted from the last
        const i64 pair = at.pair(tile);
        const uint4 *from = ring + (step & 1 ? slot : 0) + pair * EIGHTS * 8 + at.quarter;
        const uint4 *backs_from = (const uint4 *)backs + ((step & 1 ? pairs : 0) + pair) * 2 * CHUNKS;
        const u32 tag = tag_of(step);
        Arriving arriving[WINDOW];
#pragma unroll
        for (int lot = 0; lot < WINDOW; lot++) {
          arriving[lot].begin(at, lot);
          arriving[lot].read(from, copy, backs_from, false, tag);
        }
#pragma unroll
        for (int lot = 0; lot < LOTS; lot++) {
          Arriving &now = arriving[lot % WINDOW];
          while (__any_sync(0xffffffffu, now.late(tag))) // those behind it are read again, too
#pragma unroll
            for (int n = lot; n < lot + WINDOW && n < LOTS; n++) arriving[n % WINDOW].read(from, copy, backs_from, true, tag);
          constexpr int products = LOT * SUBS;
          const int first = lot * products;
          float found[products][4] = {{0}}, rests[products][4] = {{0}};
          accumulate_eights<products, LOT>(found, rests, now.da, now.rest, r + first, first);
#pragma unroll
          for (int n = 0; n < products; n++)
#pragma unroll
            for (int m = 0; m < 4; m++) {
              const float part = EXACT ? fmaf(rests[n][m], 1 / REST, found[n][m]) : found[n][m];
              sums[n % SUBS][m] = fmaf(now.back((lot * LOT + n / SUBS) % 4, m >> 1), part, sums[n % SUBS][m]);
            }
          if (lot + WINDOW < LOTS) {
            now.begin(at, lot + WINDOW);
            now.read(from, copy, backs_from, false, tag);
          }
        }
      }
      float *mine = parts + (turn * WARPS + at.warp) * SUBS * 4 * STRIDE;
#pragma unroll
      for (int sub = 0; sub < SUBS; sub++)
#pragma unroll
        for (int n = 0; n < 4; n++) mine[part_at<STRIDE>(sub, n, at.lane)] = sums[sub][n];
      __syncthreads(); // and one a turn is enough: the next turn writes the other buffer
#pragma unroll
      for (int n = 0; n < CELLS; n++) {
        const Cell my = cell_of(at, tile, n);
        if (!my.there) continue; // whole warps
        float2 state = states[tile * ROWS * UNITS + my.number];
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++) state.x += parts[(turn * WARPS + warp) * SUBS * 4 * STRIDE + part_of<STRIDE>(my)];
        if (t < 0) {
          if (my.real) dh[my.cell] = state.x, dc[my.cell] = state.y;
          continue;
        }
        state.x += dh_here[n], state.y += dc_here[n];
        float largest = known[n].bound(state.x, state.y), back, dk_now, slopes[4];
        largest = __float_as_uint(largest) < INFINITE ? largest : 0; // one that is not finite must not change others
#pragma unroll
        for (int mask = 1; mask < 8; mask *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, mask));
        const float scale = scale_for(__float_as_uint(largest), &back);
        known[n].step(state.x, state.y, scale, slopes, dk_now);
        pass_on(T - 1 - t, tile, n, my, slopes, back);
        states[tile * ROWS * UNITS + my.number] = state;
        if (my.real) {
          const i64 before = t * cells + my.cell;
          float *made = da + (before - my.unit) * 4 + my.unit;
#pragma unroll
          for (int gate = 0; gate < 4; gate++) made[gate * H] = slopes[gate] * back;
          dk[before] = dk_now;
        }
      }
    }
}
