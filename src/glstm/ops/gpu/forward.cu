#define DURING (RANKS == 1) // a step's loads and stores are made during its products; else while it waits for other blocks
#define INPUT_WORDS (D ? SAMPLES * D : 4 * CELLS) // that a thread reads at every step, besides k

// x: (T, B, D), or where D is 0 the input's share of the gates (T, B, 4H), without the bias; x_model: numbers from one model's to the next
// one's, 0 where all read the same. h0 and c0: null for zeros. rows: (T, B, ROW), the right side of the weights' gradient.
extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1)
forward(const float *__restrict__ x, i64 x_model, const float *__restrict__ w_ih, const float *__restrict__ b,
        const float *__restrict__ w_hh, const float *__restrict__ k, const float *__restrict__ h0,
        const float *__restrict__ c0, float *__restrict__ h_all, float *__restrict__ c_all, float *__restrict__ h_n,
        float *__restrict__ c_n, void *__restrict__ tape_gates, void *__restrict__ tape_c, void *__restrict__ tape_h,
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
      bias[g][n] = at.unit(n) < H ? b[g * H + at.unit(n)] : 0;
#pragma unroll
      for (int d = 0; d < D; d++) w[g][n][d] = at.unit(n) < H ? w_ih[(g * H + at.unit(n)) * D + d] : 0;
    }
  float h[CELLS], c[CELLS];
  bool real[CELLS];
#pragma unroll
  for (int cell = 0; cell < CELLS; cell++) {
    const int unit = at.unit(cell / SAMPLES), sample = at.sample(cell % SAMPLES);
    real[cell] = unit < H && sample < B;
    h[cell] = real[cell] && h0 ? h0[sample * H + unit] : 0;
    c[cell] = real[cell] && c0 ? c0[sample * H + unit] : 0;
  }
  for (int n = threadIdx.x; n < TILE * HP; n += THREADS) { // every block reads all of the first h itself
    const int row = n / HP, sample = at.tile * SIZE + row / APART, from = n % HP, place = row * H_STRIDE + from;
    const bool empty = row % APART;
    const float v = h0 && !empty && sample < B && from < H ? h0[sample * H + from] : 0;
    const u32 rounded = pack_half(v, 0);
    h_shared[0][0][place] = (u16)rounded;
    if (EXACT) h_shared[0][EXACT][place] = (u16)pack_rest(v, 0, rounded);
    if (empty) h_shared[1][0][place] = h_shared[1][EXACT][place] = 0;
  }

  // Addresses are incremented from step to step, not computed again: the number of instructions limits a step.
  Ahead<INPUT_WORDS + K_WORDS> ahead;
  const Asker of_x = asker_of_x(at), of_k = asker_of_k(at);
  const float *x_at[SAMPLES], *k_at[SAMPLES];
  const i64 of_h = to_second_table(T, B);
#pragma unroll
  for (int s = 0; s < SAMPLES; s++) {
    x_at[s] = x + at.sample_there(s, B) * (D ? D : 4 * H);
    k_at[s] = k + (K_PER_SAMPLE ? at.sample_there(s, B) * H : 0);
  }
  auto ask = [&]() {
    __syncwarp(); // all have taken what was there, before one thread asks for more in its place
#pragma unroll
    for (int n = 0; n < INPUT_WORDS; n++) {
      const int cell = n / 4, s = D ? n / (D ? D : 1) : cell % SAMPLES;
      ahead.ask(n, x_at[s] + (D ? n % (D ? D : 1) : n % 4 * H + at.unit_there(cell / SAMPLES)), of_x);
    }
#pragma unroll
    for (int n = 0; n < K_WORDS; n++) {
      const int own = n % K_OWN;
      const float *place = k_at[K_PER_SAMPLE ? own % SAMPLES : 0] + at.unit_there(K_PER_SAMPLE ? own / SAMPLES : own);
      ahead.ask(INPUT_WORDS + n, place + (n < K_OWN ? 0 : of_h), of_k);
    }
    ahead.end_of_questions();
  };
  auto take = [&]() {
    ahead.wait();
#pragma unroll
    for (int n = 0; n < INPUT_WORDS + K_WORDS; n++) ahead.take(n, n < INPUT_WORDS ? of_x : of_k);
  };
  auto move_on = [&](bool more) {
#pragma unroll
    for (int s = 0; s < SAMPLES; s++) {
      x_at[s] += more ? B * (D ? D : 4 * H) : 0;
      k_at[s] += more ? (K_PER_SAMPLE ? B : 1) * H : 0;
    }
  };
  Tape tape(tape_gates, tape_c, tape_h, at, model * T, tiles);
  // Some threads have a chunk of eight h for the rows: read before the products, written to memory during them.
  const int from_last = THREADS - 1 - threadIdx.x; // the first have the rows' ends
  const int chunk_sample = from_last / (OWN / 8), chunk_column = at.rank * OWN + from_last % (OWN / 8) * 8;
  const bool has_chunk = TAPED && !FULL_ROWS && chunk_sample < SIZE && at.tile * SIZE + chunk_sample < B;
  u16 *chunk_at = (u16 *)rows + (model * T * B + at.tile * SIZE + chunk_sample) * ROW + chunk_column;
  const bool has_end = TAPED && at.rank == 0 && at.warp == 0 && at.row < SAMPLES && at.sample(at.row) < B;
  u16 *end_at = (u16 *)rows + ((model * T * B + at.sample(at.row % SAMPLES)) * ROW + HP) * (1 + FULL_ROWS);
  const u32 read_at = shared_address(h_shared[0][0] + (at.lane & 7) * H_STRIDE + (at.lane >> 3) * 8);
