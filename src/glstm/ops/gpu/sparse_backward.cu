// Arguments as in the forward pass. parts: (M, tiles, H, COLUMNS) of four gates, zeros to begin with. dk: rows of pairs, as
// the tape has them. dx: (M, T, B, D), zeros, or null.
extern "C" __global__ void __launch_bounds__(32, WARPS)
sparse_backward(const float *__restrict__ dh_n, const float *__restrict__ dc_n, const float *__restrict__ x, i64 x_model,
                const float *__restrict__ w_ih, const float4 *__restrict__ w_hh, const float *__restrict__ k,
                const float *__restrict__ h0, const uint4 *__restrict__ tape, const float *__restrict__ final_h,
                const int *__restrict__ records, const int *__restrict__ counts, float4 *parts, float *__restrict__ dk,
                float *__restrict__ dx, float *__restrict__ dh0, float *__restrict__ dc0, i64 room, int T, int B, int need_h0) {
  __shared__ __align__(8) float frozen_h[H * TILE];
  __shared__ __align__(8) float frozen_dh[H * TILE];
  __shared__ __align__(8) float frozen_dc[H * TILE];
  __shared__ __align__(16) uint4 weights_memory[KEPT];
  const Place at = my_place();
  const i64 model = at.model, row = first_row(counts, at, gridDim.y, gridDim.x, room), state = model * B * H;
  if (row < 0) { // the forward pass gave no numbers
    for (i64 n = at.lane; n < (i64)B * H; n += 32) dh0[state + n] = dc0[state + n] = __uint_as_float(0x7fffffff);
    for (i64 n = at.lane; n < H * COLUMNS * 4; n += 32) ((float *)(parts + (model * gridDim.x + at.tile) * H * COLUMNS))[n] = __uint_as_float(0x7fffffff);
    return;
  }
  x += model * x_model, w_ih += model * 4 * H * D, w_hh += model * H * H, k += model * T * H, records += model * T * RECORD;
  final_h += (model * gridDim.x + at.tile) * H * TILE, parts += (model * gridDim.x + at.tile) * H * COLUMNS;
  tape += row * ROW, dk += row;
  bool carried = need_h0;
  for (int u = at.row; u < H; u += 8)
#pragma unroll
    for (int n = 0; n < 2; n++) {
      const int place = u * TILE + at.column * 2 + n;
      const i64 cell = state + (i64)at.sample(n) * H + u;
      const bool real = at.sample(n) < B;
      frozen_h[place] = final_h[place], carried |= real && h0[cell] != 0;
      frozen_dh[place] = real && dh_n ? dh_n[cell] : 0, frozen_dc[place] = real && dc_n ? dc_n[cell] : 0;
    }
  carried = __any_sync(EVERYBODY, carried);
  __syncwarp();

  // base: slopes of the sums over closed units, so the slopes of all steps since these were last distributed.
  float h[NB + 1][2], dh[NB][2], dc[NB][2], base[NB][4][2], next_k[NB], next_x[2];
  float4 next_tape[NB][PIECES];
  Gradient gradient;
  Transposed weights(weights_memory);
#pragma unroll
  for (int n = 0; n < NB; n++) {
    next_k[n] = 0;
#pragma unroll
    for (int s = 0; s < 2; s++) h[n][s] = dh[n][s] = dc[n][s] = 0;
#pragma unroll
    for (int g = 0; g < 4; g++) base[n][g][0] = base[n][g][1] = 0;
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) next_tape[n][piece] = make_float4(0, 0, 0, 0);
  }
  gradient.clear(EVERYBODY, at);
