// Inputs of the step before, and in EXACT mode the openness, called for one step ahead. The tape has the openness, too, if
// there is room.
struct Behind {
  Place at;
  const float *x, *k;
  int B, second; // a sample that is not there reads another's
  int next;      // step
  const float *x_at;
  float next_x[2][D], next_k[EXACT ? NB : 1];
  __device__ __forceinline__ Behind(const Place &at, const float *x, const float *k, int B)
      : at(at), x(x), k(k), B(B), second(at.sample(1) < B ? D : 0), next(-1), x_at(x) {}
  __device__ __forceinline__ void fetch(const Span &span) {
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int d = 0; d < D; d++) next_x[s][d] = load_early(x_at + s * second + d);
    if (EXACT) fetch_k(span);
  }
  __device__ __forceinline__ void fetch_k(const Span &span) {
#pragma unroll
    for (int n = 0; n < NB; n++) next_k[EXACT ? n : 0] = load_early(k + (i64)next * H + max(span.unit(at, n), 0));
  }
  __device__ __forceinline__ void go_to(const Span &span) {
    const int t = span.end() - 1;
    if (next == t) {
      if (EXACT) fetch_k(span); // of other units
      return;
    }
    next = t, x_at = x + ((i64)t * B + (at.sample(0) < B ? at.sample(0) : 0)) * D;
    fetch(span);
  }
  // What was fetched, without what is not finite, which has its effect through the slopes; and then the step before it.
  __device__ __forceinline__ void take(float x_now[2][D], float open[NB], const Span &span) {
#pragma unroll
    for (int n = 0; n < NB; n++) open[n] = EXACT ? next_k[EXACT ? n : 0] : 0;
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int d = 0; d < D; d++) x_now[s][d] = (__float_as_uint(next_x[s][d]) & ~(1u << 31)) < INFINITE ? next_x[s][d] : 0;
    if (next > 0) next--, x_at -= B * D; // before the first step it is loaded again
    fetch(span);
  }
};

// Back through the steps of a span whose open slots lie in the first N blocks.
template <int N, int K>
__device__ __forceinline__ void go_back(Backward<K> &warp, Tape &tape, Behind &behind, const Span &span, const float *w_ih, float *dk, float *dx) {
  const Place at = warp.at;
  Sums<K> &sums = warp.sums;
  const u32 held = span.open();
  const int opened = __popc(held), start = span.start();
  int rank[N], low = span.first() + (span.end() - 1 - start) * opened;
#pragma unroll
  for (int n = 0; n < N; n++) rank[n] = rank_in(held, at, n);
  for (int t = span.end() - 1; t >= start; t--, low -= opened) {
    float x[2][D], open[NB], c[N][2], all_h[N][2], slopes[N][4][2], for_x[D][2] = {{0}};
    u32 packed[N][4], packed_rest[N][4], right[N];
    tape.need(low, low + opened - 1);
    behind.take(x, open, span);
#pragma unroll
    for (int n = 0; n < N; n++) {
      const uint4 states = tape.row(low + rank[n])[4 * (PIECES - 1) + at.column];
      c[n][0] = __uint_as_float(states.x), c[n][1] = __uint_as_float(states.y);
      warp.h[n][0] = states.z;
      if (EXACT) warp.h[n][EXACT] = states.w;
      open[n] = !at.holds(held, n) ? 0 : EXACT ? open[n] : __uint_as_float(states.w);
    }
    sums.template fit_scale<N>(c);
#pragma unroll
    for (int n = 0; n < N; n++) {
      const uint4 *from = tape.row(low + rank[n]) + at.column;
      const uint4 gates[2] = {from[0], from[EXACT ? 4 : 0]};
      float dk_now = 0;
#pragma unroll
      for (int s = 0; s < 2; s++) {
        float v[4], da[4], of_k;
#pragma unroll
        for (int g = 0; g < 4; g++) {
          const u32 kept = (&gates[EXACT ? s : 0].x)[g];
          v[g] = EXACT ? __uint_as_float(kept) : s ? half_high(kept) : half_low(kept);
        }
        Known known;
        // A closed slot has the tape of another one: it has no effect, because k is 0.
        known.find(v, c[n][s], warp.h_of(n, s), 1);
        known.k = open[n];
        known.step(sums.dh[n][s], sums.dc[n][s], sums.scale, da, of_k);
        dk_now += of_k;
        all_h[n][s] = at.holds(held, n) ? warp.h_of(n, s) : 0;
#pragma unroll
        for (int g = 0; g < 4; g++) {
          slopes[n][g][s] = da[g], sums.base[n][g][s] += da[g];
#pragma unroll
          for (int d = 0; d < D; d++) sums.inputs[n][g][d] = fmaf(da[g], x[s][d], sums.inputs[n][g][d]);
        }
        if (NEED_X && at.holds(held, n))
#pragma unroll
          for (int d = 0; d < D; d++)
#pragma unroll
            for (int g = 0; g < 4; g++) for_x[d][s] = fmaf(w_ih[(g * H + span.unit(at, n)) * D + d], da[g], for_x[d][s]);
      }
#pragma unroll
      for (int g = 0; g < 4; g++) {
        packed[n][g] = pack_half(slopes[n][g][0], slopes[n][g][1]);
        if (EXACT) packed_rest[n][g] = pack_rest(slopes[n][g][0], slopes[n][g][1], packed[n][g]);
      }
      right[n] = at.holds(held, n) ? warp.h[n][0] : 0;
      dk_now += __shfl_xor_sync(EVERYBODY, dk_now, 1);
      dk_now += __shfl_xor_sync(EVERYBODY, dk_now, 2);
      if (at.column == 0 && at.holds(held, n)) dk[low + rank[n]] = dk_now;
    }
    sums.template propagate<N>(warp.between, packed, packed_rest, held, sums.back, at);
    if (EXACT) sums.template add_exactly<N>(slopes, all_h);
    else sums.template add<N>(packed, right);
    if (NEED_X)
#pragma unroll
      for (int n = 0; n < D * 2; n++) {
        const int sample = at.sample(n % 2);
        const float sum = sum_over_rows(for_x[n / 2][n % 2]) * sums.back;
        if (at.row == 0 && sample < warp.B) dx[((i64)t * warp.B + sample) * D + n / 2] = sum;
      }
  }
}

