// x: (T, B, D), or where D is 0 the input's share of the gates (T, B, 4H); x_model: numbers from one model's to the next
// one's, 0 where all read the same. h0 and c0: null for zeros. rows: (T, B, ROW), the right side of the weights' gradient.
extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1)
forward(const float *__restrict__ x, i64 x_model, const float *__restrict__ w_ih, const float *__restrict__ b,
        const float *__restrict__ w_hh, const float *__restrict__ k, const float *__restrict__ h0,
        const float *__restrict__ c0, float *__restrict__ h_all, float *__restrict__ c_all, float *__restrict__ h_n,
        float *__restrict__ c_n, uint4 *__restrict__ tape_gates, float *__restrict__ tape_c, void *__restrict__ tape_h,
        void *__restrict__ rows, int T, int B) {
  __shared__ __align__(16) u16 h_shared[2][1 + EXACT][TILE * H_STRIDE];
  __shared__ __align__(8) i64 barriers[2];
  const Place at = my_place();
  const Exchange exchange(shared_address(h_shared), barriers, at);
  const i64 model = at.model, tiles = gridDim.x / RANKS;
  x += model * x_model, w_ih += model * 4 * H * D, w_hh += model * 4 * H * H, b += model * 4 * H;
  k += model * T * H * (K_PER_SAMPLE ? B : 1), h_n += model * B * H, c_n += model * B * H;
  if (h0) h0 += model * B * H;
  if (c0) c0 += model * B * H;

  Weights weights;
  weights.load(w_hh, at);
  float bias[4][UNITS], w[4][UNITS][D ? D : 1];
#pragma unroll
  for (int g = 0; g < 4; g++)
#pragma unroll
    for (int n = 0; n < UNITS; n++) {
      bias[g][n] = at.unit(n) < H && D ? b[g * H + at.unit(n)] : 0;
#pragma unroll
      for (int d = 0; d < D; d++) w[g][n][d] = at.unit(n) < H ? w_ih[(g * H + at.unit(n)) * D + d] : 0;
    }
  float h[CELLS], c[CELLS];
  bool real[CELLS];
#pragma unroll
  for (int cell = 0; cell < CELLS; cell++) {
    const int unit = at.unit(cell >> 1), sample = at.sample(cell & 1);
    real[cell] = unit < H && sample < B;
    h[cell] = real[cell] && h0 ? h0[sample * H + unit] : 0;
    c[cell] = real[cell] && c0 ? c0[sample * H + unit] : 0;
  }
  for (int n = threadIdx.x; n < TILE * HP; n += THREADS) { // every block reads all of the first h itself
    const int sample = at.tile * TILE + n / HP, from = n % HP, place = n / HP * H_STRIDE + from;
    const float v = h0 && sample < B && from < H ? h0[sample * H + from] : 0;
    const u32 rounded = pack_half(v, 0);
    h_shared[0][0][place] = (u16)rounded;
    if (EXACT) h_shared[0][EXACT][place] = (u16)pack_rest(v, 0, rounded);
  }

  // What the next step needs is loaded while this one is computed. Addresses are incremented from step to step, not
  // computed again: the number of instructions limits a step. After the last step the last one is loaded again, because
  // a branch would have to wait for the load.
  float next_x[2][D ? D : 1], next_drive[4][D ? 1 : CELLS], next_k[CELLS];
  const float *x_at[2], *k_at[2];
#pragma unroll
  for (int s = 0; s < 2; s++) {
    x_at[s] = x + at.sample_there(s, B) * (D ? D : 4 * H);
    k_at[s] = k + (K_PER_SAMPLE ? at.sample_there(s, B) * H : 0);
  }
  auto fetch = [&]() {
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int d = 0; d < D; d++) next_x[s][d] = load_early(x_at[s] + d);
#pragma unroll
    for (int cell = 0; cell < CELLS; cell++) {
      const int unit = at.unit_there(cell >> 1), s = cell & 1;
      if (!D)
#pragma unroll
        for (int g = 0; g < 4; g++) next_drive[g][D ? 0 : cell] = load_early(x_at[s] + g * H + unit);
      if (K_PER_SAMPLE || s == 0) next_k[cell] = load_early(k_at[s] + unit);
    }
  };
  auto move_on = [&](bool more) {
#pragma unroll
    for (int s = 0; s < 2; s++) {
      x_at[s] += more ? B * (D ? D : 4 * H) : 0;
      k_at[s] += more ? (K_PER_SAMPLE ? B : 1) * H : 0;
    }
  };
  const i64 block = (model * T * tiles + at.tile) * RANKS + at.rank, tape_step = tiles * RANKS * THREADS;
  uint4 *gates_at = tape_gates + block * THREADS * UNITS * (1 + EXACT) + threadIdx.x;
  float *tape_c_at = tape_c + (block * THREADS + threadIdx.x) * CELLS;
  u16 *tape_h_at = (u16 *)tape_h + (block * THREADS + threadIdx.x) * CELLS * (1 + EXACT);
  // Some threads have a chunk of eight h for the rows: read before the products, written to memory during them.
  const int chunk_sample = threadIdx.x / (OWN / 8), chunk_column = at.rank * OWN + threadIdx.x % (OWN / 8) * 8;
  const bool has_chunk = TAPED && !EXACT && threadIdx.x < OWN && at.tile * TILE + chunk_sample < B;
  u16 *chunk_at = (u16 *)rows + (model * T * B + at.tile * TILE + chunk_sample) * ROW + chunk_column;
  const bool has_end = TAPED && at.rank == 0 && at.warp == 0 && at.row < 2 && at.sample(at.row & 1) < B;
  u16 *end_at = (u16 *)rows + ((model * T * B + at.sample(at.row & 1)) * ROW + HP) * (1 + EXACT);
  const u32 read_at = shared_address(h_shared[0][0] + (at.lane & 7) * H_STRIDE + (at.lane >> 3) * 8);
  fetch();
  meet();

  auto run = [&](auto kind) {
    for (int t = 0; t < T; t++) {
      Sums sums;
      float open[CELLS], x_now[2][D ? D : 1];
      bool somebody = false;
#pragma unroll
      for (int cell = 0; cell < CELLS; cell++) {
        const int n = cell >> 1, s = cell & 1;
        open[cell] = at.unit(n) < H ? next_k[K_PER_SAMPLE ? cell : 2 * n] : 0; // padding units never open
        somebody |= open[cell] != 0;
#pragma unroll
        for (int g = 0; g < 4; g++) {
          float sum = D ? bias[g][n] : next_drive[g][D ? 0 : cell];
#pragma unroll
          for (int d = 0; d < D; d++) sum = fmaf(w[g][n][d], next_x[s][d], sum);
          sums.start(g, cell, sum);
        }
      }
#pragma unroll
      for (int d = 0; d < D; d++) x_now[0][d] = next_x[0][d], x_now[1][d] = next_x[1][d];
      // A warp whose units are all closed only passes h on.
      const bool working = !decltype(kind)::skips || __any_sync(0xffffffffu, somebody);
      move_on(t + 1 < T);
      fetch();
      if (TAPED && working) { // the state before the step
        store_cells(tape_c_at, c);
        if (EXACT) store_cells((float *)tape_h_at, h);
        else store_cells(tape_h_at, h);
      }
      tape_c_at += tape_step * CELLS, tape_h_at += tape_step * CELLS * (1 + EXACT);
      if (TAPED && EXACT) // a row of h
#pragma unroll
        for (int cell = 0; cell < CELLS; cell++)
          if (at.sample(cell & 1) < B)
            ((float *)rows)[((model * T + t) * B + at.sample(cell & 1)) * ROW + at.unit(cell >> 1)] = h[cell];
      exchange.wait(t);
      uint4 chunk;
      if (has_chunk) chunk = *(const uint4 *)(h_shared[t & 1][0] + chunk_sample * H_STRIDE + chunk_column);
      float v[CELLS][4];
      if (working) {
        sums.add(weights, read_at + (t & 1) * (1 + EXACT) * H_TABLE);
#pragma unroll
        for (int cell = 0; cell < CELLS; cell++) {
#pragma unroll
          for (int g = 0; g < 4; g++) v[cell][g] = sums.total(g, cell);
          step_cell(v[cell], open[cell], c[cell], h[cell]);
        }
      }
      exchange.pass(t, T, at, h);
      if (TAPED && working)
#pragma unroll
        for (int n = 0; n < UNITS; n++) {
          const float *one = v[2 * n], *other = v[2 * n + 1];
          if (EXACT) {
            ((float4 *)gates_at)[2 * n * THREADS] = make_float4(one[0], one[1], one[2], one[3]);
            ((float4 *)gates_at)[(2 * n + 1) * THREADS] = make_float4(other[0], other[1], other[2], other[3]);
          } else
            gates_at[n * THREADS] = make_uint4(pack_half(one[0], other[0]), pack_half(one[1], other[1]), pack_half(one[2], other[2]),
                                               pack_half(one[3], other[3]));
        }
      gates_at += tape_step * UNITS * (1 + EXACT);
#pragma unroll
      for (int cell = 0; cell < CELLS; cell++)
        if (SEQUENCE && real[cell]) {
          const i64 out = ((model * T + t) * B + at.sample(cell & 1)) * H + at.unit(cell >> 1);
          h_all[out] = h[cell];
          if (c_all) c_all[out] = c[cell];
        }
      if (has_chunk) *(uint4 *)chunk_at = as_bfloat(chunk, 1);
      if (has_end) end_row(end_at, x_now[0], x_now[1], at.row);
      chunk_at += (i64)B * ROW, end_at += (i64)B * ROW * (1 + EXACT);
      exchange.end_step();
    }
  };
  // In a cluster the branches cost nothing without a tape, and more than they save with one.
  if (RANKS > 1 ? !TAPED : has_zeros(k, at, T, B)) run(Sparse());
  else run(Dense());
  meet(); // no block exits while others may still write here
#pragma unroll
  for (int cell = 0; cell < CELLS; cell++)
    if (real[cell]) {
      h_n[at.sample(cell & 1) * H + at.unit(cell >> 1)] = h[cell];
      c_n[at.sample(cell & 1) * H + at.unit(cell >> 1)] = c[cell];
    }
}
