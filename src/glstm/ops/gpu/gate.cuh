// How open a unit is at a moment, and how that changes with the unit's values: what glstm/gates.py says, with the same
// operations in the same order, and its derivatives.
//
// Constants, given when this is compiled: GATE (OPEN, GAUSSIAN or PHASED), TIMES (COUNTED, FLOATS or DOUBLES), FRAMED
// (relative time has an origin and a unit).

#define OPEN 0
#define GAUSSIAN 1 // values mu, sigma
#define PHASED 2   // values tau, s, r
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

// Where the triangle of a Phased gate is.
struct Phase {
  Real period, ratio, since, phase, rise;
  __device__ __forceinline__ Phase(const Real v[MOST_VALUES], Real t) : period(positive(v[0])), ratio(positive(v[2])), since(t - v[1]) {
    Real rest = fmod(since, period);
    rest = rest < 0 ? rest + period : rest;
    phase = rest / period, rise = 2 * phase / ratio;
  }
  __device__ __forceinline__ bool rises() const { return phase < ratio / 2; }
  __device__ __forceinline__ bool falls() const { return !rises() && phase < ratio; }
  __device__ __forceinline__ Real height(Real leak) const { return rises() ? rise : falls() ? 2 - rise : leak == 0 ? 0 : leak * phase; }
};

// k before the threshold; `leak` is a closed Phased gate's, 0 in evaluation.
__device__ __forceinline__ Real openness(const Real v[MOST_VALUES], Real t, Real leak) {
  if (GATE == GAUSSIAN) {
    const Real distance = (t - v[0]) / positive(v[1]);
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
  if (GATE == GAUSSIAN) {
    const Real width = positive(v[1]), distance = (t - v[0]) / width;
    by[0] = 2 * k * distance / width, by[1] = by[0] * distance * side(v[1]);
  }
  if (GATE == PHASED) {
    const Phase at(v, t);
    const Real height = at.height(leak);
    const bool cut = height < 0 || height > 1;
    const Real by_phase = cut ? 0 : at.rises() ? 2 / at.ratio : at.falls() ? -2 / at.ratio : leak;
    const Real by_ratio = cut ? 0 : at.rises() ? -at.rise / at.ratio : at.falls() ? at.rise / at.ratio : 0;
    by[1] = -by_phase / at.period;
    by[0] = by[1] * (at.phase + floor(at.since / at.period)) * side(v[0]);
    by[2] = by_ratio * side(v[2]);
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
