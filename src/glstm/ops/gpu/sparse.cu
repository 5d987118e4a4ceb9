// The weights between slots, as left sides of products: rows are two gates of 8 slots, columns 8 slots that h comes from.
struct Weights {
  u32 r[NB][2][NB][2], rest[EXACT ? NB : 1][2][NB][2];
  __device__ __forceinline__ Weights() {
#pragma unroll
    for (int n = 0; n < NB * 2 * NB * 2; n++) {
      (&r[0][0][0][0])[n] = 0;
      if (EXACT) (&rest[0][0][0][0])[n] = 0;
    }
  }
  // Again, of the blocks in which a unit opens.
  __device__ __forceinline__ void load(const float4 *w_hh, const Span &span, u32 opens, const Place &at) {
    const u32 fresh = blocks_with(opens);
#pragma unroll
    for (int to = 0; to < NB; to++)
#pragma unroll
      for (int from = 0; from < NB; from++)
        if ((fresh >> to | fresh >> from) & 1) {
          float4 w[2];
#pragma unroll
          for (int n = 0; n < 2; n++) {
            const int across = span.across(at, from, n);
            w[n] = span.unit[to] >= 0 && across >= 0 ? w_hh[span.unit[to] * H + across] : make_float4(0, 0, 0, 0);
          }
#pragma unroll
          for (int gate = 0; gate < 4; gate++) {
            const float low = (&w[0].x)[gate], high = (&w[1].x)[gate];
            const u32 two = pack_half(low, high);
            r[to][gate >> 1][from][gate & 1] = two;
            if (EXACT) rest[to][gate >> 1][from][gate & 1] = pack_rest(low, high, two);
          }
        }
  }
  // sums += weights times h, of the first so many blocks
  __device__ __forceinline__ void multiply(float sums[NB][4][2], const float h[NB][2], int blocks) const {
    u32 right[NB], right_rest[NB];
#pragma unroll
    for (int from = 0; from < NB; from++)
      if (from < blocks) make_right(h[from], 1, right[from], right_rest[from]);
#pragma unroll
    for (int to = 0; to < NB; to++)
      if (to < blocks)
#pragma unroll
        for (int two = 0; two < 2; two++) {
          float *sum = sums[to][2 * two], rests[4] = {0};
#pragma unroll
          for (int from = 0; from < NB; from++)
            if (from < blocks) {
              const u32 *w = r[to][two][from], *w_rest = rest[EXACT ? to : 0][two][from];
              multiply_short(sum, w[0], w[1], right[from]);
              if (EXACT) {
                multiply_short(rests, w_rest[0], w_rest[1], right[from]);
                multiply_short(rests, w[0], w[1], right_rest[from]);
              }
            }
          if (EXACT)
#pragma unroll
            for (int n = 0; n < 4; n++) sum[n] = fmaf(rests[n], 1 / REST, sum[n]);
        }
  }
};

