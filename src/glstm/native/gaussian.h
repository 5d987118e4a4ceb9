/* The Gaussian gate, k = exp(-((t - mu) / sigma)^2): what glstm/gates.py says, with the same operations in the same
   order, and its derivatives. */
#ifndef GLSTM_GAUSSIAN_H
#define GLSTM_GAUSSIAN_H

#include "engine.h"

/* |sigma|, but never so small that it cannot divide. The derivative is that of |sigma| even there. */
static inline float width_of(float sigma) {
  float magnitude = sigma < 0 ? -sigma : sigma, missing = 1e-6f - magnitude;
  return magnitude + (missing < 0 ? 0 : missing);
}

static inline double exact_width_of(double sigma) {
  double magnitude = sigma < 0 ? -sigma : sigma, missing = 1e-6 - magnitude;
  return magnitude + (missing < 0 ? 0 : missing);
}

/* Adds to the gradients of the values of unit j: `sum` and `squares` are dk k d and dk k d^2 over all steps, with the
   distance d = (t - mu) / width. */
static inline void finish_slopes(const Gaussian *gate, int j, float sum, float squares) {
  float factor = 2 / width_of(gate->sigma[j]);
  gate->d_mu[j] += factor * sum, gate->d_sigma[j] += (gate->sigma[j] < 0 ? -factor : factor) * squares;
}

#endif
