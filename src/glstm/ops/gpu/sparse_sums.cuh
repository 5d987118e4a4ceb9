// What a warp of the sparse path's backward pass keeps, and adds up.

#define CHUNK 8                      // pairs of the tape that are copied at once
#define CHUNKS (NB == 1 || (EXACT && NB < 4) ? 4 : 8) // that the ring holds: at least NB + 1, which one step may touch

// The tape is one stream: every step's rows lie before those of the step after it. It comes through a ring in shared
// memory, a few steps ahead. Chunks are counted from the tape's beginning.
struct Tape {
  const uint4 *rows, *ring;
  u32 address;
  int lane, pairs;
  int asked, asked_before, asked_earlier; // lowest chunk that was asked for: until now, the last step, the step before that
  __device__ __forceinline__ Tape(const uint4 *rows, uint4 *ring, int pairs, const Place &at)
      : rows(rows), ring(ring), address(shared_address(ring)), lane(at.lane), pairs(pairs) {
    asked = asked_before = asked_earlier = (pairs + CHUNK - 1) / CHUNK;
    ask(asked - CHUNKS);
  }
  __device__ __forceinline__ void ask(int lowest) {
#pragma unroll 1
    while (asked > max(lowest, 0)) {
      asked--;
#pragma unroll
      for (int n = 0; n < PIECES; n++) {
        const int piece = asked * CHUNK * ROW + n * 32 + lane;
        copy_early(address + ((u32)asked % CHUNKS * CHUNK * ROW + n * 32 + lane) * 16, rows + piece, piece < pairs * ROW);
      }
    }
    end_copies();
  }
  // A step's pairs are there from now on; those above them may be overwritten.
  __device__ __forceinline__ void need(u32 low, u32 high) {
    __syncwarp(); // everybody has read the steps before
    asked_earlier = asked_before, asked_before = asked;
    ask((int)(high / CHUNK) - (CHUNKS - 1));
    const int lowest = low / CHUNK;
    if (lowest >= asked_earlier) wait_for_copies<2>();
    else if (lowest >= asked_before) wait_for_copies<1>();
    else wait_for_copies<0>();
    __syncwarp();
  }
  __device__ __forceinline__ const uint4 *row(u32 pair) const { return ring + pair % (CHUNKS * CHUNK) * ROW; }
};

// As much of a number as a product of float32 numbers reads.
__device__ __forceinline__ float upper_bits(float v) { return __uint_as_float(__float_as_uint(v) & ~0x1fffu); }
__device__ __forceinline__ float inverse(float power_of_two) { return __uint_as_float((254u << 23) - __float_as_uint(power_of_two)); }

// Everything that is a sum of slopes is times `scale`, a power of two that takes slopes into the range of 16 bits. It is
// the same from step to step as long as that will do.
#define LARGEST 32768.0f             // that a slope may be after scaling
#define SMALLEST 1.0f                // that a bound on all slopes may be
#define WIDEST 1.2e24f               // largest scale over the smallest: sums of large slopes must not overflow later

