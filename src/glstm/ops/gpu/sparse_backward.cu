// The weights between slots, transposed: rows are 8 slots that h comes from, columns one gate of 8 slots. They lie in
// registers, or where these are needed for sums, in shared memory.
#define KEPT (4 * NB * NB)
#define IN_REGISTERS (NB < 3)

struct Transposed {
#if IN_REGISTERS
  u32 own[KEPT * (1 + EXACT)];
  __device__ __forceinline__ explicit Transposed(u32 *) {
#pragma unroll
    for (int n = 0; n < KEPT * (1 + EXACT); n++) own[n] = 0;
  }
  __device__ __forceinline__ u32 &at(int from, int to, int gate, int rest) { return own[((rest * NB + from) * NB + to) * 4 + gate]; }
#else
  u32 *own;
  __device__ __forceinline__ explicit Transposed(u32 *memory) : own(memory + threadIdx.x) {
    for (int n = 0; n < KEPT * (1 + EXACT); n++) own[n * 32] = 0;
  }
  __device__ __forceinline__ u32 &at(int from, int to, int gate, int rest) { return own[(((rest * NB + from) * NB + to) * 4 + gate) * 32]; }
#endif
  // Again, of the blocks in which these slots are.
  __device__ __forceinline__ void load(const float4 *w_hh, const Span &span, u32 slots) {
    const u32 fresh = blocks_with(slots);
#pragma unroll
    for (int from = 0; from < NB; from++)
#pragma unroll
      for (int to = 0; to < NB; to++)
        if ((fresh >> to | fresh >> from) & 1) {
          float4 w[2];
#pragma unroll
          for (int n = 0; n < 2; n++) {
            const bool there = span.unit[from] >= 0 && span.across[to][n] >= 0;
            w[n] = there ? w_hh[span.across[to][n] * H + span.unit[from]] : make_float4(0, 0, 0, 0);
          }
#pragma unroll
          for (int gate = 0; gate < 4; gate++) {
            const float low = (&w[0].x)[gate], high = (&w[1].x)[gate];
            const u32 two = pack_half(low, high);
            at(from, to, gate, 0) = two;
            if (EXACT) at(from, to, gate, EXACT) = pack_rest(low, high, two);
          }
        }
  }
  // dh of the slots in `rows` += weights^T times slopes, of the first so many blocks.
  __device__ __forceinline__ void multiply(float dh[NB][2], const float slopes[NB][4][2], u32 rows, int blocks, const Place &place) {
    u32 most = 0; // of finite slopes: one sample that is not finite must not change others
#pragma unroll
    for (int n = 0; n < NB * 8; n++) {
      const u32 size = __float_as_uint((&slopes[0][0][0])[n]) & ~(1u << 31);
      most = max(most, n / 8 < blocks && size < INFINITE ? size : 0);
    }
    float back, scale = scale_for(__reduce_max_sync(EVERYBODY, most), &back), sums[NB + 1][2], rests[NB + 1][2];
#pragma unroll
    for (int n = 0; n <= NB; n++) sums[n][0] = sums[n][1] = rests[n][0] = rests[n][1] = 0;
#pragma unroll
    for (int to = 0; to < NB; to++)
      if (to < blocks)
#pragma unroll
        for (int gate = 0; gate < 4; gate++) {
          u32 right, right_rest;
          make_right(slopes[to][gate], scale, right, right_rest);
#pragma unroll
          for (int from = 0; from < NB; from += 2) // two blocks of rows at a time
            if (from < blocks) {
              const u32 one = at(from, to, gate, 0), other = from + 1 < NB ? at(from + 1 < NB ? from + 1 : 0, to, gate, 0) : 0;
              multiply_short(sums[from], one, other, right);
              if (EXACT) {
                const u32 one_rest = at(from, to, gate, EXACT);
                const u32 other_rest = from + 1 < NB ? at(from + 1 < NB ? from + 1 : 0, to, gate, EXACT) : 0;
                multiply_short(rests[from], one_rest, other_rest, right);
                multiply_short(rests[from], one, other, right_rest);
              }
            }
        }
#pragma unroll
    for (int n = 0; n < NB; n++)
#pragma unroll
      for (int s = 0; s < 2; s++) {
        const float found = EXACT ? fmaf(rests[n][s], 1 / REST, sums[n][s]) : sums[n][s];
        if (place.holds(rows, n)) dh[n][s] = fmaf(back, found, dh[n][s]);
      }
  }
};

