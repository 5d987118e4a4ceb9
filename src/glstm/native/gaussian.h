/* The Gaussian gate, k = exp(-((t - mu) / sigma)^2): what glstm/gates.py says, and its derivatives. */
#ifndef GLSTM_GAUSSIAN_H
#define GLSTM_GAUSSIAN_H

/* |sigma|, but never so small that it cannot divide. The derivative is that of |sigma| even there. */
static inline float width_of(float sigma) {
  float magnitude = sigma < 0 ? -sigma : sigma;
  return magnitude < 1e-6f ? 1e-6f : magnitude;
}

/* Derivatives of a sum by mu and sigma, from those by k: dk k d and dk k d^2 are added up over the steps, d being the
   distance (t - mu) / width, and what is the same at every step is multiplied at the end. */
static inline void finish_slopes(float sigma, float sum, float sum_squared, float *d_mu, float *d_sigma) {
  float factor = 2 / width_of(sigma);
  *d_mu += factor * sum, *d_sigma += (sigma < 0 ? -factor : factor) * sum_squared;
}

#endif