// Of the first K blocks of slots; in the others is no unit.
template <int K> struct Sums {
  float dh[K][2], dc[K][2];
  float base[K][4][2];       // slopes of the sums over closed units: of all steps since these were last distributed
  float inputs[K][4][D];     // gradient of the weights from the inputs, over this thread's samples
  float between[K][2][K][4]; // gradient of the weights between slots, since both units came into them: as products give it
  float scale, back, least;

  __device__ __forceinline__ void clear() {
    scale = back = 1, least = 3e38f;
#pragma unroll
    for (int n = 0; n < K; n++) dh[n][0] = dh[n][1] = dc[n][0] = dc[n][1] = 0;
#pragma unroll
    for (int n = 0; n < K * 8; n++) (&base[0][0][0])[n] = 0;
#pragma unroll
    for (int n = 0; n < K * 4 * D; n++) (&inputs[0][0][0])[n] = 0;
#pragma unroll
    for (int n = 0; n < K * K * 8; n++) (&between[0][0][0][0])[n] = 0;
  }
  // As another struct has them, for more or fewer blocks.
  template <int J> __device__ __forceinline__ void copy(const Sums<J> &from) {
    constexpr int both = J < K ? J : K;
    clear();
    scale = from.scale, back = from.back, least = from.least;
#pragma unroll
    for (int n = 0; n < both; n++) {
#pragma unroll
      for (int s = 0; s < 2; s++) dh[n][s] = from.dh[n][s], dc[n][s] = from.dc[n][s];
#pragma unroll
      for (int m = 0; m < 8; m++) (&base[n][0][0])[m] = (&from.base[n][0][0])[m];
#pragma unroll
      for (int m = 0; m < 4 * D; m++) (&inputs[n][0][0])[m] = (&from.inputs[n][0][0])[m];
#pragma unroll
      for (int m = 0; m < both * 8; m++) between[n][m % 2][m / 8][m / 2 % 4] = from.between[n][m % 2][m / 8][m / 2 % 4];
    }
  }
  __device__ __forceinline__ void multiply_all(float ratio) {
#pragma unroll
    for (int n = 0; n < K * 8; n++) (&base[0][0][0])[n] *= ratio;
#pragma unroll
    for (int n = 0; n < K * 4 * D; n++) (&inputs[0][0][0])[n] *= ratio;
#pragma unroll
    for (int n = 0; n < K * K * 8; n++) (&between[0][0][0][0])[n] *= ratio;
  }
  // No slope of a step is larger than this, if c is the state before it.
  __device__ __forceinline__ float bound(int n, int s, float c) const { return (fabsf(dh[n][s]) + fabsf(dc[n][s])) * fmaxf(1.0f, fabsf(c)); }
  // Before a step of the first N blocks. What is not a number has no say: one lost sample must not change others.
  template <int N> __device__ __forceinline__ void fit_scale(const float c[N][2]) {
    float most = 0;
#pragma unroll
    for (int n = 0; n < N; n++) most = fmaxf(most, fmaxf(bound(n, 0, c[n][0]), bound(n, 1, c[n][1])));
    most *= scale;
    if (__any_sync(EVERYBODY, most > LARGEST) || !__any_sync(EVERYBODY, most >= SMALLEST)) find_scale<N>(c);
  }
  template <int N> __device__ __forceinline__ void find_scale(const float c[N][2]) {
    u32 most = 0;
#pragma unroll
    for (int n = 0; n < N * 2; n++) {
      const u32 size = __float_as_uint(bound(n / 2, n % 2, c[n / 2][n % 2]));
      most = max(most, size < INFINITE ? size : 0);
    }
    most = __reduce_max_sync(EVERYBODY, most);
    if (!most) return;
    float unused;
    const float found = fminf(scale_for(most, &unused) * 128, least * WIDEST);
    if (found == scale) return;
    multiply_all(found * back);
    scale = found, back = inverse(found), least = fminf(least, found);
  }

  // Units come into these slots: sums begin at 0, whatever was left there.
  __device__ __forceinline__ void begin(u32 slots, const Place &at) {
#pragma unroll
    for (int to = 0; to < K; to++) {
      const bool row = at.holds(slots, to);
#pragma unroll
      for (int n = 0; n < 8; n++) (&base[to][0][0])[n] = row ? 0 : (&base[to][0][0])[n];
#pragma unroll
      for (int n = 0; n < 4 * D; n++) (&inputs[to][0][0])[n] = row ? 0 : (&inputs[to][0][0])[n];
#pragma unroll
      for (int from = 0; from < K; from++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
          const bool empty = row || (slots >> (from * 8 + at.column * 2 + n) & 1);
#pragma unroll
          for (int gate = 0; gate < 4; gate++) {
            float &sum = between[to][gate >> 1][from][(gate & 1) * 2 + n];
            sum = empty ? 0 : sum;
          }
        }
    }
  }
  // between += slopes times h, both float32 to the last bit.
  template <int N> __device__ __forceinline__ void add_exactly(const float slopes[][4][2], const float h[][2]) {
    float upper[N][2], lower[N][2];
#pragma unroll
    for (int n = 0; n < N * 2; n++) upper[n / 2][n % 2] = upper_bits(h[n / 2][n % 2]), lower[n / 2][n % 2] = h[n / 2][n % 2] - upper[n / 2][n % 2];
#pragma unroll
    for (int to = 0; to < N; to++)
#pragma unroll
      for (int two = 0; two < 2; two++) {
        const float *one = slopes[to][2 * two], *other = slopes[to][2 * two + 1];
        float left[4] = {one[0], other[0], one[1], other[1]}, rest[4];
#pragma unroll
        for (int n = 0; n < 4; n++) rest[n] = left[n] - upper_bits(left[n]), left[n] = upper_bits(left[n]);
#pragma unroll
        for (int from = 0; from < N; from++) {
          float *sum = between[to][two][from];
          multiply_wide(sum, rest, upper[from]), multiply_wide(sum, left, lower[from]);
          multiply_wide(sum, left, upper[from]);
        }
      }
  }
  // The same of 16-bit numbers, as they are: slopes of a gate and h of a slot, each of two samples.
  template <int N> __device__ __forceinline__ void add(const u32 slopes[][4], const u32 h[]) {
#pragma unroll
    for (int to = 0; to < N; to++)
#pragma unroll
      for (int two = 0; two < 2; two++)
#pragma unroll
        for (int from = 0; from < N; from++) multiply_short(between[to][two][from], slopes[to][2 * two], slopes[to][2 * two + 1], h[from]);
  }
  // dh of the slots in `rows` += weights^T times slopes, given in 16 bits; times `factor`.
  template <int N>
  __device__ __forceinline__ void propagate(const Between<true> &weights, const u32 slopes[][4], const u32 slopes_rest[][4], u32 rows,
                                            float factor, const Place &at) {
    float found[(N + 1) / 2][2][4], rests[(N + 1) / 2][4];
#pragma unroll
    for (int n = 0; n < (N + 1) / 2 * 4; n++) found[n / 4][0][n % 4] = found[n / 4][1][n % 4] = rests[n / 4][n % 4] = 0;
#pragma unroll
    for (int to = 0; to < N; to++) {
      u32 right[4], right_rest[4];
#pragma unroll
      for (int gate = 0; gate < 4; gate++) {
        right[gate] = transpose(slopes[to][gate]);
        if (EXACT) right_rest[gate] = transpose(slopes_rest[to][gate]);
      }
#pragma unroll
      for (int from = 0; from < N; from += 2) { // two blocks of rows and two gates at a time
#pragma unroll
        for (int two = 0; two < 2; two++) {
          const uint4 w = weights.at(to, from / 2, two, 0);
          const u32 left[4] = {w.x, w.y, w.z, w.w};
          multiply(found[from / 2][two], left, right[2 * two], right[2 * two + 1]);
          if (EXACT) {
            const uint4 w_rest = weights.at(to, from / 2, two, EXACT);
            const u32 left_rest[4] = {w_rest.x, w_rest.y, w_rest.z, w_rest.w};
            multiply(rests[from / 2], left_rest, right[2 * two], right[2 * two + 1]);
            multiply(rests[from / 2], left, right_rest[2 * two], right_rest[2 * two + 1]);
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int s = 0; s < 2; s++) {
        const int place = n % 2 * 2 + s;
        float sum = found[n / 2][0][place] + found[n / 2][1][place];
        if (EXACT) sum = fmaf(rests[n / 2][place], 1 / REST, sum);
        dh[n][s] = at.holds(rows, n) ? fmaf(factor, sum, dh[n][s]) : dh[n][s];
      }
  }
  // The slopes of sums over closed units reach units that were closed before: h is theirs, of the slots in `rows`.
  __device__ __forceinline__ void propagate_base(const Between<true> &weights, const float h[K][2], u32 rows, const Place &at) {
    u32 most = 0;
#pragma unroll
    for (int n = 0; n < K * 8; n++) {
      const u32 size = __float_as_uint((&base[0][0][0])[n]) & ~(1u << 31);
      most = max(most, size < INFINITE ? size : 0);
    }
    float own_back;
    const float own = scale_for(__reduce_max_sync(EVERYBODY, most), &own_back);
    u32 slopes[K][4], rest[K][4];
#pragma unroll
    for (int n = 0; n < K; n++)
#pragma unroll
      for (int g = 0; g < 4; g++) {
        const float low = base[n][g][0] * own, high = base[n][g][1] * own;
        slopes[n][g] = pack_half(low, high);
        if (EXACT) rest[n][g] = pack_rest(low, high, slopes[n][g]);
      }
    propagate<K>(weights, slopes, rest, rows, back * own_back, at);
    add_exactly<K>(base, h);
  }
};
