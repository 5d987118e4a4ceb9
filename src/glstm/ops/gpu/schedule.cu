// What is made before a pass. From tables k (M, T, H) to schedules: when each unit is open, and in which slot. A span is a run of steps with the same
// open units; slots.cuh has the layout of its record. Nothing is added up across threads in an order that could change.

#define WORDS ((H + 31) / 32) // of 32 units each, a bit for each: at most 32 words

// Which units are open at each step, (M, T, WORDS); and for each step, twice the number of them, plus 1 where a span
// begins. A warp a step.
extern "C" __global__ void find_open(const float *__restrict__ k, u32 *__restrict__ masks, int *__restrict__ steps, int T) {
  const int lane = threadIdx.x & 31, t = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const i64 step = (i64)blockIdx.y * T + t;
  if (t >= T) return;
  int open = 0;
  bool begins = t == 0;
  for (int word = 0; word < WORDS; word++) {
    const int unit = word * 32 + lane;
    const bool now = unit < H && k[step * H + unit] != 0, before = unit < H && t > 0 && k[(step - 1) * H + unit] != 0;
    const u32 mask = __ballot_sync(EVERYBODY, now);
    open += __popc(mask), begins |= mask != __ballot_sync(EVERYBODY, before);
    if (lane == 0) masks[step * WORDS + word] = mask;
  }
  if (lane == 0) steps[step] = 2 * open + begins;
}

// A warp a model. A lane has the slot of its number: the unit in it, and whether that is open (1), closed at the beginning
// of this span (2: nobody else may have the slot yet), or no unit (0). It also has the word of its number of all masks.
// On the way out `steps` holds each step's span, and `moments` (M, 2, H) when each unit opened first, or T; and when it
// closed last, or 0 if it never opened, T if it never closed.
extern "C" __global__ void make_schedule(const u32 *__restrict__ masks, int *__restrict__ steps, int *__restrict__ records,
                                         int *__restrict__ counts, int *moments, int T) {
  const int lane = threadIdx.x, model = blockIdx.y;
  masks += (i64)model * T * WORDS, steps += (i64)model * T, records += (i64)model * T * RECORD, moments += model * 2 * H;
  int *const closed_at = moments + H;
  for (int u = lane; u < H; u += 32) moments[u] = T, closed_at[u] = 0;
  __syncwarp();
  int unit = -1, state = 0, spans = 0, pairs = 0, most = 0, block_steps = 0, afresh = 0, reopenings = 0, reach = 0;
  int start = 0, first = 0, open_here = 0, blocks_here = 0; // of the span before
  u32 before = 0, ever = 0;                                 // this lane's word: units that are, and that ever were, open
  bool fits = true;
  int next_step = lane < T ? steps[lane] : 0;
  for (int chunk = 0; chunk < T && fits; chunk += 32) {
    const int mine = next_step, later = chunk + 32 + lane;
    next_step = later < T ? steps[later] : 0;
    u32 beginnings = __ballot_sync(EVERYBODY, chunk + lane < T && (mine & 1));
    int own_span = spans - 1 + __popc(beginnings & (EVERYBODY >> (31 - lane)));
    u32 upcoming = 0;
    if (beginnings && lane < WORDS) upcoming = masks[(i64)(chunk + __ffs(beginnings) - 1) * WORDS + lane];
    while (beginnings && fits) {
      const int place = __ffs(beginnings) - 1, t = chunk + place;
      beginnings &= beginnings - 1;
      const u32 now = upcoming;
      if (beginnings && lane < WORDS) upcoming = masks[(i64)(chunk + __ffs(beginnings) - 1) * WORDS + lane];
      first += open_here * (t - start), block_steps += blocks_here * (t - start);
      if (spans > 0 && lane == 0) records[(spans - 1) * RECORD + END_AT] = t;
      open_here = __shfl_sync(EVERYBODY, (u32)mine, place) >> 1, start = t;
      if (state == 2) state = 0, unit = -1;
      u32 opened = now & ~before, reopened = opened & ever, again = 0, opens = 0;
      const u32 own_word = __shfl_sync(EVERYBODY, now, max(unit, 0) >> 5);
      if (state == 1 && !(own_word >> (unit & 31) & 1)) state = 2, closed_at[unit] = t;
      const u32 closes = __ballot_sync(EVERYBODY, state == 2);
      const int reach_before = reach;
      for (u32 words; fits && (words = __ballot_sync(EVERYBODY, opened != 0));) {
        const int word = __ffs(words) - 1, bit = __ffs(__shfl_sync(EVERYBODY, opened, word)) - 1;
        const u32 free = __ballot_sync(EVERYBODY, state == 0);
        if (lane == word) opened &= opened - 1;
        const int slot = __ffs(free) - 1; // the lowest: then few blocks of slots are in use
        fits = free != 0;
        const bool once_more = __shfl_sync(EVERYBODY, reopened, word) >> bit & 1;
        if (fits && lane == slot) {
          state = 1, unit = word * 32 + bit, closed_at[unit] = T;
          if (!once_more) moments[unit] = t;
        }
        if (fits) opens |= 1u << slot, again |= once_more ? 1u << slot : 0;
        reach = max(reach, word * 32 + bit + 1);
      }
      before = now, ever |= now;
      const u32 open = __ballot_sync(EVERYBODY, state == 1), used = open | closes;
      most = max(most, 32 - __clz(used)), blocks_here = (32 - __clz(open) + 7) / 8;
      afresh += __popc(again ? open : opens), reopenings += __popc(again);
      int *record = records + (i64)spans * RECORD;
      record[UNITS_AT + lane] = unit;
      if (lane == 0) {
        record[START_AT] = t, record[FIRST_AT] = first, record[REACH_AT] = reach_before;
        record[OPEN_AT] = open, record[OPENS_AT] = opens, record[CLOSES_AT] = closes, record[AGAIN_AT] = again;
      }
      spans++;
    }
    if (chunk + lane < T) steps[chunk + lane] = own_span;
  }
  pairs = first + open_here * (T - start), block_steps += blocks_here * (T - start);
  if (lane == 0) {
    records[(spans - 1) * RECORD + END_AT] = T;
    int *count = counts + model * COUNTS;
    count[SPANS_AT] = spans, count[PAIRS_AT] = pairs, count[SLOTS_AT] = fits ? most : 33;
    count[BLOCK_STEPS_AT] = block_steps, count[AFRESH_AT] = afresh, count[REOPENINGS_AT] = reopenings;
  }
}

// w_hh (M, 4, H, H) with the four gates' weights between two units side by side, (M, H, H, 4): a thread a pair of units.
extern "C" __global__ void order_weights(const float *__restrict__ w_hh, float4 *__restrict__ ordered, int models) {
  const i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x, each = (i64)H * H, first = n / each * 4 * each + n % each;
  if (n < models * each) ordered[n] = make_float4(w_hh[first], w_hh[first + each], w_hh[first + 2 * each], w_hh[first + 3 * each]);
}
