// dh_out, dc_out: (T, M, B, H) or null. dh, dc: (M, B, H), of the last state on the way in, of the first on the way out.
// da: (T, M, B, 4H), dk: (T, M, B, H). ring: [2][COPIES][M, B][EIGHTS][4 gates] messages of slopes. They are scaled by
// powers of two, one for each sample's eight units, that `backs` [2][M, B][CHUNKS][4] undo, which have a tag each.

#define STRIDE 48                             // numbers
#define PARTS (WARPS * SUBS * 4 * STRIDE / 4) // vectors in one of two buffers
#define STAGED (ROWS * UNITS / 2)

struct Arriving { // a chunk's slopes of two samples
  uint4 da[4][2], rest[4][2], backs[2];
  __device__ __forceinline__ static bool late_backs(uint4 v, int chunk, u32 tag) {
    bool late = (v.x & 1) != tag;
    late |= chunk * 4 + 1 < EIGHTS && (v.y & 1) != tag; // nobody sends those past the last
    late |= chunk * 4 + 2 < EIGHTS && (v.z & 1) != tag;
    return late | (chunk * 4 + 3 < EIGHTS && (v.w & 1) != tag);
  }
  __device__ __forceinline__ void read(const uint4 *const from[2], i64 copy, const uint4 *const backs_from[2], int chunk, bool again, u32 tag) {
    const int there = chunk < CHUNKS ? chunk : CHUNKS - 1;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      read_message(backs[half], backs_from[half] + there, !again || late_backs(backs[half], there, tag));
#pragma unroll
      for (int n = 0; n < 4; n++) {
        const uint4 *message = from[half] + eight_there(there * 4 + n) * 4;
        read_message(da[n][half], message, !again || is_late(da[n][half], tag));
        if (EXACT) read_message(rest[n][half], message + copy, !again || is_late(rest[n][half], tag));
      }
    }
  }
  __device__ __forceinline__ bool late(int chunk, u32 tag) const {
    const int there = chunk < CHUNKS ? chunk : CHUNKS - 1;
    bool some = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      some |= late_backs(backs[half], there, tag);
#pragma unroll
      for (int n = 0; n < 4; n++) {
        some |= is_late(da[n][half], tag);
        if (EXACT) some |= is_late(rest[n][half], tag);
      }
    }
    return some;
  }
  __device__ __forceinline__ float back(int n, int half) const { return __uint_as_float((&backs[half].x)[n] & ~1u); }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
wide_backward(const float *__restrict__ w_hh, const float *__restrict__ k, const float *__restrict__ gates,
              const float *__restrict__ h, const float *__restrict__ c, const float *__restrict__ dh_out,
              const float *__restrict__ dc_out, float *__restrict__ dh, float *__restrict__ dc, float *__restrict__ da,
              float *__restrict__ dk, uint4 *ring, u32 *backs, int models, int T, int B, int groups, int tiles, int first_model) {
  float *parts = (float *)(rest_of_weights + RESTS);
  uint4 *staged = rest_of_weights + RESTS + 2 * PARTS;
  float2 *states = (float2 *)(rest_of_weights + RESTS + 2 * PARTS + COPIES * STAGED);
  const Where at = my_place(groups, tiles, first_model, B);
  const i64 rows = (i64)models * B, cells = rows * H, copy = rows * EIGHTS * 4;
  w_hh += (i64)at.model * 4 * H * H;
  // Transposed: columns are the units that h comes from, a thread's eight are those of one gate.
  u32 r[OWN][4][SUBS][4];
#pragma unroll
  for (int n = 0; n < OWN; n++)
#pragma unroll
    for (int eight = 0; eight < 4; eight++)
#pragma unroll
      for (int sub = 0; sub < SUBS; sub++) {
        const int from = blockIdx.x * UNITS + sub * 8 + at.row;
        load_eight(r[n][eight][sub], rest_at((n * 4 + eight) * SUBS + sub), [&](int m) {
          const int unit = (at.chunk(n) * 4 + eight) * 8 + m;
          return unit < H && from < H ? w_hh[((i64)at.quarter * H + unit) * H + from] : 0.0f;
        });
      }

  // Sends message n of the slopes of a warp's cells, and what undoes their scale.
  auto pass_on = [&](int n, const Cell &my, const float slopes[4], float back) {
    const u32 tag = tag_of(n);
#pragma unroll
    for (int gate = 0; gate < 4; gate++) {
      u16 rounded[2];
      round_for_message(rounded, slopes[gate], my.number % 8 == 0, tag);
      const int place = (my.number / 8 * 4 + gate) * 8 + my.number % 8;
      ((u16 *)staged)[place] = rounded[0];
      if (EXACT) ((u16 *)(staged + STAGED))[place] = rounded[1];
    }
    __syncwarp();
    const int which = at.lane / 16, vector = (my.number - at.lane) / 2 + at.lane % 16;
    const int sample = my.sample - my.row + vector * 2 / UNITS, eight = blockIdx.x * SUBS + vector / 4 % SUBS;
    if (which < COPIES && sample < B)
      write_message(ring + ((n & 1) * COPIES + which) * copy + (((i64)at.model * B + sample) * EIGHTS + eight) * 4 + vector % 4,
                    staged[which * STAGED + vector]);
    if (my.number % 8 == 0 && my.sample < B)
      write_message(backs + (((n & 1) * rows + (i64)at.model * B + my.sample) * CHUNKS * 4 + my.unit / 8), __float_as_uint(back) | tag);
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
        const int message = T - 2 - t;
        const uint4 *from[2], *backs_from[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const i64 row = at.sample_row(tile, half);
          from[half] = ring + (message & 1) * COPIES * copy + row * EIGHTS * 4 + at.quarter;
          backs_from[half] = (const uint4 *)backs + ((message & 1) * rows + row) * CHUNKS;
        }
        const u32 tag = tag_of(message);
        Arriving arriving[WINDOW];
#pragma unroll
        for (int n = 0; n < WINDOW; n++) arriving[n].read(from, copy, backs_from, at.chunk(n), false, tag);
#pragma unroll
        for (int n = 0; n < OWN; n++) {
          Arriving &now = arriving[n % WINDOW];
          while (__any_sync(0xffffffffu, now.late(at.chunk(n), tag))) // those behind it are read again, too
#pragma unroll
            for (int m = n; m < n + WINDOW && m < OWN; m++) arriving[m % WINDOW].read(from, copy, backs_from, at.chunk(m), true, tag);
#pragma unroll
          for (int eight = 0; eight < 4; eight++)
#pragma unroll
            for (int sub = 0; sub < SUBS; sub++) {
              float part[4] = {0}, rests[4] = {0};
              accumulate_eights(part, rests, now.da[eight], now.rest[eight], r[n][eight][sub], rest_at((n * 4 + eight) * SUBS + sub));
#pragma unroll
              for (int m = 0; m < 4; m++)
                sums[sub][m] = fmaf(now.back(eight, m >> 1), EXACT ? fmaf(rests[m], 1 / REST, part[m]) : part[m], sums[sub][m]);
            }
          if (n + WINDOW < OWN) now.read(from, copy, backs_from, at.chunk(n + WINDOW), false, tag);
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
        pass_on(T - 1 - t, my, slopes, back);
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
