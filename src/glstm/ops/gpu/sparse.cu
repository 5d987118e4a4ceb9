// The weights between slots, in registers.
struct Weights {
  uint4 r[NB][HALVES][2], rest[EXACT ? NB : 1][HALVES][2];
  __device__ __forceinline__ void load(const Between<false> &between) {
#pragma unroll
    for (int to = 0; to < NB; to++)
#pragma unroll
      for (int n = 0; n < HALVES * 2; n++) {
        r[to][n / 2][n % 2] = between.at(to, n / 2, n % 2, 0);
        if (EXACT) rest[to][n / 2][n % 2] = between.at(to, n / 2, n % 2, 1);
      }
  }
  // sums += weights times h, of the first N blocks
  template <int N> __device__ __forceinline__ void multiply_by(float sums[NB][4][2], const float h[NB][2]) const {
    u32 right[N + 1], right_rest[N + 1];
    right[N] = right_rest[N] = 0;
#pragma unroll
    for (int from = 0; from < N; from++) make_right(h[from], right[from], right_rest[from]);
#pragma unroll
    for (int to = 0; to < N; to++)
#pragma unroll
      for (int two = 0; two < 2; two++) {
        float *sum = sums[to][2 * two], rests[4] = {0};
#pragma unroll
        for (int from = 0; from < N; from += 2) {
          const bool both = from + 1 < N;
          accumulate_half(sum, r[to][from / 2][two], right + from, both);
          if (EXACT) {
            accumulate_half(rests, rest[EXACT ? to : 0][from / 2][two], right + from, both);
            accumulate_half(rests, r[to][from / 2][two], right_rest + from, both);
          }
        }
        if (EXACT)
#pragma unroll
          for (int n = 0; n < 4; n++) sum[n] = fmaf(rests[n], 1 / REST, sum[n]);
      }
  }
  // From two blocks at once, or from one.
  __device__ __forceinline__ static void accumulate_half(float *sum, const uint4 &w, const u32 *right, bool both) {
    const u32 left[4] = {w.x, w.y, w.z, w.w};
    if (both) multiply(sum, left, right[0], right[1]);
    else multiply_short(sum, left[0], left[1], right[0]);
  }
};

