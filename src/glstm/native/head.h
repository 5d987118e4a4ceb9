/* What a head does besides linear layers with a ReLU: functions of a row of numbers, from basic operations alone. Of
   these only what a network uses is compiled, where GLSTM_WITH_... is defined. The errors said here are largest
   differences from float64 for any input, and a test measures them. */
#ifndef GLSTM_HEAD_H
#define GLSTM_HEAD_H

enum {
  GLSTM_NOTHING, GLSTM_RELU, GLSTM_LEAKY_RELU, GLSTM_SIGMOID, GLSTM_TANH, GLSTM_SILU, GLSTM_GELU, GLSTM_GELU_TANH,
  GLSTM_SOFTMAX, GLSTM_LOG_SOFTMAX, GLSTM_LAYER_NORM
};

/* e^x for x <= 0, to 1.5e-7 of it; below -87, where it is less than 2e-38, it does not fall further. */
#if defined GLSTM_WITH_GELU || defined GLSTM_WITH_SOFTMAX || defined GLSTM_WITH_LOG_SOFTMAX
static inline float glstm_falling(float x) {
  float power, rest;
  if (x != x) return x;
  rest = glstm_exp_rest(x < -87.0f ? -87.0f : x > 0 ? 0 : x, &power);
  return power + power * rest;
}
#endif

#ifdef GLSTM_WITH_GELU
/* x times the normal distribution function P of x. With z = |x|, P(-z) = e^(-z^2 / 2) q(1 / (1 + 0.3 z)), where q is a
   polynomial fitted to 1.3e-7 of q. The result is right to 3e-7 of |x|. */
static inline float glstm_gelu(float x) {
  float z = x < 0 ? -x : x, t = 1.0f / (1.0f + 0.3f * z), q;
  if (x != x) return x;
  if (z > 14.0f) return x < 0 ? 0.0f : x;
  q = ((0.035932041f * t - 0.15827717f) * t + 0.20820843f) * t - 0.055395366f;
  q = (((q * t + 0.12946992f) * t + 0.099637296f) * t + 0.12079839f) * t + 0.11962639f;
  q *= t * glstm_falling(-0.5f * z * z);
  return x < 0 ? x * q : x - x * q;
}
#endif

#ifdef GLSTM_WITH_GELU_TANH
/* x times (1 + tanh u) / 2, which is the logistic function of 2 u; to 2e-7 of |x|. */
static inline float glstm_gelu_tanh(float x) { return x * glstm_sigmoid(x * (1.5957691f + 0.071354816f * x * x)); }
#endif

#ifdef GLSTM_WITH_LAYER_NORM
/* The root of x > 0, to 1.5e-7 of it: half the exponent, and three of Heron's steps. */
static inline float glstm_root(float x) {
  uint32_t bits, n;
  float root;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits >> 1) + 0x1fc00000u;
  memcpy(&root, &bits, sizeof bits);
  for (n = 0; n < 3; n++) root = 0.5f * (root + x / root);
  return root;
}

static inline void glstm_layer_norm(const glstm_dense *d, float *y) {
  uint32_t n;
  float mean = 0, square = 0, root;
  for (n = 0; n < d->outputs; n++) mean += y[n];
  mean /= (float)d->outputs;
  for (n = 0; n < d->outputs; n++) square += (y[n] - mean) * (y[n] - mean);
  root = glstm_root(square / (float)d->outputs + d->number);
  for (n = 0; n < d->outputs; n++) y[n] = (y[n] - mean) / root * d->gain[n] + d->shift[n];
}
#endif