#define RECORDS 4 // a record is asked for three spans before its own, and is needed in the one before
#define FEW (NB < 2 ? NB : 2) // blocks of slots: most spans have no more, and then nothing is kept for others
struct Outputs {
  const float *w_ih;
  float *dk, *dx;
};

// Back through spans, from number `number` on, as long as the units in slots are in more than FEW blocks, or are not: as K
// says. Returns the number of the next one. All units that are open at the end come into their slots before the last span.
template <int K>
__device__ __forceinline__ int go_through(Backward<K> &warp, Tape &tape, Behind &behind, const Records<RECORDS> &records, int number, const Outputs &out) {
  for (; number >= 0; number--) {
    const bool end = number == records.spans;
    const Span span = records.at(number), before = records.at(number - 1);
    const u32 open = end ? 0 : span.open(), opens = end ? 0 : span.opens(), closes = end ? before.open() : span.closes();
    if (FEW < NB && (blocks_of(open | closes) > FEW) != (K > FEW)) break;
    if (!end) records.ask(number - RECORDS + 1);
    if (open) behind.go_to(span);
    else let_copies_come();
    const int blocks = blocks_of(open); // a loop for each number of them, as in the forward pass
    if (K <= FEW && blocks == 1) go_back<1>(warp, tape, behind, span, out.w_ih, out.dk, out.dx);
    if (FEW == 2 && blocks > (K <= FEW) && blocks <= FEW) go_back<FEW>(warp, tape, behind, span, out.w_ih, out.dk, out.dx);
    if (K > 3 && blocks == 3) go_back<(K > 3 ? 3 : 1)>(warp, tape, behind, span, out.w_ih, out.dk, out.dx);
    if (K > FEW && blocks == K) go_back<K>(warp, tape, behind, span, out.w_ih, out.dk, out.dx);
    if (opens) warp.leave(span);
    if (closes) {
      float entering[K][2];
      warp.enter(before, closes, entering);
      // Their contributions were added to the sums of those that stay.
      if (open & ~opens) warp.sums.propagate_base(warp.between, entering, closes, warp.at);
    }
    __syncwarp(); // everybody has read this record
  }
  return number;
}

// Everything that a warp has between two spans, if it has units in few blocks.
struct State {
  Means means;
  Sums<FEW> sums;
  Tape tape;
  Behind behind;
  Records<RECORDS> records;
  Outputs out;
  int number;
};
// The spans with units in more blocks. Where registers do not suffice for these, they are a function of their own: inside
// the other loops, numbers that are not needed there would be kept in memory, too.
#if WARPS > 8
__device__ __noinline__ void
#else
__device__ __forceinline__ void
#endif
go_through_many(State &state) {
  Backward<NB> all(state.means);
  Tape tape = state.tape;
  Behind behind = state.behind;
  all.sums.copy(state.sums);
  const Records<RECORDS> records = state.records;
  const Outputs out = state.out;
  state.number = go_through(all, tape, behind, records, state.number, out);
  state.means.waiting = all.waiting, state.tape = tape, state.behind = behind;
  state.sums.copy(all.sums);
}