// The weights' gradient between slots, and from the inputs and the bias (block NB): sums over this warp's samples and over
// the steps since both units came into their slots. It goes to `parts` when one of them leaves.
struct Gradient {
  float sums[NB][2][NB + 1][4];
  // Sums of the slots that units come into begin at 0, whatever was left there.
  __device__ __forceinline__ void clear(u32 slots, const Place &at) {
#pragma unroll
    for (int to = 0; to < NB; to++)
#pragma unroll
      for (int from = 0; from <= NB; from++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
          const bool column = from < NB && (slots >> ((from < NB ? from : 0) * 8 + at.column * 2 + n) & 1);
          if (at.holds(slots, to) || column)
#pragma unroll
            for (int gate = 0; gate < 4; gate++) sums[to][gate >> 1][from][(gate & 1) * 2 + n] = 0;
        }
  }
  // The right side's last block is read where `ends` is.
  __device__ __forceinline__ void add(const float slopes[NB][4][2], const float right[NB + 1][2], int blocks, bool ends) {
    float big[NB + 1][2], small[NB + 1][2];
#pragma unroll
    for (int from = 0; from <= NB; from++)
#pragma unroll
      for (int s = 0; s < 2; s++) {
        big[from][s] = round_to_19_bits(right[from][s]);
        if (EXACT) small[from][s] = round_to_19_bits(right[from][s] - big[from][s]);
      }
#pragma unroll
    for (int to = 0; to < NB; to++)
      if (to < blocks)
#pragma unroll
        for (int two = 0; two < 2; two++) {
          float left[4], rest[4];
#pragma unroll
          for (int n = 0; n < 4; n++) {
            const float v = slopes[to][2 * two + (n & 1)][n >> 1];
            left[n] = round_to_19_bits(v);
            if (EXACT) rest[n] = round_to_19_bits(v - left[n]);
          }
#pragma unroll
          for (int from = 0; from <= NB; from++)
            if (from < NB ? from < blocks : ends) {
              float *sum = sums[to][two][from];
              if (EXACT) multiply_wide(sum, rest, big[from]), multiply_wide(sum, left, small[from]);
              multiply_wide(sum, left, big[from]);
            }
        }
  }
  // To memory: the sums of slots that units leave. parts: (H, COLUMNS) of four gates.
  __device__ __forceinline__ void flush(const Span &span, u32 leaving, float4 *parts, const Place &at) const {
#pragma unroll
    for (int to = 0; to < NB; to++)
#pragma unroll
      for (int from = 0; from <= NB; from++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
          const int slot = (from < NB ? from : 0) * 8 + at.column * 2 + n, end = at.column * 2 + n;
          const bool there = from < NB ? span.open >> slot & 1 : end <= D;
          if (at.holds(span.open, to) && there && (at.holds(leaving, to) || (from < NB && (leaving >> slot & 1)))) {
            const int column = from < NB ? span.across[from < NB ? from : 0][n] : H + end;
            float4 *p = parts + span.unit[to] * COLUMNS + column;
            float4 v = *p;
#pragma unroll
            for (int gate = 0; gate < 4; gate++) (&v.x)[gate] += sums[to][gate >> 1][from][(gate & 1) * 2 + n];
            *p = v;
          }
        }
  }
};

