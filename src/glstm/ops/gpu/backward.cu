// What a thread reads at every step, in words: the tape, k and the outputs' gradients.
#define C_AT GATE_WORDS
#define H_AT (C_AT + CELLS)
#define K_AT (H_AT + H_WORDS)
#define DH_AT (K_AT + K_WORDS)
#define DC_AT (DH_AT + (SEQUENCE ? CELLS : 0))
#define DURING (RANKS == 1 && WARPS <= 4) // the next step is prepared during the products; with more warps they hide each other's
#define CHUNKS (SIZE * UNITS / TILE + (SIZE * UNITS < TILE)) // that a thread sends to memory

// da_rows: (T, B, RANKS, WARPS, 4 gates, 8 UNITS), the left side of the weights' gradient, transposed. dk: (T, B, H), or two of
// these, or (tiles, T, H) to be summed. dh0, dc0: null where nobody asks. The slopes of a warp's units are shared in 16 bits,
// scaled by a power of two that is found from a bound on them: a warp's gradients may all be 1e-30. dh_all and, where SEQUENCE
// is 2, dc_all have the given numbers between models, steps, samples and units: a sum's gradient is one number, again and again.
extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1)
backward(const float *__restrict__ dh_all, const float *__restrict__ dc_all, i64 by_model, i64 by_step, i64 by_sample, i64 by_unit,
         const float *__restrict__ dh_n, const float *__restrict__ dc_n, const float *__restrict__ w_hh,
         const float *__restrict__ k, void *__restrict__ tape_gates, void *__restrict__ tape_c, void *__restrict__ tape_h,
         void *__restrict__ da_rows, float *__restrict__ dk, float *__restrict__ dh0, float *__restrict__ dc0, int T, int B) {
  __shared__ __align__(16) u16 da_shared[2][1 + EXACT][TILE * DA_STRIDE]; // two that alternate: one barrier per step
  __shared__ __align__(8) Part parts[PARTS];
  __shared__ __align__(8) i64 barriers[2];
  __shared__ float back_of_warp[2][WARPS];
  const Place at = my_place();
  const Gathering gathering(barriers, parts, at);
  const i64 model = at.model, tiles = gridDim.x / RANKS;
  w_hh += model * 4 * H * H, k += model * T * H * (K_PER_SAMPLE ? B : 1);

  // Transposed: rows are the units that h comes from, columns the slopes in the order of da_shared.
  u32 r[TILES][2 * UNITS * WARPS][4];
#pragma unroll
  for (int tile = 0; tile < TILES; tile++)
#pragma unroll
    for (int n = 0; n < 2 * UNITS * WARPS; n++)
      load_weights(r[tile][n], rest_at(tile * 2 * UNITS * WARPS + n), (at.warp * TILES + tile) * 16, n * 16, [&](int from, int column) {
        const int warp = column / (32 * UNITS), gate = column / (8 * UNITS) % 4;
        const int unit = (at.rank * WARPS + warp) * 8 * UNITS + column % (8 * UNITS);
        return unit < H && from < H ? w_hh[(gate * H + unit) * H + from] : 0.0f;
      });
  float dh[CELLS], dc[CELLS];
  bool real[CELLS];
#pragma unroll
  for (int cell = 0; cell < CELLS; cell++) {
    const int unit = at.unit(cell / SAMPLES), sample = at.sample(cell % SAMPLES);
    real[cell] = unit < H && sample < B;
    dh[cell] = real[cell] && dh_n ? dh_n[(model * B + sample) * H + unit] : 0;
    dc[cell] = real[cell] && dc_n ? dc_n[(model * B + sample) * H + unit] : 0;
  }

  // Addresses as in the forward pass, in reverse order.
  Tape tape(tape_gates, tape_c, tape_h, at, model * T + T - 1, tiles);
  const float *k_at[SAMPLES];
#pragma unroll
  for (int s = 0; s < SAMPLES; s++)
    k_at[s] = k + (K_PER_SAMPLE ? ((i64)(T - 1) * B + at.sample_there(s, B)) * H : (i64)(T - 1) * H);
  const i64 of_h = to_second_table(T, B);
  i64 grad_at = model * by_model + (T - 1) * by_step + at.sample(0) * by_sample + at.unit(0) * by_unit;
  float *dk_at = dk + (K_PER_SAMPLE ? ((model * T + T - 1) * B + at.sample(0)) * H : ((model * tiles + at.tile) * T + T - 1) * H) + at.unit(0);
  // Chunks of eight of the tile's slopes that this thread sends to memory, TILE / UNITS samples apart.
  const int chunk_sample = threadIdx.x / (OWN / 2), chunk_column = threadIdx.x % (OWN / 2) * 8;
  u16 *chunk_at = (u16 *)da_rows + ((model * T + T - 1) * B + at.tile * SIZE + chunk_sample) * (4 * HP) + at.rank * 4 * OWN + chunk_column;

  Ahead<DC_AT + (SEQUENCE == 2 ? CELLS : 0)> ahead;
  const Asker of_k = asker_of_k(at);
  float soon_k[K_WORDS]; // of the step that is asked for next, where it matters whose part of the tape is wanted
  auto k_place = [&](int n) {
    const int own = n % K_OWN;
    return k_at[K_PER_SAMPLE ? own % SAMPLES : 0] + at.unit_there(K_PER_SAMPLE ? own / SAMPLES : own) + (n < K_OWN ? 0 : of_h);
  };
  auto look_at_k = [&]() {
#pragma unroll
    for (int n = 0; n < K_WORDS; n++) soon_k[n] = load_early(k_place(n));
  };
  // What is not wanted of the tape was never written either. Gradients that are the same at every step are copied once into
  // each place of the ring.
  auto ask = [&](bool skips, bool first) {
    bool somebody = false;
#pragma unroll
    for (int n = 0; n < K_WORDS; n++) somebody |= skips && at.unit(K_PER_SAMPLE ? n % K_OWN / SAMPLES : n) < H && soon_k[n] != 0;
    const bool wanted = !skips || __any_sync(0xffffffffu, somebody);
#pragma unroll
    for (int n = 0; n < GATE_WORDS; n += GATE_PIECE) ahead.ask<GATE_PIECE>(n, tape.gates + n * THREADS, wanted);
    ahead.ask<CELLS>(C_AT, tape.c, wanted);
    ahead.ask<H_WORDS>(H_AT, tape.h, wanted);
#pragma unroll
    for (int n = 0; n < K_WORDS; n++) ahead.ask(K_AT + n, k_place(n), of_k);
#pragma unroll
    for (int cell = 0; cell < CELLS; cell++) {
      const i64 place = grad_at + cell % SAMPLES * by_sample + cell / SAMPLES * 8 * by_unit;
      if (SEQUENCE) ahead.ask<1>(DH_AT + cell, dh_all + place, real[cell] && (first || by_step != 0));
      if (SEQUENCE == 2) ahead.ask<1>(DC_AT + cell, dc_all + place, real[cell] && (first || by_step != 0));
    }
    ahead.end_of_questions();
  };
  auto move_on = [&](bool more) {
    tape.move(more ? -1 : 0);
    grad_at -= more ? by_step : 0;
#pragma unroll
    for (int s = 0; s < SAMPLES; s++) k_at[s] -= more ? (K_PER_SAMPLE ? B : 1) * H : 0;
  };
  const u32 tables = shared_address(da_shared), read_at = tables + ((at.lane & 7) * DA_STRIDE + (at.lane >> 3) * 8) * 2;
  const u32 write_at = tables + at.warp * 64 * UNITS + share_of_the_way<4>(at, DA_STRIDE);
#if K_H
  KnownOfTwo known[CELLS];
#else
  Known known[CELLS];
#endif
  float next_dh[CELLS], next_dc[CELLS];
  auto collect = [&]() {
    ahead.wait();
#pragma unroll
    for (int n = 0; n < GATE_WORDS; n += GATE_PIECE) ahead.take<GATE_PIECE>(n);
    ahead.take<CELLS>(C_AT), ahead.take<H_WORDS>(H_AT);
#pragma unroll
    for (int n = 0; n < K_WORDS; n++) ahead.take(K_AT + n, of_k);
#pragma unroll
    for (int n = DH_AT; n < DC_AT + (SEQUENCE == 2 ? CELLS : 0); n++) ahead.take<1>(n);
  };
  auto prepare = [&]() {
#pragma unroll
    for (int cell = 0; cell < CELLS; cell++) {
      const int n = cell / SAMPLES;
      float v[4];
#pragma unroll
      for (int g = 0; g < 4; g++) v[g] = gate_in(ahead.words, cell, g);
      const float open = at.unit(n) < H ? ahead.number(K_AT + (K_PER_SAMPLE ? cell : n)) : 0; // padding units never open
#if K_H
      const float open_h = at.unit(n) < H ? ahead.number(K_AT + K_OWN + cell) : 0;
      known[cell].find(v, ahead.number(C_AT + cell), h_in(ahead.words + H_AT, cell), open, open_h);
#else
      known[cell].find(v, ahead.number(C_AT + cell), h_in(ahead.words + H_AT, cell), open);
#endif
      next_dh[cell] = SEQUENCE && real[cell] ? ahead.number(SEQUENCE ? DH_AT + cell : 0) : 0;
      next_dc[cell] = SEQUENCE == 2 && real[cell] ? ahead.number(SEQUENCE == 2 ? DC_AT + cell : 0) : 0;
    }
  };
#pragma unroll 1
  for (int step = 0; step < AHEAD; step++) {
    ahead.next();
    ask(false, true);
    move_on(step + 1 < T);
  }
  collect();
  prepare();
  meet();

  auto run = [&](auto kind) {
    // Slopes of so many warps at once: products that depend less on each other.
    constexpr bool skips = decltype(kind)::skips;
    constexpr int group = skips || TILES > 4 ? 1 : 4 / TILES;
    if (skips) look_at_k();
    for (int step = 0; step < T; step++) {
      const u32 turn = (step & 1) * (1 + EXACT) * DA_TABLE;
      u32 most = 0; // of finite bounds: one sample that is not finite must not change others
      bool slopes_here = false;
#pragma unroll
      for (int cell = 0; cell < CELLS; cell++) {
        dh[cell] += next_dh[cell], dc[cell] += next_dc[cell];
        const u32 bound = __float_as_uint(known[cell].bound(dh[cell], dc[cell]));
        most = max(most, bound < INFINITE ? bound : 0), slopes_here |= bound != 0;
      }
      most = __reduce_max_sync(0xffffffffu, most);
      float da[4][CELLS], dk_of[(1 + K_H) * CELLS], back, scale = scale_for(most, &back);
      // A warp whose units are all closed, or have no effect, has no slopes.
      const bool none = skips && !__any_sync(0xffffffffu, slopes_here);
      if (at.lane == 0) back_of_warp[step & 1][at.warp] = none ? 0 : back;
#pragma unroll
      for (int cell = 0; cell < CELLS; cell++) {
        float slopes[4];
#if K_H
        known[cell].step(dh[cell], dc[cell], scale, slopes, dk_of[cell], dk_of[CELLS + cell]);
#else
        known[cell].step(dh[cell], dc[cell], scale, slopes, dk_of[cell]);
#endif
#pragma unroll
        for (int g = 0; g < 4; g++) {
          da[g][cell] = slopes[g];
          if (FULL_ROWS && at.sample(cell % SAMPLES) < B)
            ((float *)da_rows)[((model * T + T - 1 - step) * B + at.sample(cell % SAMPLES)) * (4 * HP) +
                               (at.rank * WARPS + at.warp) * 32 * UNITS + (g * UNITS + cell / SAMPLES) * 8 + at.row] = slopes[g] * back;
        }
      }
#pragma unroll
      for (int half = 0; half < UNITS; half++) { // of 32 columns: in a block two gates of 16 units, in a cluster four of 8
        u32 rounded[4], rest[4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
          const float *slopes = da[(half * 4 + m) / UNITS] + SAMPLES * (m % UNITS);
          rounded[m] = as_columns(slopes);
          if (EXACT) rest[m] = rest_of_columns(slopes, rounded[m]);
        }
        store_across<4>(write_at + turn + half * 64, DA_STRIDE, rounded);
        if (EXACT) store_across<4>(write_at + turn + DA_TABLE + half * 64, DA_STRIDE, rest);
      }
      auto request = [&]() {
        __syncwarp(); // all have taken k, before one thread asks for another in its place
        ask(skips, false);
        move_on(step + 1 + AHEAD < T);
        if (skips) look_at_k();
      };
      constexpr bool during = DURING && AHEAD > 1 && !skips;
      if (!during) request();
      __syncthreads();
      uint4 chunks[CHUNKS]; // read before the products, written to memory during them
#pragma unroll
      for (int n = 0; n < CHUNKS; n++)
        if (!FULL_ROWS) // without a chunk: any that is there
          chunks[n] = *(const uint4 *)(da_shared[step & 1][0] + (chunk_sample % SIZE + n * TILE / UNITS) * APART * DA_STRIDE + chunk_column);
      const float chunk_back = back_of_warp[step & 1][chunk_column / (32 * UNITS)];
      // What the products do not change: made during them or, in a cluster, while their sums are on their way.
      auto meanwhile = [&]() {
#pragma unroll
        for (int n = 0; n < CHUNKS; n++)
          if (!FULL_ROWS)
            store_if(chunk_sample < SIZE && at.tile * SIZE + chunk_sample + n * TILE / UNITS < B, chunk_at + n * (TILE / UNITS) * 4 * HP,
                     as_bfloat(chunks[n], chunk_back));
        chunk_at -= (i64)B * 4 * HP;
        if (K_PER_SAMPLE) {
#pragma unroll
          for (int n = 0; n < (1 + K_H) * CELLS; n++) {
            const int cell = n % CELLS;
            if (real[cell]) dk_at[cell % SAMPLES * H + cell / SAMPLES * 8 + (n < CELLS ? 0 : of_h)] = dk_of[n];
          }
        } else
#pragma unroll
          for (int n = 0; n < UNITS; n++) { // over the tile's samples
            float sum = dk_of[SAMPLES * n];
            if (SAMPLES == 2) sum += dk_of[SAMPLES * n + SAMPLES - 1];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (at.column == 0 && at.unit(n) < H) dk_at[n * 8] = sum;
          }
        dk_at -= K_PER_SAMPLE ? B * H : H;
        if (during) request();
        collect();
        prepare();
      };
      float sums[TILES][4] = {{0}}, backs[WARPS];
#pragma unroll
      for (int warp = 0; warp < WARPS; warp++) backs[warp] = back_of_warp[step & 1][warp];
#pragma unroll
      for (int first = 0; first < WARPS; first += group) {
        if (skips && backs[first] == 0) continue;
        float part[group][TILES][4] = {{{0}}}, rests[group][TILES][4] = {{{0}}};
#pragma unroll
        for (int half = 0; half < UNITS; half++) {
          u32 q[group][4], q_rest[group][4];
#pragma unroll
          for (int m = 0; m < group && first + m < WARPS; m++) {
            const u32 address = read_at + turn + ((first + m) * UNITS + half) * 64;
            load_columns(q[m], address, true);
            if (EXACT) load_columns(q_rest[m], address + DA_TABLE, true);
          }
#pragma unroll
          for (int n = 0; n < 2; n++)
#pragma unroll
            for (int m = 0; m < group && first + m < WARPS; m++)
#pragma unroll
              for (int tile = 0; tile < TILES; tile++) {
                const int column = ((first + m) * UNITS + half) * 2 + n;
                accumulate(part[m][tile], rests[m][tile], r[tile][column], rest_at(tile * 2 * UNITS * WARPS + column), q[m] + 2 * n,
                           q_rest[m] + 2 * n);
              }
        }
        if (during && first + group >= WARPS) meanwhile();
#pragma unroll
        for (int m = 0; m < group && first + m < WARPS; m++)
#pragma unroll
          for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
              const float found = EXACT ? fmaf(rests[m][tile][n], 1 / REST, part[m][tile][n]) : part[m][tile][n];
              sums[tile][n] = fmaf(backs[first + m], found, sums[tile][n]);
            }
      }
      gathering.send(step, at, sums);
      if (!during) meanwhile();
      gathering.add(step, sums, dh);
    }
  };
  if (RANKS == 1 && !K_H && has_zeros(k, at, T, B)) run(Sparse()); // else branches cost more than they save
  else run(Dense());
  ahead.end();
  meet(); // no block exits while others may still write here