// A warp: its units in slots. base: what closed units contribute to the gates' sums, and the bias.
struct Forward {
  const Place at;
  const Between<false> between;
  const float *const w_ih, *const b;
  const float4 *const w_hh;
  float *const frozen_h, *const frozen_c; // of closed units; h of open ones is 0
  bool carried;                           // whether closed units that were never open have a value
  Weights weights;
  float h[NB][2], c[NB][2], base[NB][4][2], w_x[NB][4][D];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < NB; n++) {
#pragma unroll
      for (int s = 0; s < 2; s++) h[n][s] = c[n][s] = 0;
#pragma unroll
      for (int g = 0; g < 4; g++) {
        base[n][g][0] = base[n][g][1] = 0;
#pragma unroll
        for (int d = 0; d < D; d++) w_x[n][g][d] = 0;
      }
    }
    __syncwarp();
    weights.load(between);
  }
  __device__ __forceinline__ int place(const Span &span, int n, int s) const { return span.unit(at, n) * TILE + at.column * 2 + s; }

  // The sums of the unit in a slot over all closed units. Loads go together: they come from far away.
  __device__ __forceinline__ void sum_afresh(const Span &span, int slot) {
    const int unit = span.unit_of(slot), reach = carried ? H : span.reach();
    float sums[4][2] = {{0}}, bias[4];
#pragma unroll
    for (int g = 0; g < 4; g++) bias[g] = b[g * H + unit];
    for (int first = 0; first < reach; first += 64) {
      float4 w[8];
#pragma unroll
      for (int n = 0; n < 8; n++) {
        const int u = first + n * 8 + at.row;
        w[n] = make_float4(0, 0, 0, 0);
        if (u < reach) w[n] = w_hh[unit * H + u];
      }
#pragma unroll
      for (int n = 0; n < 8; n++) {
        const int u = first + n * 8 + at.row;
        const float2 v = *(const float2 *)(frozen_h + (u < reach ? u : 0) * TILE + at.column * 2);
#pragma unroll
        for (int g = 0; g < 4; g++) sums[g][0] = fmaf((&w[n].x)[g], v.x, sums[g][0]), sums[g][1] = fmaf((&w[n].x)[g], v.y, sums[g][1]);
      }
    }
    sum_eight_over_rows(&sums[0][0], at);
#pragma unroll
    for (int n = 0; n < NB; n++)
      if (n * 8 + at.row == slot)
#pragma unroll
        for (int g = 0; g < 4; g++) base[n][g][0] = bias[g] + sums[g][0], base[n][g][1] = bias[g] + sums[g][1];
  }

  // What changes where a span begins.
  __device__ __forceinline__ void begin(const Span &span) {
    const u32 open = span.open(), opens = span.opens(), closes = span.closes();
    if (closes) {
      float closing[NB][2];
#pragma unroll
      for (int n = 0; n < NB; n++)
#pragma unroll
        for (int s = 0; s < 2; s++) {
          const bool mine = at.holds(closes, n);
          closing[n][s] = mine ? h[n][s] : 0;
          if (mine) frozen_h[place(span, n, s)] = h[n][s], frozen_c[place(span, n, s)] = c[n][s], h[n][s] = c[n][s] = 0;
        }
      if (open & ~opens) weights.multiply_by<NB>(base, closing);
      __syncwarp();
    }
    if (!opens) return;
    Edge edge;
    edge.load(w_hh, span, __ffs(opens) - 1);
#pragma unroll
    for (int n = 0; n < NB; n++)
      if (at.holds(opens, n)) {
#pragma unroll
        for (int g = 0; g < 4; g++)
#pragma unroll
          for (int d = 0; d < D; d++) w_x[n][g][d] = w_ih[(g * H + span.unit(at, n)) * D + d];
#pragma unroll
        for (int s = 0; s < 2; s++) {
          const int where = place(span, n, s);
          h[n][s] = frozen_h[where], c[n][s] = frozen_c[where], frozen_h[where] = 0;
        }
      }
    __syncwarp();
    // What had a value is part of the others' sums: they are summed again, and nothing is ever subtracted.
    for (u32 slots = carried || span.again() ? open : opens; slots; slots &= slots - 1) sum_afresh(span, __ffs(slots) - 1);
    for (u32 slots = opens; slots;) {
      const int slot = __ffs(slots) - 1;
      if (at.lane < SLOTS) between.write(slot, at.lane, edge.to), between.write(at.lane, slot, edge.from);
      slots &= slots - 1;
      if (slots) edge.load(w_hh, span, __ffs(slots) - 1);
    }
    __syncwarp();
    weights.load(between);
  }

  // A step of the first N blocks. tape: this thread's rows of the step, or null.
  template <int N> __device__ __forceinline__ void step(u32 open, const float x[2][D], const float k[NB], uint4 *tape, const int rank[NB]) {
    float sums[NB][4][2];
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int g = 0; g < 4; g++)
#pragma unroll
        for (int s = 0; s < 2; s++) {
          sums[n][g][s] = base[n][g][s];
#pragma unroll
          for (int d = 0; d < D; d++) sums[n][g][s] = fmaf(w_x[n][g][d], x[s][d], sums[n][g][s]);
        }
    weights.multiply_by<N>(sums, h);
