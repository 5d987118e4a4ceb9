// What the forward pass keeps of a step for the backward pass: the cells' gates, and c and h before the step, in 32-bit words
// of a thread. 16-bit numbers lie in pairs, of two cells; a thread with one cell only keeps its h in 32 bits.

#define WIDE_H (EXACT || CELLS == 1)
#define GATE_WORDS ((EXACT ? 4 : 2) * CELLS)
#define GATE_PIECE (GATE_WORDS < 4 ? GATE_WORDS : 4) // words that lie side by side; a piece of every thread, then the next
#define H_WORDS (WIDE_H ? CELLS : CELLS / 2)

__device__ __forceinline__ void pack_gates(u32 words[GATE_WORDS], const float v[CELLS][4]) {
#pragma unroll
  for (int n = 0; n < GATE_WORDS; n++) {
    const int pair = n / 4 * 2 % CELLS;
    words[n] = EXACT        ? __float_as_uint(v[n / 4][n % 4])
               : CELLS == 1 ? pack_half(v[0][2 * n % 4], v[0][2 * n % 4 + 1])
                            : pack_half(v[pair][n % 4], v[(pair + 1) % CELLS][n % 4]);
  }
}
__device__ __forceinline__ float gate_in(const u32 words[GATE_WORDS], int cell, int gate) {
  if (EXACT) return __uint_as_float(words[(4 * cell + gate) % GATE_WORDS]);
  const u32 two = words[CELLS == 1 ? gate / 2 : cell / 2 * 4 + gate];
  return (CELLS == 1 ? gate : cell) % 2 ? half_high(two) : half_low(two);
}

__device__ __forceinline__ void pack_h(u32 words[H_WORDS], const float h[CELLS]) {
#pragma unroll
  for (int n = 0; n < H_WORDS; n++) words[n] = WIDE_H ? __float_as_uint(h[n]) : pack_half(h[2 * n % CELLS], h[(2 * n + 1) % CELLS]);
}
__device__ __forceinline__ float h_in(const u32 words[H_WORDS], int cell) {
  if (WIDE_H) return __uint_as_float(words[cell % H_WORDS]);
  return cell % 2 ? half_high(words[cell / 2]) : half_low(words[cell / 2]);
}

// Where a thread's words of the first step lie, and how many there are from one step to the next.
struct Tape {
  u32 *gates, *c, *h;
  i64 step;
  __device__ __forceinline__ Tape(void *of_gates, void *of_c, void *of_h, const Place &at, i64 first_step, i64 tiles)
      : step(tiles * RANKS * THREADS) {
    const i64 block = ((first_step * tiles + at.tile) * RANKS + at.rank) * THREADS;
    gates = (u32 *)of_gates + block * GATE_WORDS + threadIdx.x * GATE_PIECE;
    c = (u32 *)of_c + (block + threadIdx.x) * CELLS, h = (u32 *)of_h + (block + threadIdx.x) * H_WORDS;
  }
  __device__ __forceinline__ void move(i64 steps) {
    gates += steps * step * GATE_WORDS, c += steps * step * CELLS, h += steps * step * H_WORDS;
  }
};
