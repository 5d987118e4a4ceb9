// The weights between slots, transposed: rows are 8 slots that h comes from, columns one gate of 8 slots. They lie in
// shared memory, a thread's four gates together, because registers are needed for sums.
#define KEPT (NB * NB * (1 + EXACT) * 32)

struct Transposed {
  uint4 *own;
  __device__ __forceinline__ explicit Transposed(uint4 *memory) : own(memory + threadIdx.x) {
    for (int n = 0; n < KEPT; n += 32) own[n] = make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ uint4 &at(int from, int to, int rest) { return own[((rest * NB + from) * NB + to) * 32]; }
  // Again, of the blocks in which these slots are.
  __device__ __forceinline__ void load(const float4 *w_hh, const Span &span, u32 slots, const Place &place) {
    const u32 fresh = blocks_with(slots);
#pragma unroll
    for (int from = 0; from < NB; from++)
#pragma unroll
      for (int to = 0; to < NB; to++)
        if ((fresh >> to | fresh >> from) & 1) {
          float4 w[2];
#pragma unroll
          for (int n = 0; n < 2; n++) {
            const int across = span.across(place, to, n);
            w[n] = span.unit[from] >= 0 && across >= 0 ? w_hh[across * H + span.unit[from]] : make_float4(0, 0, 0, 0);
          }
          const uint4 two = make_uint4(pack_half(w[0].x, w[1].x), pack_half(w[0].y, w[1].y), pack_half(w[0].z, w[1].z), pack_half(w[0].w, w[1].w));
          at(from, to, 0) = two;
          if (EXACT)
            at(from, to, EXACT) = make_uint4(pack_rest(w[0].x, w[1].x, two.x), pack_rest(w[0].y, w[1].y, two.y),
                                             pack_rest(w[0].z, w[1].z, two.z), pack_rest(w[0].w, w[1].w, two.w));
        }
  }
  // dh of the slots in `rows` += weights^T times slopes, of the first so many blocks.
  __device__ __forceinline__ void multiply(float dh[NB][2], const float slopes[NB][4][2], u32 rows, int blocks, const Place &place) {
    float largest = 0; // without those that are no numbers
#pragma unroll
    for (int n = 0; n < NB * 8; n++) largest = fmaxf(largest, fabsf((&slopes[0][0][0])[n]));
    u32 most = __reduce_max_sync(EVERYBODY, __float_as_uint(largest));
    if (most >= INFINITE) { // one sample that is not finite must not change others
      most = 0;
#pragma unroll
      for (int n = 0; n < NB * 8; n++) {
        const u32 size = __float_as_uint((&slopes[0][0][0])[n]) & ~(1u << 31);
        most = max(most, size < INFINITE ? size : 0);
      }
      most = __reduce_max_sync(EVERYBODY, most);
    }
    float back, scale = scale_for(most, &back), sums[NB + 1][2], rests[NB + 1][2];
#pragma unroll
    for (int n = 0; n <= NB; n++) sums[n][0] = sums[n][1] = rests[n][0] = rests[n][1] = 0;
#pragma unroll
    for (int to = 0; to < NB; to++)
      if (to < blocks) {
        u32 right[4], right_rest[4];
#pragma unroll
        for (int gate = 0; gate < 4; gate++) make_right(slopes[to][gate], scale, right[gate], right_rest[gate]);
#pragma unroll
        for (int from = 0; from < NB; from += 2) // two blocks of rows at a time
          if (from < blocks) {
            const int beside = from + 1 < NB ? from + 1 : 0;
            const uint4 nothing = make_uint4(0, 0, 0, 0), one = at(from, to, 0), other = beside ? at(beside, to, 0) : nothing;
            const uint4 one_rest = EXACT ? at(from, to, EXACT) : nothing, other_rest = EXACT && beside ? at(beside, to, EXACT) : nothing;
#pragma unroll
            for (int gate = 0; gate < 4; gate++) {
              multiply_short(sums[from], (&one.x)[gate], (&other.x)[gate], right[gate]);
              if (EXACT) {
                multiply_short(rests[from], (&one_rest.x)[gate], (&other_rest.x)[gate], right[gate]);
                multiply_short(rests[from], (&one.x)[gate], (&other.x)[gate], right_rest[gate]);
              }
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

// As much of a number as a product of float32 numbers reads.
__device__ __forceinline__ float upper_bits(float v) { return __uint_as_float(__float_as_uint(v) & ~0x1fffu); }

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
    u32 rounded[NB + 1];
    float upper[NB + 1][2], lower[NB + 1][2];
#pragma unroll
    for (int from = 0; from <= NB; from++) {
      rounded[from] = pack_bfloat(right[from][0], right[from][1]);
#pragma unroll
      for (int s = 0; s < 2; s++) upper[from][s] = upper_bits(right[from][s]), lower[from][s] = right[from][s] - upper[from][s];
    }
#pragma unroll
    for (int to = 0; to < NB; to++)
      if (to < blocks)
#pragma unroll
        for (int two = 0; two < 2; two++) {
          const float *one = slopes[to][2 * two], *other = slopes[to][2 * two + 1];
          const u32 one_rounded = pack_bfloat(one[0], one[1]), other_rounded = pack_bfloat(other[0], other[1]);
          float left[4] = {one[0], other[0], one[1], other[1]}, rest[4];
#pragma unroll
          for (int n = 0; n < 4; n++) rest[n] = left[n] - upper_bits(left[n]), left[n] = upper_bits(left[n]);
#pragma unroll
          for (int from = 0; from <= NB; from++)
            if (from < NB ? from < blocks : ends) {
              float *sum = sums[to][two][from];
              if (EXACT) {
                multiply_wide(sum, rest, upper[from]), multiply_wide(sum, left, lower[from]);
                multiply_wide(sum, left, upper[from]);
              } else
                multiply_bfloat(sum, one_rounded, other_rounded, rounded[from]);
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
            const int column = from < NB ? span.across(at, from < NB ? from : 0, n) : H + end;
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
