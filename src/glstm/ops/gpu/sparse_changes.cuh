// What the backward pass does where units open or close.

// What a warp of the backward pass has besides sums. parts: this warp's part of the weights' gradient, (H, COLUMNS) of four
// gates. A unit that opens once has each number of it once, and it is written where that is known; otherwise (`adding`) it
// is added to.
struct Means {
  Place at;
  Between<true> between;
  const float4 *w_hh;
  float4 *parts;
  float *frozen_h, *frozen_dh; // of closed units; h of open ones is 0
  float *slopes_memory;        // of one unit: four samples of each gate, then the other four
  float *dc0;                  // of this model: of closed units, the gradient as it is now
  int B;
  bool carried, adding; // whether closed units that were never open have a value, or need a gradient
  u32 waiting;          // units lane, lane + 32, ..: those that have not come into a slot yet
};

// A warp with units in the first K blocks of slots.
template <int K> struct Backward : Means {
  Sums<K> sums;
  u32 h[K][1 + EXACT]; // before the step that was computed last, as the tape has it

  __device__ __forceinline__ explicit Backward(const Means &means) : Means(means) {
    sums.clear();
#pragma unroll
    for (int n = 0; n < K * (1 + EXACT); n++) (&h[0][0])[n] = 0;
  }
  __device__ __forceinline__ float h_of(int n, int s) const { return EXACT ? __uint_as_float(h[n][s * EXACT]) : s ? half_high(h[n][0]) : half_low(h[n][0]); }
  __device__ __forceinline__ int place(const Span &span, int n, int s) const { return span.unit(at, n) * TILE + at.column * 2 + s; }
  __device__ __forceinline__ float *cell(const Span &span, int n, int s) const { return dc0 + (i64)at.sample(s) * H + span.unit(at, n); }
  __device__ __forceinline__ void put(float *to, float v) const { *to = adding ? *to + v : v; }

  // Units come into these slots. entering: their h; 0 elsewhere.
  __device__ __forceinline__ void enter(const Span &span, u32 slots, float entering[K][2]) {
    Edge edge;
    edge.load(w_hh, span, __ffs(slots) - 1);
    __syncwarp(); // everybody has read the weights
    sums.begin(slots, at);
#pragma unroll
    for (int n = 0; n < K; n++)
#pragma unroll
      for (int s = 0; s < 2; s++) {
        entering[n][s] = 0;
        if (!at.holds(slots, n)) continue;
        float &frozen = frozen_h[place(span, n, s)];
        entering[n][s] = frozen, frozen = 0, sums.dh[n][s] = frozen_dh[place(span, n, s)];
        sums.dc[n][s] = at.sample(s) < B ? *cell(span, n, s) : 0;
      }
    while (slots) {
      const int slot = __ffs(slots) - 1, unit = span.unit_of(slot);
      if (at.lane < SLOTS) between.write(slot, at.lane, edge.to), between.write(at.lane, slot, edge.from);
      if (at.lane == unit % 32) waiting &= ~(1u << unit / 32);
      slots &= slots - 1;
      if (slots) edge.load(w_hh, span, __ffs(slots) - 1);
    }
    __syncwarp();
  }

  // The sums of the unit in a slot over closed units: gradients of their h, and of the weights from them. A lane takes a
  // closed unit, with all its samples.
  __device__ __forceinline__ void distribute(const Span &span, int slot) {
    const int unit = span.unit_of(slot), reach = carried ? H : span.reach();
#pragma unroll
    for (int n = 0; n < K; n++)
      if (n * 8 + at.row == slot)
#pragma unroll
        for (int g = 0; g < 4; g++) {
          *(float2 *)(slopes_memory + ((at.column / 2 * 4 + g) * 4 + at.column % 2 * 2)) = make_float2(sums.base[n][g][0] * sums.back, sums.base[n][g][1] * sums.back);
          sums.base[n][g][0] = sums.base[n][g][1] = 0;
        }
    __syncwarp();
    for (int first = 0; first < reach; first += 128) {
      float4 w[4], found[4];
      bool wanted[4];
#pragma unroll
      for (int n = 0; n < 4; n++) { // loads go together: they come from far away
        const int u = first + n * 32 + at.lane;
        wanted[n] = u < reach && (adding || (waiting >> (first / 32 + n) & 1));
        w[n] = found[n] = make_float4(0, 0, 0, 0);
        if (wanted[n]) w[n] = w_hh[unit * H + u];
        if (wanted[n] && adding) found[n] = parts[unit * COLUMNS + u];
      }
#pragma unroll
      for (int n = 0; n < 4; n++)
        if (wanted[n]) {
          const int u = first + n * 32 + at.lane;
          float sum[4] = {0};
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const float4 v = *(const float4 *)(frozen_h + u * TILE + half * 4);
            float4 d = *(const float4 *)(frozen_dh + u * TILE + half * 4);
#pragma unroll
            for (int g = 0; g < 4; g++) {
              const float4 slopes = *(const float4 *)(slopes_memory + (half * 4 + g) * 4);
              const float weight = (&w[n].x)[g];
              d.x = fmaf(weight, slopes.x, d.x), d.y = fmaf(weight, slopes.y, d.y), d.z = fmaf(weight, slopes.z, d.z), d.w = fmaf(weight, slopes.w, d.w);
              sum[g] = fmaf(slopes.w, v.w, fmaf(slopes.z, v.z, fmaf(slopes.y, v.y, fmaf(slopes.x, v.x, sum[g]))));
            }
            *(float4 *)(frozen_dh + u * TILE + half * 4) = d;
          }
          parts[unit * COLUMNS + u] = make_float4(found[n].x + sum[0], found[n].y + sum[1], found[n].z + sum[2], found[n].w + sum[3]);
        }
    }
    __syncwarp();
  }

  // The gradient of weights between slots, where one of both units leaves.
  __device__ __forceinline__ void write_between(const Span &span) {
    const u32 open = span.open(), leaving = span.opens(), touched = blocks_with(leaving);
#pragma unroll
    for (int to = 0; to < K; to++) {
      float4 *where[K][2], found[K][2];
      bool wanted[K][2];
#pragma unroll
      for (int from = 0; from < K; from++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
          const int slot = from * 8 + at.column * 2 + n;
          const bool both = at.holds(open, to) && (open >> slot & 1);
          wanted[from][n] = both && (at.holds(leaving, to) || (leaving >> slot & 1));
          where[from][n] = parts + span.unit(at, to) * COLUMNS + span.unit_of(slot);
          found[from][n] = make_float4(0, 0, 0, 0);
          if (adding && wanted[from][n]) found[from][n] = *where[from][n];
        }
#pragma unroll
      for (int from = 0; from < K; from++)
        if ((touched >> to | touched >> from) & 1)
#pragma unroll
          for (int n = 0; n < 2; n++) {
            float4 v = found[from][n];
#pragma unroll
            for (int gate = 0; gate < 4; gate++) (&v.x)[gate] = fmaf(sums.between[to][gate >> 1][from][(gate & 1) * 2 + n], sums.back, (&v.x)[gate]);
            if (wanted[from][n]) *where[from][n] = v;
          }
    }
  }

  // Units leave their slots: it is the beginning of the span at which they open.
  __device__ __forceinline__ void leave(const Span &span) {
    const u32 opens = span.opens(), distributed = carried || span.again() ? span.open() : opens;
#pragma unroll
    for (int n = 0; n < K; n++) {
      float v[4];
#pragma unroll
      for (int g = 0; g < 4; g++) v[g] = (sums.base[n][g][0] + sums.base[n][g][1]) * sums.back;
      const float bias = sum_by_column(v, at);
      float *end = (float *)(parts + span.unit(at, n) * COLUMNS + H) + at.column;
      if (at.holds(distributed, n)) put(end + 4 * D, bias);
#pragma unroll
      for (int d = 0; d < D; d++) {
#pragma unroll
        for (int g = 0; g < 4; g++) v[g] = sums.inputs[n][g][d] * sums.back;
        const float of_input = sum_by_column(v, at);
        if (at.holds(opens, n)) put(end + 4 * d, of_input);
      }
    }
    for (u32 slots = distributed; slots; slots &= slots - 1) distribute(span, __ffs(slots) - 1);
    write_between(span);
#pragma unroll
    for (int n = 0; n < K; n++)
      if (at.holds(opens, n))
#pragma unroll
        for (int s = 0; s < 2; s++) {
          frozen_h[place(span, n, s)] = h_of(n, s), frozen_dh[place(span, n, s)] = sums.dh[n][s];
          if (at.sample(s) < B) *cell(span, n, s) = sums.dc[n][s];
          sums.dh[n][s] = sums.dc[n][s] = 0;
        }
    __syncwarp();
  }
};
