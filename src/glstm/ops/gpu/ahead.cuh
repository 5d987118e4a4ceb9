// What a thread reads from memory at every step, asked for AHEAD steps before: memory takes longer than a step. With AHEAD 1
// the words wait in registers; else in a ring of steps in shared memory, where a thread reads only what its warp copied
// there, so that no barrier is needed. After the last step the last one is asked for again: that costs less than a branch.
// A word that several threads of a warp need is copied by one of them (Asker): copies of one word by many threads come one
// after the other.
template <int WORDS> struct Ahead {
  u32 words[WORDS], base, slot; // of the step that was taken last
  static constexpr u32 SLOT = WORDS * THREADS * 4, LAST = (AHEAD - 1) * SLOT;
  __device__ __forceinline__ Ahead() : base(shared_address(rest_of_weights + RESTS)), slot(LAST) {
    static_assert(WORDS == STEP_WORDS, "scan.py counts otherwise");
#pragma unroll
    for (int n = 0; n < WORDS; n++) words[n] = 0;
  }
  __device__ __forceinline__ float number(int n) const { return __uint_as_float(words[n]); }

  // N words, whose place among the step's is `first`.
  template <int N> __device__ __forceinline__ void ask(int first, const void *from, bool wanted = true) {
    if (AHEAD > 1) copy_early<4 * N>(place<N>(first), from, wanted);
    else load_early<N>(words + first, from, wanted);
  }
  __device__ __forceinline__ void ask(int first, const void *from, Asker asker) {
    if (AHEAD > 1) copy_early<4>(place<1>(first, asker.place), from, asker.asks);
    else load_early<1>(words + first, from, true);
  }
  __device__ __forceinline__ void end_of_questions() const {
    if (AHEAD > 1) end_copies();
  }
  __device__ __forceinline__ void next() { slot = slot == LAST ? 0 : slot + SLOT; }
  // Waits for the next step's words; then they can be taken.
  __device__ __forceinline__ void wait() {
    next();
    if (AHEAD > 1) {
      wait_for_copies<AHEAD - 1>();
      __syncwarp();
    }
  }
  template <int N> __device__ __forceinline__ void take(int first) {
    if (AHEAD > 1) load_shared<N>(words + first, place<N>(first));
  }
  __device__ __forceinline__ void take(int first, Asker asker) {
    if (AHEAD > 1) load_shared<1>(words + first, place<1>(first, asker.place));
  }
  __device__ __forceinline__ void end() const { // nothing arrives after the block has gone
    if (AHEAD > 1) wait_for_copies<0>();
  }

private:
  template <int N> __device__ __forceinline__ u32 place(int first, int thread = threadIdx.x) const {
    return base + slot + (first * THREADS + thread * N) * 4;
  }
};