// Arguments as in the forward pass. parts: (M, tiles, H, COLUMNS) of four gates, zeros to begin with. dk: rows of pairs, as
// the tape has them. dx: (M, T, B, D), zeros, or null.
extern "C" __global__ void __launch_bounds__(32)
sparse_backward(const float *__restrict__ dh_n, const float *__restrict__ dc_n, const float *__restrict__ x, i64 x_model,
                const float *__restrict__ w_ih, const float4 *__restrict__ w_hh, const float *__restrict__ k,
                const float *__restrict__ h0, const uint4 *__restrict__ tape, const float *__restrict__ final_h,
                const int *__restrict__ records, const int *__restrict__ counts, float4 *parts, float *__restrict__ dk,
                float *__restrict__ dx, float *__restrict__ dh0, float *__restrict__ dc0, i64 room, int T, int B, int need_h0) {
  __shared__ __align__(8) float frozen_h[H * TILE];
  __shared__ __align__(8) float frozen_dh[H * TILE];
  __shared__ __align__(8) float frozen_dc[H * TILE];
  __shared__ __align__(8) u32 weights_memory[IN_REGISTERS ? 1 : KEPT * (1 + EXACT) * 32];
  const Place at = my_place();
  const i64 model = at.model, row = first_row(counts, at, gridDim.y, gridDim.x, room), state = model * B * H;
  if (row < 0) return; // the forward pass gave no numbers
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
  float h[NB + 1][2], dh[NB][2], dc[NB][2], base[NB][4][2], next_k[NB], next_x[2] = {0, 0};
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

  auto fetch = [&](const Span &span, int t) {
#pragma unroll
    for (int s = 0; s < 2; s++)
      next_x[s] = load_early(x + ((i64)t * B + (at.sample(s) < B ? at.sample(s) : 0)) * D + (at.row < D ? at.row : 0));
#pragma unroll
    for (int n = 0; n < NB; n++) {
      const bool wanted = at.holds(span.open, n);
      const uint4 *from = tape + (wanted ? span.pair(at, n, t) : 0) * ROW + at.column;
      next_k[n] = load_early(k + (i64)t * H + (span.unit[n] < 0 ? 0 : span.unit[n]));
#pragma unroll
      for (int piece = 0; piece < PIECES; piece++)
        load_early(next_tape[n][piece], (const float4 *)from + piece * 4, wanted);
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
        }
    gradient.clear(slots, at);
    weights.load(w_hh, span, slots);
    __syncwarp();
  };
  // The sums of the unit in a slot over closed units: gradients of their h, and of the weights from them.
  auto distribute = [&](const int *record, int slot, int reach) {
    const int unit = record[UNITS_AT + slot];
    float slopes[4][2];
#pragma unroll
    for (int g = 0; g < 4; g++)
#pragma unroll
      for (int s = 0; s < 2; s++) {
        float v = 0;
#pragma unroll
        for (int n = 0; n < NB; n++)
          if (n == slot / 8) v = base[n][g][s];
        slopes[g][s] = __uint_as_float(__shfl_sync(EVERYBODY, __float_as_uint(v), slot % 8 * 4 + at.column));
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
    const int blocks = blocks_of(span.open);
    if (span.open && fetched != span.end - 1) fetch(span, span.end - 1);
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
          known.find(v, c_before[s], h_before, open);
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
      fetched = t - 1;
      if (t > span.start) fetch(span, t - 1);
      else if (t > 0) fetch(next, t - 1);
      weights.multiply(dh, slopes, span.open, blocks, at);
      gradient.add(slopes, h, blocks, true);
#pragma unroll
      for (int n = 0; n < NB; n++)
        if (n < blocks) {
          float sum = dk_now[n];
          sum += __shfl_xor_sync(EVERYBODY, sum, 1);
          sum += __shfl_xor_sync(EVERYBODY, sum, 2);
          if (at.column == 0 && at.holds(span.open, n)) dk[span.pair(at, n, t)] = sum;
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
    for (u32 slots = carried || span.again ? (span.opens ? span.open : 0) : span.opens; slots; slots &= slots - 1)
      distribute(records + number * RECORD, __ffs(slots) - 1, carried ? H : span.reach);
    if (span.opens) {
      gradient.flush(span, span.opens, parts, at);
#pragma unroll
      for (int n = 0; n < NB; n++)
        if (at.holds(span.opens, n))
#pragma unroll
          for (int s = 0; s < 2; s++) {
            const int place = span.unit[n] * TILE + at.column * 2 + s;
            frozen_h[place] = h[n][s], frozen_dh[place] = dh[n][s], frozen_dc[place] = dc[n][s];
            h[n][s] = dh[n][s] = dc[n][s] = 0;
          }
      __syncwarp();
    }
    if (span.closes) {
      enter(next, span.closes);
      if (span.open & ~span.opens) { // their contributions were added to the sums of those that stay
        float closing[NB + 1][2];
#pragma unroll
        for (int n = 0; n <= NB; n++)
#pragma unroll
          for (int s = 0; s < 2; s++) closing[n][s] = n < NB && at.holds(span.closes, n < NB ? n : 0) ? h[n][s] : 0;
        const int both = blocks_of(span.open | span.closes);
        weights.multiply(dh, base, span.closes, both, at);
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

// Adds up `parts` over the tiles of each model, into torch's order: a thread a unit and a column.
extern "C" __global__ void finish_weights(const float4 *__restrict__ parts, float *__restrict__ dw_ih, float *__restrict__ dw_hh,
                                          float *__restrict__ db, int models, int tiles) {
  const i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x, each = (i64)H * COLUMNS;
  if (n >= models * each) return;
  const int column = n % COLUMNS, unit = n / COLUMNS % H;
  const i64 model = n / each;
  const float4 *part = parts + model * tiles * each + n % each;
  float sums[4] = {0};
#pragma unroll 4
  for (int tile = 0; tile < tiles; tile++) {
    const float4 v = part[tile * each];
    sums[0] += v.x, sums[1] += v.y, sums[2] += v.z, sums[3] += v.w;
  }
#pragma unroll
  for (int g = 0; g < 4; g++) {
    const i64 out = model * 4 * H + g * H + unit;
    if (column < H) dw_hh[out * H + column] = sums[g];
    else if (column < H + D) dw_ih[out * D + column - H] = sums[g];
    else db[out] = sums[g];
  }
}

// Adds up dk over the tiles of each model, and takes it apart: a warp a step, 0 where a unit is closed.
extern "C" __global__ void finish_k(const float *__restrict__ pairs, const int *__restrict__ records, const int *__restrict__ steps,
                                    const int *__restrict__ counts, float *__restrict__ dk, i64 room, int T, int models, int tiles) {
  const int lane = threadIdx.x & 31, t = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const Place at = {lane, lane >> 2, lane & 3, (int)blockIdx.y, 0};
  const i64 step = (i64)at.model * T + t, first = first_row(counts, at, models, tiles, room);
  if (t >= T) return;
  for (int u = lane; u < H; u += 32) dk[step * H + u] = 0;
  if (first < 0) return;
  const int *record = records + ((i64)at.model * T + steps[step]) * RECORD;
  const u32 open = record[OPEN_AT];
  __syncwarp();
  if (!(open >> lane & 1)) return;
  const i64 own = counts[at.model * COUNTS + PAIRS_AT];
  const float *from = pairs + first + record[FIRST_AT] + (i64)(t - record[START_AT]) * __popc(open) + __popc(open & ((1u << lane) - 1));
  float sum = 0;
#pragma unroll 4
  for (int tile = 0; tile < tiles; tile++) sum += from[tile * own];
  dk[step * H + record[UNITS_AT + lane]] = sum;
}
