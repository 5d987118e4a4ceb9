/* Many samples of a few open units: samples lie in the lanes, so the open units may be any list. Shared by sparse.c
   and sparse_backward.c. */
#ifndef GLSTM_LANES_H
#define GLSTM_LANES_H

#include "engine.h"
#include "kernels.h"

#define GROUP 4 /* vectors of samples in a tile */

/* Row `index` of a table whose rows have `width` floats, a multiple of the vector. Padding samples are zeros. */
static inline float *row(float *table, int index, int width) { return table + (size_t)index * width; }

/* into (rows, width) <- from (samples, rows): a transposition */
static inline void gather(float *into, const float *from, int rows, int samples, int width) {
  for (int j = 0; j < rows; j++)
    for (int s = 0; s < samples; s++) into[(size_t)j * width + s] = from[(size_t)s * rows + j];
}

static inline void scatter(float *into, const float *from, int rows, int samples, int width) {
  for (int s = 0; s < samples; s++)
    for (int j = 0; j < rows; j++) into[(size_t)s * rows + j] = from[(size_t)j * width + s];
}

static inline float weight(const Layer *l, int g, int j, int u) {
  return l->w_hh[((size_t)g * l->hidden + j) * l->hidden + u];
}

/* What changes when a span begins. is_open: 0 closed, 1 opens with this span, 2 was open before. has_value: units
   whose h may differ from 0. Returns whether a unit opens that had a value; then every base must be summed again. */
static inline int open_and_close(int *is_open, const int *has_value, const int32_t *before, int were_open,
                                 const int32_t *units, int open) {
  int revived = 0;
  for (int q = 0; q < were_open; q++) is_open[before[q]] = 0;
  for (int q = 0; q < open; q++) is_open[units[q]] = 1;
  for (int q = 0; q < were_open; q++)
    if (is_open[before[q]]) is_open[before[q]] = 2;
  for (int q = 0; q < open; q++) revived |= is_open[units[q]] == 1 && has_value[units[q]];
  return revived;
}

#endif
