// How open a unit is at a moment, and how that changes with the unit's values: what glstm/gates.py says, with the same
// operations in the same order, and its derivatives.
//
// Constants, given when this is compiled: GATE (OPEN, GAUSSIAN, PHASED or PERIODIC), TIMES (COUNTED, FLOATS or DOUBLES),
// FRAMED (relative time has an origin and a unit).

#define OPEN 0
#define GAUSSIAN 1 // values mu, sigma
#define PHASED 2   // values tau, s, r
#define PERIODIC 3 // values mu, sigma, tau
#define COUNTED 0
#define FLOATS 1
#define DOUBLES 2
#define MOST_VALUES 3
#define SMALLEST 1e-6 // of a width or period, which may not reach 0

typedef long long i64;
// Where moments are 64 bits wide, so is the gate; in a frame, differences were taken in 64 bits already.
#if TIMES == DOUBLES && !FRAMED
typedef double Real;
#else
typedef float Real;
#endif

// |v|, never below SMALLEST; its derivative is that of |v| even there.
__device__ __forceinline__ Real positive(Real v) {
  const Real magnitude = v < 0 ? -v : v, missing = (Real)SMALLEST - magnitude;
  return magnitude + (missing < 0 ? 0 : missing);
}
__device__ __forceinline__ Real side(Real v) { return v < 0 ? -1 : 1; }
// A share of a period that an optimiser has moved anywhere, reflected at 0 and at 1: its magnitude is the share.
__device__ __forceinline__ Real reflected(Real v) { return v - 2 * rint(v / 2); }

// Always from 0 up to the period, and exact, however many periods have gone by.
__device__ __forceinline__ Real remainder_of(Real since, Real period) {
  const Real rest = fmod(since, period);
  return rest < 0 ? rest + period : rest;
}

// Where the triangle of a Phased gate is.
struct Phase {
  Real period, ratio, since, phase, rise;
  __device__ __forceinline__ Phase(const Real v[MOST_VALUES], Real t) : period(positive(v[0])), ratio(positive(reflected(v[2]))), since(t - v[1]) {
    phase = remainder_of(since, period) / period, rise = 2 * phase / ratio;
  }
  __device__ __forceinline__ bool rises() const { return phase < ratio / 2; }
  __device__ __forceinline__ bool falls() const { return !rises() && phase < ratio; }
  __device__ __forceinline__ Real height(Real leak) const { return rises() ? rise : falls() ? 2 - rise : leak == 0 ? 0 : leak * phase; }
};

// How far a moment is from the nearest pulse of a Gaussian or Periodic gate, in widths; `pulse` counts pulses from mu.
struct Bell {
  Real width, distance, pulse = 0;
  __device__ __forceinline__ Bell(const Real v[MOST_VALUES], Real t) : width(positive(v[1])), distance(t - v[0]) {
    if (GATE == PERIODIC) {
      const Real since = distance, period = positive(v[2]), rest = remainder_of(since, period);
      distance = rest > period / 2 ? rest - period : rest;
      pulse = rint((since - distance) / period);
    }
    distance /= width;
  }
};

// k before the threshold; `leak` is a closed Phased gate's, 0 in evaluation.
__device__ __forceinline__ Real openness(const Real v[MOST_VALUES], Real t, Real leak) {
  if (GATE == GAUSSIAN || GATE == PERIODIC) {
    const Real distance = Bell(v, t).distance;
    return exp(-(distance * distance));
  }
  if (GATE == PHASED) {
    const Real k = Phase(v, t).height(leak);
    return k < 0 ? 0 : k > 1 ? 1 : k; // not a number stays what it is
  }
  return 1;
}

// Derivatives of k by each value, where k is not 0; there, none is ever asked for.
__device__ __forceinline__ void slopes(const Real v[MOST_VALUES], Real t, Real leak, Real k, Real by[MOST_VALUES]) {
  if (GATE == GAUSSIAN || GATE == PERIODIC) {
    const Bell at(v, t);
    by[0] = 2 * k * at.distance / at.width, by[1] = by[0] * at.distance * side(v[1]);
    if (GATE == PERIODIC) by[2] = by[0] * at.pulse * side(v[2]);
  }
  if (GATE == PHASED) {
    const Phase at(v, t);
    const Real height = at.height(leak);
    const bool cut = height < 0 || height > 1;
    const Real by_phase = cut ? 0 : at.rises() ? 2 / at.ratio : at.falls() ? -2 / at.ratio : leak;
    const Real by_ratio = cut ? 0 : at.rises() ? -at.rise / at.ratio : at.falls() ? at.rise / at.ratio : 0;
    by[1] = -by_phase / at.period;
    by[0] = by[1] * (at.phase + floor(at.since / at.period)) * side(v[0]);
    by[2] = by_ratio * side(reflected(v[2]));
  }
}

// The moments of the rows of a table: steps, or samples of steps; `reversed` where a sequence is read from its end.
struct Moments {
  const void *times;
  double origin, unit;
  int first, T, samples, reversed;
  __device__ __forceinline__ Real at(i64 row) const {
    const i64 step = row / samples, t = reversed ? T - 1 - step : step, place = t * samples + row % samples;
    if (TIMES == COUNTED) return relative((float)(first + t));
    return TIMES == FLOATS ? relative(((const float *)times)[place]) : relative(((const double *)times)[place]);
  }
  template <typename Time> __device__ __forceinline__ Real relative(Time t) const {
    return FRAMED ? (Real)(((double)t - origin) / unit) : (Real)t;
  }
};