#pragma unroll
  for (int n = 0; n < NB * 2 * 4; n++) gradient.sums[n / 8][n / 4 % 2][NB][n % 4] = 0;

  // The next step's input, openness and tape, as in the forward pass.
  const int second = at.sample(1) < B ? D : 0;
  const float *x_at = x, *k_at = k;
  int pair[NB];
  auto go_to = [&](int t) {
    x_at = x + ((i64)t * B + (at.sample(0) < B ? at.sample(0) : 0)) * D + (at.row < D ? at.row : 0), k_at = k + (i64)t * H;
  };
  auto find_pairs = [&](const Span &span) {
#pragma unroll
    for (int n = 0; n < NB; n++) pair[n] = span.open ? span.pair(at, n, span.end - 1) : 0;
  };
  auto fetch = [&](const int unit[NB], u32 open) {
#pragma unroll
    for (int s = 0; s < 2; s++) next_x[s] = load_early(x_at + s * second);
#pragma unroll
    for (int n = 0; n < NB; n++) {
      const float4 *from = (const float4 *)tape + (i64)pair[n] * ROW + at.column;
      next_k[n] = load_early(k_at + max(unit[n], 0));
#pragma unroll
      for (int piece = 0; piece < PIECES; piece++) load_early(next_tape[n][piece], from + piece * 4, at.holds(open, n));
    }
  };
  // Units come into these slots.
  auto enter = [&](const Span &span, u32 slots) {
#pragma unroll
    for (int n = 0; n < NB; n++)
      if (at.holds(slots, n))
#pragma unroll
        for (int s = 0; s < 2; s++) {
          const int place = span.unit[n] * TILE + at.column * 2 + s;
          h[n][s] = frozen_h[place], dh[n][s] = frozen_dh[place], dc[n][s] = frozen_dc[place], frozen_h[place] = 0;
#pragma unroll
          for (int g = 0; g < 4; g++) base[n][g][s] = 0;
        }
    gradient.clear(slots, at);
    weights.load(w_hh, span, slots, at);
    __syncwarp();
  };
  // The sums of the unit in a slot over closed units: gradients of their h, and of the weights from them.
  auto distribute = [&](const Span &span, int slot, int reach) {
    const int unit = span.record[UNITS_AT + slot];
    float slopes[4][2];
#pragma unroll
    for (int g = 0; g < 4; g++)
#pragma unroll
      for (int s = 0; s < 2; s++) {
        slopes[g][s] = 0;
#pragma unroll
        for (int n = 0; n < NB; n++) { // chosen after the exchange: a choice before it would be a table in memory
          const float v = __uint_as_float(__shfl_sync(EVERYBODY, __float_as_uint(base[n][g][s]), slot % 8 * 4 + at.column));
          slopes[g][s] = n == slot / 8 ? v : slopes[g][s];
        }
      }
#pragma unroll 2
    for (int first = 0; first < reach; first += 8) {
      const int u = first + at.row < reach ? first + at.row : 0, place = u * TILE + at.column * 2;
      const bool there = first + at.row < reach;
      const float4 w = w_hh[unit * H + u];
      const float2 v = *(const float2 *)(frozen_h + place);
      float2 d = *(const float2 *)(frozen_dh + place);
      float products[4];
#pragma unroll
      for (int g = 0; g < 4; g++) {
        d.x = fmaf((&w.x)[g], slopes[g][0], d.x), d.y = fmaf((&w.x)[g], slopes[g][1], d.y);
        products[g] = fmaf(slopes[g][0], v.x, slopes[g][1] * v.y);
      }
      const float product = sum_by_column(products, at);
      if (there) {
        *(float2 *)(frozen_dh + place) = d;
        float *part = (float *)(parts + unit * COLUMNS + u) + at.column;
        *part += product;
      }
    }
#pragma unroll
    for (int n = 0; n < NB; n++)
      if (n * 8 + at.row == slot)
#pragma unroll
        for (int g = 0; g < 4; g++) base[n][g][0] = base[n][g][1] = 0;
    __syncwarp();
  };

  const int spans = counts[model * COUNTS + SPANS_AT];
  Span span, next;
  next.load(records + (spans - 1) * RECORD, at);
  enter(next, next.open);
  int fetched = T;
  for (int number = spans - 1; number >= 0; number--) {
    span = next;
    if (number > 0) next.load(records + (number - 1) * RECORD, at);
    const int blocks = blocks_of(span.open), opened = __popc(span.open);
    if (span.open && fetched != span.end - 1) go_to(span.end - 1), find_pairs(span), fetch(span.unit, span.open);
    for (int t = span.end - 1; span.open && t >= span.start; t--) {
      float slopes[NB][4][2], dk_now[NB];
#pragma unroll
      for (int n = 0; n < NB; n++) {
        dk_now[n] = 0;
#pragma unroll
        for (int g = 0; g < 4; g++) slopes[n][g][0] = slopes[n][g][1] = 0;
        if (n >= blocks) continue;
        const float open = at.holds(span.open, n) ? next_k[n] : 0;
        const float4 states = next_tape[n][PIECES - 1];
        const float c_before[2] = {states.x, states.y};
        const u32 both_h = __float_as_uint(states.z);
#pragma unroll
        for (int s = 0; s < 2; s++) {
          float v[4], da[4], of_k;
#pragma unroll
          for (int g = 0; g < 4; g++) {
            const float kept = (&next_tape[n][EXACT ? s : 0].x)[g];
            v[g] = EXACT ? kept : s ? half_high(__float_as_uint(kept)) : half_low(__float_as_uint(kept));
          }
          const float h_before = EXACT ? (s ? states.w : states.z) : s ? half_high(both_h) : half_low(both_h);
          Known known;
          // A closed slot's tape is an older one: it has no effect, because k is 0.
          known.find(v, c_before[s], h_before, 1);
          known.k = open;
          known.step(dh[n][s], dc[n][s], 1, da, of_k);
          h[n][s] = open != 0 ? h_before : 0, dk_now[n] += of_k;
#pragma unroll
          for (int g = 0; g < 4; g++) slopes[n][g][s] = da[g], base[n][g][s] += da[g];
        }
      }
#pragma unroll
      for (int s = 0; s < 2; s++) { // what is not finite has its effect through the slopes
        const bool usable = at.row < D && at.sample(s) < B && (__float_as_uint(next_x[s]) & ~(1u << 31)) < INFINITE;
        h[NB][s] = usable ? next_x[s] : at.row == D;
      }
      int pair_now[NB];
#pragma unroll
      for (int n = 0; n < NB; n++) pair_now[n] = pair[n], pair[n] -= t > span.start ? opened : 0;
      fetched = t - 1; // before the first step it is loaded again
      x_at -= t > 0 ? B * D : 0, k_at -= t > 0 ? H : 0;
      if (t == span.start && t > 0) find_pairs(next);
      int upcoming[NB];
#pragma unroll
      for (int n = 0; n < NB; n++) upcoming[n] = t > span.start ? span.unit[n] : next.unit[n];
      fetch(upcoming, t > span.start ? span.open : next.open);
      weights.multiply(dh, slopes, span.open, blocks, at);
      gradient.add(slopes, h, blocks, true);
#pragma unroll
      for (int n = 0; n < NB; n++)
        if (n < blocks) {
          float sum = dk_now[n];
          sum += __shfl_xor_sync(EVERYBODY, sum, 1);
          sum += __shfl_xor_sync(EVERYBODY, sum, 2);
          if (at.column == 0 && at.holds(span.open, n)) dk[pair_now[n]] = sum;
        }
      if (NEED_X)
#pragma unroll
        for (int d = 0; d < D; d++)
#pragma unroll
          for (int s = 0; s < 2; s++) {
            float sum = 0;
#pragma unroll
            for (int n = 0; n < NB; n++)
              if (at.holds(span.open, n))
#pragma unroll
                for (int g = 0; g < 4; g++) sum = fmaf(w_ih[(g * H + span.unit[n]) * D + d], slopes[n][g][s], sum);
            sum = sum_over_rows(sum);
            if (at.row == 0 && at.sample(s) < B) dx[((model * T + t) * B + at.sample(s)) * D + d] = sum;
          }
    }
    // Back over the beginning of the span. Units that open here leave their slots, units that close here come into theirs.
    const u32 opens = span.record[OPENS_AT], closes = span.record[CLOSES_AT];
    const int reach = carried ? H : span.record[REACH_AT];
    for (u32 slots = opens && (carried || span.record[AGAIN_AT]) ? span.open : opens; slots; slots &= slots - 1)
      distribute(span, __ffs(slots) - 1, reach);
    if (opens) {
      gradient.flush(span, opens, parts, at);
#pragma unroll
      for (int n = 0; n < NB; n++)
        if (at.holds(opens, n))
#pragma unroll
          for (int s = 0; s < 2; s++) {
            const int place = span.unit[n] * TILE + at.column * 2 + s;
            frozen_h[place] = h[n][s], frozen_dh[place] = dh[n][s], frozen_dc[place] = dc[n][s];
            h[n][s] = dh[n][s] = dc[n][s] = 0;
          }
      __syncwarp();
    }
    if (closes) {
      enter(next, closes);
      if (span.open & ~opens) { // their contributions were added to the sums of those that stay
        float closing[NB + 1][2];
#pragma unroll
        for (int n = 0; n <= NB; n++)
#pragma unroll
          for (int s = 0; s < 2; s++) closing[n][s] = n < NB && at.holds(closes, n < NB ? n : 0) ? h[n][s] : 0;
        const int both = blocks_of(span.open | closes);
        weights.multiply(dh, base, closes, both, at);
        gradient.add(base, closing, both, false);
      }
    }
  }
  for (int u = at.row; u < H; u += 8)
#pragma unroll
    for (int n = 0; n < 2; n++)
      if (at.sample(n) < B) {
        const int place = u * TILE + at.column * 2 + n;
        dh0[state + (i64)at.sample(n) * H + u] = frozen_dh[place], dc0[state + (i64)at.sample(n) * H + u] = frozen_dc[place];
      }
}
