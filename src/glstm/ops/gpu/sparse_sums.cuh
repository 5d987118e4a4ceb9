// What the sparse path's backward pass adds up: the gradients of h, and of weights.

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