#pragma unroll 1
  for (int t = 0; t < AHEAD; t++) {
    ahead.next();
    ask();
    move_on(t + 1 < T);
  }
  take();
  meet();

  // What a step leaves to memory is written during the next one, where it waits: for the products, or for other blocks.
  u32 gate_words[GATE_WORDS];
  i64 out_at = (model * T * B + at.sample(0)) * H + at.unit(0);
  auto leave = [&](bool there, bool worked) {
    if (TAPED && there && worked)
#pragma unroll
      for (int n = 0; n < GATE_WORDS; n += GATE_PIECE) store_words<GATE_PIECE>(tape.gates + n * THREADS, gate_words + n);
#pragma unroll
    for (int cell = 0; cell < CELLS; cell++) {
      const int place = cell % SAMPLES * H + cell / SAMPLES * 8;
      if (SEQUENCE && there && real[cell]) h_all[out_at + place] = h[cell];
      if (SEQUENCE == 2 && there && real[cell]) c_all[out_at + place] = c[cell];
    }
    tape.gates += there ? tape.step * GATE_WORDS : 0, out_at += there ? B * H : 0;
  };

  auto run = [&](auto kind) {
    bool worked = false;
    for (int t = 0; t < T; t++) {
      Sums sums;
      float open[CELLS], open_h[CELLS], x_now[SAMPLES][D ? D : 1];
      bool somebody = false;
#pragma unroll
      for (int cell = 0; cell < CELLS; cell++) {
        const int n = cell / SAMPLES, s = cell % SAMPLES;
        open[cell] = at.unit(n) < H ? ahead.number(INPUT_WORDS + (K_PER_SAMPLE ? cell : n)) : 0; // padding units never open
        open_h[cell] = !K_H ? open[cell] : at.unit(n) < H ? ahead.number(K_H * (INPUT_WORDS + K_OWN + cell)) : 0;
        somebody |= open[cell] != 0 || open_h[cell] != 0;
#pragma unroll
        for (int g = 0; g < 4; g++) {
          float sum = D ? bias[g][n] : bias[g][n] + ahead.number(D ? 0 : 4 * cell + g);
#pragma unroll
          for (int d = 0; d < D; d++) sum = fmaf(w[g][n][d], ahead.number(s * D + d), sum);
          sums.start(g, n, s, sum);
        }
      }
#pragma unroll
      for (int n = 0; n < SAMPLES * D; n++) x_now[n / (D ? D : 1)][n % (D ? D : 1)] = ahead.number(n);
      // A warp whose units are all closed only passes h on.
      const bool working = !decltype(kind)::skips || __any_sync(0xffffffffu, somebody);
      auto meanwhile = [&]() {
        leave(t > 0, worked);
        ask();
        move_on(t + 1 + AHEAD < T);
        if (TAPED && working) { // the state before the step
          u32 words[CELLS], words_of_h[H_WORDS];
#pragma unroll
          for (int cell = 0; cell < CELLS; cell++) words[cell] = __float_as_uint(c[cell]);
          store_words<CELLS>(tape.c, words);
          pack_h(words_of_h, h);
          store_words<H_WORDS>(tape.h, words_of_h);
        }
        tape.c += tape.step * CELLS, tape.h += tape.step * H_WORDS;
        if (TAPED && FULL_ROWS) // a row of h
#pragma unroll
          for (int cell = 0; cell < CELLS; cell++)
            if (at.sample(cell % SAMPLES) < B)
              ((float *)rows)[((model * T + t) * B + at.sample(cell % SAMPLES)) * ROW + at.unit(cell / SAMPLES)] = h[cell];
      };
      if (!DURING) meanwhile();
      exchange.wait(t);
      uint4 chunk = make_uint4(0, 0, 0, 0);
      if (has_chunk) chunk = *(const uint4 *)(h_shared[t & 1][0] + chunk_sample * APART * H_STRIDE + chunk_column);
      if (working) sums.add(weights, read_at + (t & 1) * (1 + EXACT) * H_TABLE);
      if (DURING) meanwhile();
      float v[CELLS][4];
      if (working)
#pragma unroll
        for (int cell = 0; cell < CELLS; cell++) {
#pragma unroll
          for (int g = 0; g < 4; g++) v[cell][g] = sums.total(g, cell / SAMPLES, cell % SAMPLES);
          step_cell(v[cell], open[cell], open_h[cell], c[cell], h[cell]);
        }
      exchange.pass(t, T, at, h);
      if (TAPED && working) pack_gates(gate_words, v);
      worked = working;
      if (TAPED && !FULL_ROWS) store_if(has_chunk, chunk_at, as_bfloat(chunk, 1));
      if (has_end) end_row(end_at, x_now[0], x_now[SAMPLES - 1], at.row);
      chunk_at += (i64)B * ROW, end_at += (i64)B * ROW * (1 + FULL_ROWS);
      take();
      exchange.end_step();
    }
    leave(true, worked);
  };
  // In a cluster the branches cost nothing without a tape, and more than they save with one.
  if (RANKS > 1 ? !TAPED : !K_H && has_zeros(k, at, T, B)) run(Sparse());
  else run(Dense());
  ahead.end();
  meet(); // no block exits while others may still write here
#pragma unroll
  for (int cell = 0; cell < CELLS; cell++)
    if (real[cell]) {
      h_n[at.sample(cell % SAMPLES) * H + at.unit(cell / SAMPLES)] = h[cell];
      c_n[at.sample(cell % SAMPLES) * H + at.unit(cell / SAMPLES)] = c[cell];
    }
}