// Arguments as in the forward pass. parts: (M, tiles, H, COLUMNS) of four gates. whole: (M, tiles), whether every number of
// that part was written; otherwise those that the schedule says (sparse_finish.cu). firsts: (M), where each model's pairs
// begin. dk: rows of pairs, as the tape has them. dx: (M, T, B, D), zeros, or null.
extern "C" __global__ void __launch_bounds__(32, WARPS)
sparse_backward(const float *__restrict__ dh_n, const float *__restrict__ dc_n, const float *__restrict__ x,
                const float *__restrict__ w_ih, const float4 *__restrict__ w_hh, const float *__restrict__ k,
                const float *__restrict__ h0, const uint4 *__restrict__ tape, const float *__restrict__ final_h,
                const int *__restrict__ records, const int *__restrict__ counts, float4 *parts, int *whole, i64 *firsts,
                float *__restrict__ dk, float *__restrict__ dx, float *__restrict__ dh0, float *dc0, i64 x_model, i64 room, int T,
                int B, int need_h0) {
  __shared__ __align__(16) float frozen_h[H * TILE];
  __shared__ __align__(16) float frozen_dh[H * TILE];
  __shared__ __align__(16) uint4 weights_memory[KEPT];
  __shared__ __align__(16) uint4 ring[CHUNKS * CHUNK * ROW];
  __shared__ __align__(16) float slopes_memory[32];
  __shared__ __align__(16) int records_memory[RECORDS * RECORD];
  const Place at = my_place();
  const i64 model = at.model, row = first_row(counts, at, gridDim.y, gridDim.x, room), state = model * B * H;
  const i64 warp_number = model * gridDim.x + at.tile;
  parts += warp_number * H * COLUMNS, dc0 += state;
  if (at.tile == 0 && at.lane == 0) firsts[model] = row;
  if (row < 0) { // the forward pass gave no numbers
    for (i64 n = at.lane; n < (i64)B * H; n += 32) dh0[state + n] = dc0[n] = __uint_as_float(0x7fffffff);
    for (i64 n = at.lane; n < H * COLUMNS * 4; n += 32) ((float *)parts)[n] = __uint_as_float(0x7fffffff);
    if (at.lane == 0) whole[warp_number] = 1;
    return;
  }
  const int spans = counts[model * COUNTS + SPANS_AT];
  const Records<RECORDS> spans_behind(records + model * T * RECORD, records_memory, spans, at);
  for (int n = 1; n < RECORDS; n++) spans_behind.ask(spans - n);
  Tape stream(tape + row * ROW, ring, counts[model * COUNTS + PAIRS_AT], at);
  final_h += warp_number * H * TILE, dk += row, w_ih += model * 4 * H * D;
  bool carried = need_h0;
  for (int u = at.row; u < H; u += 8)
#pragma unroll
    for (int n = 0; n < 2; n++) {
      const int place = u * TILE + at.column * 2 + n;
      const i64 cell = state + (i64)at.sample(n) * H + u;
      const bool real = at.sample(n) < B;
      frozen_h[place] = final_h[place], carried |= real && h0[cell] != 0;
      frozen_dh[place] = real && dh_n ? dh_n[cell] : 0;
      if (real) dc0[cell - state] = dc_n ? dc_n[cell] : 0;
    }
  carried = __any_sync(EVERYBODY, carried);
  const bool adding = carried || counts[model * COUNTS + REOPENINGS_AT] > 0;
  if (adding)
    for (int n = at.lane; n < H * COLUMNS; n += 32) parts[n] = make_float4(0, 0, 0, 0);
  if (at.lane == 0) whole[warp_number] = adding;
  Backward<FEW> few({at, Between<true>(weights_memory), w_hh + model * H * H, parts, frozen_h, frozen_dh, slopes_memory, dc0, B, carried, adding, EVERYBODY});
  Behind behind(at, x + model * x_model, k + model * T * H, B);
  const Outputs out = {w_ih, dk, NEED_X ? dx + model * T * B * D : dx};
  wait_for_copies<0>();
  __syncwarp();
  for (int number = spans; number >= 0;) {
    number = go_through(few, stream, behind, spans_behind, number, out);
    if (FEW < NB && number >= 0) {
      State state = {few, few.sums, stream, behind, spans_behind, out, number};
      go_through_many(state);
      few.waiting = state.means.waiting, few.sums = state.sums;
      stream = state.tape, behind = state.behind, number = state.number;
    }
  }
  for (int u = at.row; u < H; u += 8)
#pragma unroll
    for (int n = 0; n < 2; n++)
      if (at.sample(n) < B) dh0[state + (i64)at.sample(n) * H + u] = frozen_dh[u * TILE + at.column * 2 + n];
}