#pragma unroll
    for (int n = 0; n < N; n++) {
      const float c_before[2] = {c[n][0], c[n][1]}, h_before[2] = {h[n][0], h[n][1]}, k_now = at.holds(open, n) ? k[n] : 0;
      float v[2][4];
#pragma unroll
      for (int s = 0; s < 2; s++) {
#pragma unroll
        for (int g = 0; g < 4; g++) v[s][g] = sums[n][g][s];
        step_cell(v[s], k_now, c[n][s], h[n][s]);
      }
      if (TAPED && at.holds(open, n)) {
        uint4 *out = tape + rank[n] * ROW;
        if (EXACT) {
          *(float4 *)out = make_float4(v[0][0], v[0][1], v[0][2], v[0][3]);
          *(float4 *)(out + 4) = make_float4(v[1][0], v[1][1], v[1][2], v[1][3]);
          *(float4 *)(out + 4 * (PIECES - 1)) = make_float4(c_before[0], c_before[1], h_before[0], h_before[1]);
        } else {
          *out = make_uint4(pack_half(v[0][0], v[1][0]), pack_half(v[0][1], v[1][1]), pack_half(v[0][2], v[1][2]), pack_half(v[0][3], v[1][3]));
          out[4] = make_uint4(__float_as_uint(c_before[0]), __float_as_uint(c_before[1]), pack_half(h_before[0], h_before[1]), __float_as_uint(k_now));
        }
      }
    }
  }
};

#define RECORDS 8 // seven spans before a record is needed, it is asked for
#define LEAD 4 // steps whose inputs are in shared memory: this one, and three that are on their way
#define WHOLE (H % 4 == 0 ? 4 : H % 2 == 0 ? 2 : 1) // numbers of a table's row that are copied at once
#define ENTRY (TILE * D + (H + 3) / 4 * 4)

// Inputs and rows of the table, copied to shared memory before they are needed: memory takes longer than a step.
struct Ahead {
  const Place at;
  const float *const x, *const k, *const ring;
  const u32 address;
  const int T, B;
  int asked; // the first step that was not asked for yet
  __device__ __forceinline__ Ahead(const Place &at, const float *x, const float *k, float *ring, int T, int B)
      : at(at), x(x), k(k), ring(ring), address(shared_address(ring)), T(T), B(B), asked(0) {}
  __device__ __forceinline__ void ask() {
    const u32 entry = address + (asked & (LEAD - 1)) * ENTRY * 4;
    const bool there = asked < T;
    const int sample = at.tile * TILE + at.lane / D; // one that is not there reads another's
    copy_early<4>(entry + at.lane * 4, x + ((i64)asked * B + (sample < B ? sample : 0)) * D + at.lane % D, there && at.lane < TILE * D);
    const float *row = k + (i64)asked * H;
#pragma unroll
    for (int n = 0; n < H / WHOLE; n += 32) {
      const int piece = (n + at.lane) * WHOLE;
      copy_early<4 * WHOLE>(entry + (TILE * D + piece) * 4, row + piece, there && piece < H);
    }
    asked++;
  }
  // Before the first step of a span.
  __device__ __forceinline__ void go_to(int t) {
    if (asked >= t + LEAD - 1) return;
    asked = max(asked, t);
    while (asked < t + LEAD - 1) ask();
    end_copies();
    wait_for_copies<0>();
  }
  // This step's inputs, and the openness of units; and the step three later is asked for.
  __device__ __forceinline__ void take(int t, float x_now[2][D], float open[NB], const int unit[NB]) {
    __syncwarp(); // everybody has read the step before
    ask();
    end_copies();
    wait_for_copies<LEAD - 1>();
    __syncwarp();
    const float *entry = ring + (t & (LEAD - 1)) * ENTRY;
#pragma unroll
    for (int n = 0; n < NB; n++) open[n] = entry[TILE * D + max(unit[n], 0)];
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int d = 0; d < D; d++) {
        const float v = entry[(at.column * 2 + s) * D + d];
        x_now[s][d] = at.sample(s) < B ? v : 0;
      }
  }
};