#ifdef GLSTM_WITH_LOG_SOFTMAX
/* The natural logarithm of x >= 1, to 1.5e-7 of it: x = 2^n (1 + f), and a polynomial in f. */
static inline float glstm_log(float x) {
  uint32_t bits;
  float f, p;
  int32_t n;
  if (x != x) return x;
  memcpy(&bits, &x, sizeof bits);
  n = (int32_t)(bits >> 23) - 127;
  bits = (bits & 0x007fffffu) | 0x3f800000u;
  memcpy(&f, &bits, sizeof bits);
  if (f > 1.41421356f) f *= 0.5f, n++;
  f -= 1.0f;
  p = ((0.0870035961f * f - 0.142674759f) * f + 0.149147868f) * f - 0.165775865f;
  p = ((p * f + 0.199630618f) * f - 0.250013381f) * f + 0.333339095f;
  p = (float)n * -2.12194440e-4f + (p * f * f * f - 0.5f * f * f);
  return (float)n * 0.693359375f + (f + p);
}
#endif

#if defined GLSTM_WITH_SOFTMAX || defined GLSTM_WITH_LOG_SOFTMAX
/* The largest number, and in `sum` the sum of all e^(y - largest); NaN if one of them is. */
static inline float glstm_largest(const float *y, uint32_t size, float *sum) {
  float largest = y[0];
  uint32_t n;
  for (n = 1; n < size; n++) largest = y[n] > largest ? y[n] : largest;
  for (n = 0, *sum = 0; n < size; n++) *sum += glstm_falling(y[n] - largest);
  return largest;
}
#endif

/* A stage without weights: the numbers as they are, or each in its place among zeros. */
static inline void glstm_put(const glstm_dense *d, const float *from, float *into) {
  uint32_t n;
  for (n = 0; n < d->outputs; n++) into[n] = d->places ? 0.0f : from[n];
  for (n = 0; d->places && n < d->inputs; n++) into[d->places[n]] = from[n];
}

static inline void glstm_activate(const glstm_dense *d, float *y) {
  uint32_t n, size = d->outputs;
  (void)glstm_sigmoid, (void)glstm_tanh; /* where the layers are in whole numbers, nothing else may need them */
  switch (d->then) {
    case GLSTM_RELU:
      for (n = 0; n < size; n++) y[n] = y[n] < 0 ? 0 : y[n];
      break;
#ifdef GLSTM_WITH_LEAKY_RELU
    case GLSTM_LEAKY_RELU:
      for (n = 0; n < size; n++) y[n] = y[n] < 0 ? d->number * y[n] : y[n];
      break;
#endif
#ifdef GLSTM_WITH_SIGMOID
    case GLSTM_SIGMOID:
      for (n = 0; n < size; n++) y[n] = glstm_sigmoid(y[n]);
      break;
#endif
#ifdef GLSTM_WITH_TANH
    case GLSTM_TANH:
      for (n = 0; n < size; n++) y[n] = glstm_tanh(y[n]);
      break;
#endif
#ifdef GLSTM_WITH_SILU
    case GLSTM_SILU:
      for (n = 0; n < size; n++) y[n] *= glstm_sigmoid(y[n]);
      break;
#endif
#ifdef GLSTM_WITH_GELU
    case GLSTM_GELU:
      for (n = 0; n < size; n++) y[n] = glstm_gelu(y[n]);
      break;
#endif
#ifdef GLSTM_WITH_GELU_TANH
    case GLSTM_GELU_TANH:
      for (n = 0; n < size; n++) y[n] = glstm_gelu_tanh(y[n]);
      break;
#endif
#ifdef GLSTM_WITH_SOFTMAX
    case GLSTM_SOFTMAX: {
      float sum, largest = glstm_largest(y, size, &sum);
      for (n = 0; n < size; n++) y[n] = glstm_falling(y[n] - largest) / sum;
      break;
    }
#endif
#ifdef GLSTM_WITH_LOG_SOFTMAX
    case GLSTM_LOG_SOFTMAX: {
      float sum, largest = glstm_largest(y, size, &sum), rest = glstm_log(sum);
      for (n = 0; n < size; n++) y[n] = y[n] - largest - rest;
      break;
    }
#endif
#ifdef GLSTM_WITH_LAYER_NORM
    case GLSTM_LAYER_NORM: glstm_layer_norm(d, y); break;
#endif
    default: break;
  }
}

#endif