// x: (T, B, D); x_model: numbers from one model's to the next one's, 0 where all read the same. w_hh: (M, H, H) of four
// gates each. tape: rows of pairs, PIECES for each thread of a row; final_h: (M, tiles, H, 8), from which backward starts.
extern "C" __global__ void __launch_bounds__(32, WARPS)
sparse_forward(const float *__restrict__ x, i64 x_model, const float *__restrict__ w_ih, const float *__restrict__ b,
               const float4 *__restrict__ w_hh, const float *__restrict__ k, const float *__restrict__ h0,
               const float *__restrict__ c0, float *__restrict__ h_n, float *__restrict__ c_n, uint4 *__restrict__ tape,
               float *__restrict__ final_h, const int *__restrict__ records, const int *__restrict__ counts, i64 room, int T, int B) {
  __shared__ __align__(8) float frozen_h[H * TILE]; // of closed units; 0 of open ones
  __shared__ __align__(8) float frozen_c[H * TILE];
  const Place at = my_place();
  const i64 model = at.model, row = first_row(counts, at, gridDim.y, gridDim.x, room);
  x += model * x_model, w_ih += model * 4 * H * D, w_hh += model * H * H, b += model * 4 * H, k += model * T * H;
  records += model * T * RECORD;
  const i64 state = model * B * H;
  bool carried = false; // whether closed units that were never open have a value
  for (int u = at.row; u < H; u += 8)
#pragma unroll
    for (int n = 0; n < 2; n++) {
      const i64 cell = state + (i64)at.sample(n) * H + u;
      const float v = at.sample(n) < B ? h0[cell] : 0;
      frozen_h[u * TILE + at.column * 2 + n] = v, carried |= v != 0;
      frozen_c[u * TILE + at.column * 2 + n] = at.sample(n) < B ? c0[cell] : 0;
    }
  carried = __any_sync(EVERYBODY, carried);
  __syncwarp();
  if (row < 0) { // the caller allowed for less than this: no numbers rather than wrong ones
    for (int u = at.row; u < H; u += 8)
#pragma unroll
      for (int n = 0; n < 2; n++)
        if (at.sample(n) < B) h_n[state + (i64)at.sample(n) * H + u] = c_n[state + (i64)at.sample(n) * H + u] = __uint_as_float(0x7fffffff);
    return;
  }
  if (TAPED) tape += row * ROW;

  float h[NB][2], c[NB][2], base[NB][4][2], w_x[NB][4][D], next_k[NB], next_x[2][D];
#pragma unroll
  for (int n = 0; n < NB; n++) {
    next_k[n] = 0;
#pragma unroll
    for (int s = 0; s < 2; s++) h[n][s] = c[n][s] = 0;
#pragma unroll
    for (int g = 0; g < 4; g++) {
      base[n][g][0] = base[n][g][1] = 0;
#pragma unroll
      for (int d = 0; d < D; d++) w_x[n][g][d] = 0;
    }
  }
  Weights weights;
  // The next step's input and openness; the addresses move along with the steps.
  const int second = at.sample(1) < B ? D : 0; // a sample that is not there reads another's
  const float *x_at = x, *k_at = k;
  int pair[NB]; // of this step
  auto go_to = [&](int t) { x_at = x + ((i64)t * B + (at.sample(0) < B ? at.sample(0) : 0)) * D, k_at = k + (i64)t * H; };
  auto fetch = [&](const int unit[NB]) {
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int d = 0; d < D; d++) next_x[s][d] = load_early(x_at + s * second + d);
#pragma unroll
    for (int n = 0; n < NB; n++) next_k[n] = load_early(k_at + max(unit[n], 0));
  };
  // The sums of the unit in a slot over all closed units.
  auto sum_afresh = [&](const Span &span, int slot, int reach) {
    const int unit = span.record[UNITS_AT + slot];
    float sums[4][2] = {{0}};
#pragma unroll 4
    for (int u = at.row; u < reach; u += 8) {
      const float4 w = w_hh[unit * H + u];
      const float2 v = *(const float2 *)(frozen_h + u * TILE + at.column * 2);
#pragma unroll
      for (int g = 0; g < 4; g++) sums[g][0] = fmaf((&w.x)[g], v.x, sums[g][0]), sums[g][1] = fmaf((&w.x)[g], v.y, sums[g][1]);
    }
#pragma unroll
    for (int g = 0; g < 4; g++) {
      const float bias = b[g * H + unit], low = bias + sum_over_rows(sums[g][0]), high = bias + sum_over_rows(sums[g][1]);
#pragma unroll
      for (int n = 0; n < NB; n++)
        if (n * 8 + at.row == slot) base[n][g][0] = low, base[n][g][1] = high;
    }
  };
  auto begin = [&](const Span &span) {
    const u32 opens = span.record[OPENS_AT], closes = span.record[CLOSES_AT];
    if (closes) {
      float closing[NB][2];
#pragma unroll
      for (int n = 0; n < NB; n++) {
        const bool mine = at.holds(closes, n);
#pragma unroll
        for (int s = 0; s < 2; s++) {
          closing[n][s] = mine ? h[n][s] : 0;
          if (mine) {
            frozen_h[span.unit[n] * TILE + at.column * 2 + s] = h[n][s], frozen_c[span.unit[n] * TILE + at.column * 2 + s] = c[n][s];
            h[n][s] = c[n][s] = 0;
          }
        }
      }
      if (span.open & ~opens) weights.multiply(base, closing, blocks_of(span.open | closes));
      __syncwarp();
    }
    if (!opens) return;
#pragma unroll
    for (int n = 0; n < NB; n++)
      if (at.holds(opens, n)) {
#pragma unroll
        for (int s = 0; s < 2; s++) {
          const int place = span.unit[n] * TILE + at.column * 2 + s;
          h[n][s] = frozen_h[place], c[n][s] = frozen_c[place], frozen_h[place] = 0;
        }
#pragma unroll
        for (int g = 0; g < 4; g++)
#pragma unroll
          for (int d = 0; d < D; d++) w_x[n][g][d] = w_ih[(g * H + span.unit[n]) * D + d];
      }
    weights.load(w_hh, span, opens, at);
    __syncwarp();
    // What had a value is part of the others' sums: they are summed again, and nothing is ever subtracted.
    const int reach = carried ? H : span.record[REACH_AT];
    for (u32 slots = carried || span.record[AGAIN_AT] ? span.open : opens; slots; slots &= slots - 1) sum_afresh(span, __ffs(slots) - 1, reach);
    __syncwarp();
  };

  const int spans = counts[model * COUNTS + SPANS_AT];
  Span span, next;
  next.load(records, at);
  int fetched = -1;
  for (int number = 0; number < spans; number++) {
    span = next;
    if (number + 1 < spans) next.load(records + (number + 1) * RECORD, at);
    if (!span.open) {
      begin(span);
      continue;
    }
    if (fetched != span.start) go_to(span.start), fetch(span.unit);
    begin(span);
    const int blocks = blocks_of(span.open), opened = __popc(span.open);
#pragma unroll
    for (int n = 0; n < NB; n++) pair[n] = span.pair(at, n, span.start);
    for (int t = span.start; t < span.end; t++) {
      float sums[NB][4][2], open[NB], x_now[2][D];
#pragma unroll
      for (int n = 0; n < NB; n++) open[n] = at.holds(span.open, n) ? next_k[n] : 0;
#pragma unroll
      for (int s = 0; s < 2; s++)
#pragma unroll
        for (int d = 0; d < D; d++) x_now[s][d] = at.sample(s) < B ? next_x[s][d] : 0;
      fetched = t + 1; // after the last step it is loaded again
      x_at += t + 1 < T ? B * D : 0, k_at += t + 1 < T ? H : 0;
      int upcoming[NB];
#pragma unroll
      for (int n = 0; n < NB; n++) upcoming[n] = t + 1 < span.end ? span.unit[n] : next.unit[n];
      fetch(upcoming);
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int g = 0; g < 4; g++)
#pragma unroll
          for (int s = 0; s < 2; s++) {
            sums[n][g][s] = base[n][g][s];
#pragma unroll
            for (int d = 0; d < D; d++) sums[n][g][s] = fmaf(w_x[n][g][d], x_now[s][d], sums[n][g][s]);
          }
      weights.multiply(sums, h, blocks);
#pragma unroll
      for (int n = 0; n < NB; n++)
        if (n < blocks) {
          const float c_before[2] = {c[n][0], c[n][1]}, h_before[2] = {h[n][0], h[n][1]};
          float v[2][4];
#pragma unroll
          for (int s = 0; s < 2; s++) {
#pragma unroll
            for (int g = 0; g < 4; g++) v[s][g] = sums[n][g][s];
            step_cell(v[s], open[n], c[n][s], h[n][s]);
          }
          if (TAPED && at.holds(span.open, n)) {
            uint4 *out = tape + (i64)pair[n] * ROW + at.column;
            if (EXACT) {
              *(float4 *)out = make_float4(v[0][0], v[0][1], v[0][2], v[0][3]);
              *(float4 *)(out + 4) = make_float4(v[1][0], v[1][1], v[1][2], v[1][3]);
              *(float4 *)(out + 4 * (PIECES - 1)) = make_float4(c_before[0], c_before[1], h_before[0], h_before[1]);
            } else {
              *out = make_uint4(pack_half(v[0][0], v[1][0]), pack_half(v[0][1], v[1][1]), pack_half(v[0][2], v[1][2]), pack_half(v[0][3], v[1][3]));
              out[4] = make_uint4(__float_as_uint(c_before[0]), __float_as_uint(c_before[1]), pack_half(h_before[0], h_before[1]), 0);
            }
          }
          pair[n] += opened;
        }
    }
  }
#pragma unroll
  for (int n = 0; n < NB; n++)
    if (at.holds(span.open, n))
#pragma unroll
      for (int s = 0; s < 2; s++) {
        const int place = span.unit[n] * TILE + at.column * 2 + s;
        frozen_h[place] = h[n][s], frozen_c[place] = c[n][s];
      }
  __syncwarp();
  for (int u = at.row; u < H; u += 8)
#pragma unroll
    for (int n = 0; n < 2; n++) {
      const int place = u * TILE + at.column * 2 + n;
      if (TAPED) final_h[(model * gridDim.x + at.tile) * H * TILE + place] = frozen_h[place];
      if (at.sample(n) < B) {
        h_n[state + (i64)at.sample(n) * H + u] = frozen_h[place];
        c_n[state + (i64)at.sample(n) * H + u] = frozen_c[place];
      }
    }
}
