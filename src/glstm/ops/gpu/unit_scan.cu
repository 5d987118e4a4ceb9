// Units that do not hear each other: a thread takes one unit of one sample, a cell, through all steps. What it reads does not
// depend on what it computes, so it asks for AHEAD steps while it computes those before: one step alone would only wait.
//
// Constants, given when this is compiled: ACTIVATION (LINEAR, RELU or TANH), PER_STEP (a differs from step to step), AHEAD,
// THREADS of a block.
//
// b, h, dh, db: (T, cells); h0, dh0: (cells); da: (T, cells), or (cells) without PER_STEP. a has strides: 0 where it is shared.

#define LINEAR 0
#define RELU 1
#define TANH 2

__device__ __forceinline__ float activated(float x) {
  if (ACTIVATION == RELU) return x < 0 ? 0 : x; // not a number stays what it is
  return ACTIVATION == TANH ? tanhf(x) : x;
}
// Its derivative, from its value.
__device__ __forceinline__ float slope_at(float h) {
  if (ACTIVATION == RELU) return h > 0 ? 1 : 0;
  return ACTIVATION == TANH ? fmaf(-h, h, 1) : 1;
}

extern "C" __global__ void __launch_bounds__(THREADS)
unit_forward(const float *a, const float *b, const float *h0, float *h, i64 a_step, i64 a_sample, i64 a_unit, int T, int units, int cells) {
  const int cell = blockIdx.x * THREADS + threadIdx.x;
  if (cell >= cells) return;
  a += cell / units * a_sample + cell % units * a_unit, b += cell, h += cell;
  float state = h0[cell], by[AHEAD], add[AHEAD], next_by[AHEAD], next_add[AHEAD];
#pragma unroll
  for (int n = 0; n < AHEAD; n++) {
    next_by[n] = by[n] = a[0], next_add[n] = 0;
    if (PER_STEP) load_early(next_by[n], a + n * a_step, n < T);
    load_early(next_add[n], b + (i64)n * cells, n < T);
  }
  for (int first = 0; first < T; first += AHEAD) {
#pragma unroll
    for (int n = 0; n < AHEAD; n++) by[n] = next_by[n], add[n] = next_add[n];
#pragma unroll
    for (int n = 0; n < AHEAD; n++) {
      const int t = first + AHEAD + n;
      if (PER_STEP) load_early(next_by[n], a + t * a_step, t < T);
      load_early(next_add[n], b + (i64)t * cells, t < T);
    }
#pragma unroll
    for (int n = 0; n < AHEAD; n++)
      if (first + n < T) {
        state = activated(fmaf(by[n], state, add[n]));
        h[(i64)(first + n) * cells] = state;
      }
  }
}

// From the last step to the first. Of a step it reads dh, a, and h of the step before, which is known as the next step's h.
extern "C" __global__ void __launch_bounds__(THREADS)
unit_backward(const float *a, const float *dh, const float *h, const float *h0, float *da, float *db, float *dh0, i64 a_step,
              i64 a_sample, i64 a_unit, int T, int units, int cells) {
  const int cell = blockIdx.x * THREADS + threadIdx.x;
  if (cell >= cells) return;
  a += cell / units * a_sample + cell % units * a_unit, dh += cell, h += cell, h0 += cell, da += cell, db += cell;
  float by[AHEAD], from[AHEAD], before[AHEAD], next_by[AHEAD], next_from[AHEAD], next_before[AHEAD];
#pragma unroll
  for (int n = 0; n < AHEAD; n++) {
    const int t = T - 1 - n;
    next_by[n] = by[n] = a[0], next_from[n] = 0, next_before[n] = 0;
    if (PER_STEP) load_early(next_by[n], a + t * a_step, t >= 0);
    load_early(next_from[n], dh + (i64)t * cells, t >= 0);
    load_early(next_before[n], t > 0 ? h + (i64)(t - 1) * cells : h0, t >= 0);
  }
  float state = h[(i64)(T - 1) * cells], carried = 0, sum = 0;
  for (int last = T - 1; last >= 0; last -= AHEAD) {
#pragma unroll
    for (int n = 0; n < AHEAD; n++) by[n] = next_by[n], from[n] = next_from[n], before[n] = next_before[n];
#pragma unroll
    for (int n = 0; n < AHEAD; n++) {
      const int t = last - AHEAD - n;
      if (PER_STEP) load_early(next_by[n], a + t * a_step, t >= 0);
      load_early(next_from[n], dh + (i64)t * cells, t >= 0);
      load_early(next_before[n], t > 0 ? h + (i64)(t - 1) * cells : h0, t >= 0);
    }
#pragma unroll
    for (int n = 0; n < AHEAD; n++)
      if (last - n >= 0) {
        const i64 place = (i64)(last - n) * cells;
        const float slope = (from[n] + carried) * slope_at(state);
        db[place] = slope;
        if (PER_STEP) da[place] = slope * before[n];
        sum = fmaf(slope, before[n], sum);
        carried = by[n] * slope, state = before[n];
      }
  }
  if (!PER_STEP) da[0] = sum;
  dh0[cell] = carried;
}