template <int N> __device__ __forceinline__ void go_through(Forward &warp, Ahead &ahead, const Span &span, uint4 *tape) {
  const u32 open = span.open();
  const int row = __popc(open) * ROW, end = span.end();
  int rank[NB], unit[NB];
#pragma unroll
  for (int n = 0; n < NB; n++) rank[n] = rank_in(open, warp.at, n), unit[n] = n < N ? span.unit(warp.at, n) : 0;
  for (int t = span.start(); t < end; t++, tape += TAPED ? row : 0) {
    float x[2][D], k[NB];
    ahead.take(t, x, k, unit);
    warp.step<N>(open, x, k, tape, rank);
  }
}

// x: (T, B, D); x_model: numbers from one model's to the next one's, 0 where all read the same. w_hh: (M, H, H) of four
// gates each. tape: rows of pairs, PIECES for each thread of a row; final_h: (M, tiles, H, 8), from which backward starts.
extern "C" __global__ void __launch_bounds__(32, WARPS)
sparse_forward(const float *__restrict__ x, const float *__restrict__ w_ih, const float *__restrict__ b,
               const float4 *__restrict__ w_hh, const float *__restrict__ k, const float *__restrict__ h0,
               const float *__restrict__ c0, float *__restrict__ h_n, float *__restrict__ c_n, uint4 *__restrict__ tape,
               float *__restrict__ final_h, const int *__restrict__ records, const int *__restrict__ counts, i64 x_model, i64 room,
               int T, int B) {
  __shared__ __align__(16) float frozen_h[H * TILE];
  __shared__ __align__(16) float frozen_c[H * TILE];
  __shared__ __align__(16) uint4 weights_memory[KEPT];
  __shared__ __align__(16) int records_memory[RECORDS * RECORD];
  __shared__ __align__(16) float inputs_memory[LEAD * ENTRY];
  const Place at = my_place();
  const int spans = counts[at.model * COUNTS + SPANS_AT];
  const i64 model = at.model, row = first_row(counts, at, gridDim.y, gridDim.x, room), state = model * B * H;
  const Records<RECORDS> spans_ahead(records + model * T * RECORD, records_memory, spans, at);
  for (int n = 0; n < RECORDS - 1; n++) spans_ahead.ask(n);
  end_copies();
  bool carried = false;
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
  if (TAPED) tape += row * ROW + at.column;
  Forward warp = {at, Between<false>(weights_memory), w_ih + model * 4 * H * D, b + model * 4 * H, w_hh + model * H * H, frozen_h, frozen_c, carried};
  warp.clear();
  Ahead ahead(at, x + model * x_model, k + model * T * H, inputs_memory, T, B);

  wait_for_copies<0>();
  __syncwarp();
  for (int number = 0; number < spans; number++) {
    const Span span = spans_ahead.at(number);
    const u32 open = span.open();
    spans_ahead.ask(number + RECORDS - 1);
    if (open) ahead.go_to(span.start());
    else let_copies_come();
    warp.begin(span);
    uint4 *const out = TAPED ? tape + (i64)span.first() * ROW : tape;
    // A loop for each number of blocks: branches inside it would keep products from overlapping.
    const int blocks = blocks_of(open);
    if (blocks == 1) go_through<1>(warp, ahead, span, out);
    if (NB >= 2 && blocks == 2) go_through<(NB >= 2 ? 2 : 1)>(warp, ahead, span, out);
    if (NB >= 3 && blocks == 3) go_through<(NB >= 3 ? 3 : 1)>(warp, ahead, span, out);
    if (NB >= 4 && blocks == 4) go_through<(NB >= 4 ? 4 : 1)>(warp, ahead, span, out);
    __syncwarp(); // everybody has read this record
  }
  const Span last = spans_ahead.at(spans - 1);
#pragma unroll
  for (int n = 0; n < NB; n++)
    if (at.holds(last.open(), n))
#pragma unroll
      for (int s = 0; s < 2; s++) frozen_h[warp.place(last, n, s)] = warp.h[n][s], frozen_c[warp.place(last, n, s)] = warp.c[n][s];
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