#pragma unroll
  for (int cell = 0; cell < CELLS; cell++)
    if (real[cell]) {
      const i64 out = (model * B + at.sample(cell % SAMPLES)) * H + at.unit(cell / SAMPLES);
      if (dh0) dh0[out] = dh[cell];
      if (dc0) dc0[out] = dc[cell];
    }
}

// Takes the product of slopes and rows, (M, slopes, ROW), apart into the gradients of w_ih, w_hh and b, in torch's order; b
// may be a sum of two, each with its gradient. Adds up dk_parts (M, tiles, T, H), unless k was each sample's own; or, where
// dk is null, gate_parts (chunks, 3, H) of gate.cu, the gradients of up to three values of one model's gate. A thread a number.
extern "C" __global__ void finish(const float *__restrict__ product, const float *__restrict__ dk_parts,
                                  const float *__restrict__ gate_parts, float *__restrict__ dw_ih, float *__restrict__ dw_hh,
                                  float *__restrict__ db, float *__restrict__ db_too, float *__restrict__ dk,
                                  float *__restrict__ dv_0, float *__restrict__ dv_1, float *__restrict__ dv_2, int models,
                                  int T, int tiles, int chunks) {
  i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  const i64 weights = (i64)models * 4 * H * (H + D + 1), steps = (i64)T * H;
  if (n < weights) {
    const int column = n % (H + D + 1), row = n / (H + D + 1) % (4 * H), gate = row / H, unit = row % H;
    const i64 model = n / (H + D + 1) / (4 * H), out = model * 4 * H + row;
    const i64 slope = (model * 4 * (HP / (8 * UNITS)) + unit / (8 * UNITS) * 4 + gate) * 8 * UNITS + unit % (8 * UNITS);
    const float v = product[slope * ROW + (column < H ? column : HP + column - H)];
    if (column < H) dw_hh[out * H + column] = v;
    else if (column < H + D) dw_ih[out * D + column - H] = v;
    else {
      if (db) db[out] = v;
      if (db_too) db_too[out] = v;
    }
    return;
  }
  n -= weights;
  float sum = 0;
  if (!dk) {
    float *out = n < H ? dv_0 : n < 2 * H ? dv_1 : n < 3 * H ? dv_2 : nullptr;
    if (!out) return;
#pragma unroll 16
    for (int chunk = 0; chunk < chunks; chunk++) sum += gate_parts[(i64)chunk * 3 * H + n];
    out[n % H] = sum;
  } else if (!K_PER_SAMPLE && n < models * steps) {
    const float *part = dk_parts + n / steps * tiles * steps + n % steps;
#pragma unroll 8
    for (int tile = 0; tile < tiles; tile++) sum += part[tile * steps];
    dk[n] = sum;
  }
}
