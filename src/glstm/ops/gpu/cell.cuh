// A cell is a unit of a sample. One step of it, forward and backward: the same in every kernel.
//
// Constants, given when this is compiled: LOGISTIC candidate, EXACT (float32, to an absolute error of about 1e-7; else
// what the hardware has), GRU: a cell is a GRU's, not an LSTM's. Only kernels of a whole sequence are made for that.

#ifndef GRU
#define GRU 0
#endif
#define LARGEST_HALF 65504.0f

#if EXACT
__device__ __forceinline__ float sigmoid_(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ __forceinline__ float tanh_(float x) {
  float e = __expf(-2 * fabsf(x));
  return copysignf(__fdividef(1 - e, 1 + e), x);
}
#else
__device__ __forceinline__ float tanh_(float x) { return tanh_approximately(x); }
__device__ __forceinline__ float sigmoid_(float x) { return fmaf(0.5f, tanh_(0.5f * x), 0.5f); }
#endif

#if GRU

// v: the sums on the way in: r, z, the candidate's over x and over h. On the way out r, z, n, and that over h, as large as 16
// bits hold it. A closed unit's h is copied bit for bit; c stays as it is. k_h is k.
__device__ __forceinline__ void step_cell(float v[4], float k, float k_h, float &c, float &h) {
  v[0] = sigmoid_(v[0]), v[1] = sigmoid_(v[1]), v[2] = tanh_(fmaf(v[0], v[3], v[2]));
  if (!EXACT) v[3] = fminf(fmaxf(v[3], -LARGEST_HALF), LARGEST_HALF);
  const float h_new = fmaf(v[1], h - v[2], v[2]), h_mixed = fmaf(k, h_new, (1 - k) * h);
  h = k == 0 ? h : h_mixed;
}

// Backward: what is known of a cell's step before its gradient arrives, from v and the state before it, as below.
struct Known {
  float k, z, reach, into_h, slopes[4];
  __device__ __forceinline__ void find(const float v[4], float c, float h, float open) {
    const bool shut = open == 0;
    const float r = shut ? 0 : v[0], n = shut ? 0 : v[2], of_h = shut ? 0 : v[3];
    k = open, z = shut ? 0 : v[1], h = shut ? 0 : h;
    reach = fmaxf(1.0f, 0.25f * fmaxf(fabsf(of_h), fabsf(h) + 1)); // r (1 - r) and z (1 - z) are 1/4 at most
    into_h = (1 - z) * (n - h);
    slopes[2] = (1 - z) * fmaf(-n, n, 1);
    slopes[0] = slopes[2] * of_h * fmaf(-r, r, r);
    slopes[1] = (h - n) * fmaf(-z, z, z);
    slopes[3] = slopes[2] * r;
  }
  __device__ __forceinline__ float bound(float dh, float dc) const { return k == 0 ? 0 : fabsf(dh) * reach; }
  __device__ __forceinline__ void step(float &dh, float &dc, float scale, float da[4], float &dk) const {
    dk = dh * into_h;
    float dh_new = k * dh;
    dh = fmaf(z, dh_new, dh - dh_new), dh_new *= scale;
    da[0] = dh_new * slopes[0], da[1] = dh_new * slopes[1], da[2] = dh_new * slopes[2], da[3] = dh_new * slopes[3];
  }
};

#else

// v: the gates' sums on the way in, the gates i f g o on the way out. A closed unit's state is copied bit for bit. k_h: how open
// the unit is for its h, where that is not k.
__device__ __forceinline__ void step_cell(float v[4], float k, float k_h, float &c, float &h) {
  v[0] = sigmoid_(v[0]), v[1] = sigmoid_(v[1]), v[3] = sigmoid_(v[3]);
  v[2] = LOGISTIC ? sigmoid_(v[2]) : tanh_(v[2]);
  float c_new = fmaf(v[1], c, v[0] * v[2]), h_new = v[3] * tanh_(c_new);
  float c_mixed = fmaf(k, c_new, (1 - k) * c), h_mixed = fmaf(k_h, h_new, (1 - k_h) * h);
  c = k == 0 ? c : c_mixed, h = k_h == 0 ? h : h_mixed; // selects: a branch here costs more than both sides
}
__device__ __forceinline__ void step_cell(float v[4], float k, float &c, float &h) { step_cell(v, k, k, c, h); }

// Backward: what is known of a cell's step before its gradient arrives, from the gates v and the state c and h before it.
// Nothing was stored for a step of a closed unit, and the memory may hold anything: zeros are used instead.
struct Known {
  float k, f, reach, through_h, into_c, into_h, slopes[4];
  __device__ __forceinline__ void find(const float v[4], float c, float h, float open) {
    const bool shut = open == 0;
    const float i = shut ? 0 : v[0], g = shut ? 0 : v[2], o = shut ? 0 : v[3];
    k = open, f = shut ? 0 : v[1], c = shut ? 0 : c, h = shut ? 0 : h;
    const float c_new = fmaf(f, c, i * g), squashed = tanh_(c_new);
    reach = fmaxf(1.0f, fabsf(c));
    into_c = c_new - c, into_h = fmaf(o, squashed, -h);
    through_h = o * fmaf(-squashed, squashed, 1);
    slopes[0] = g * fmaf(-i, i, i);
    slopes[1] = c * fmaf(-f, f, f);
    slopes[2] = i * (LOGISTIC ? fmaf(-g, g, g) : fmaf(-g, g, 1));
    slopes[3] = squashed * fmaf(-o, o, o);
  }
  // No slope of the step is larger than this.
  __device__ __forceinline__ float bound(float dh, float dc) const { return k == 0 ? 0 : (fabsf(dh) + fabsf(dc)) * reach; }
  // dh, dc: of the state after the step on the way in; of the state before it on the way out, less what comes through the
  // sums. da: the sums' slopes times `scale`, a power of two.
  __device__ __forceinline__ void step(float &dh, float &dc, float scale, float da[4], float &dk) const {
    dk = fmaf(dc, into_c, dh * into_h);
    float dh_new = k * dh, dc_new = fmaf(k, dc, dh_new * through_h);
    dh -= dh_new, dc = fmaf(f, dc_new, fmaf(-k, dc, dc));
    dh_new *= scale, dc_new *= scale;
    da[0] = dc_new * slopes[0], da[1] = dc_new * slopes[1], da[2] = dc_new * slopes[2], da[3] = dh_new * slopes[3];
  }
};

// The same where h has a table of its own. What was stored is zeros instead only where both are closed.
struct KnownOfTwo : Known {
  float k_h;
  __device__ __forceinline__ void find(const float v[4], float c, float h, float open, float open_h) {
    Known::find(v, c, h, open == 0 ? open_h : open);
    k = open, k_h = open_h;
  }
  __device__ __forceinline__ float bound(float dh, float dc) const {
    return k == 0 && k_h == 0 ? 0 : (fabsf(dh) + fabsf(dc)) * reach;
  }
  __device__ __forceinline__ void step(float &dh, float &dc, float scale, float da[4], float &dk, float &dk_h) const {
    dk = k == 0 ? 0 : dc * into_c, dk_h = k_h == 0 ? 0 : dh * into_h;
    float dh_new = k_h * dh, dc_new = fmaf(k, dc, dh_new * through_h);
    dh -= dh_new, dc = fmaf(f, dc_new, fmaf(-k, dc, dc));
    dh_new *= scale, dc_new *= scale;
    da[0] = dc_new * slopes[0], da[1] = dc_new * slopes[1], da[2] = dc_new * slopes[2], da[3] = dh_new * slopes[3];
  }
};

#endif
