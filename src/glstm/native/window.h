/* Layers of two directions read a window from both ends, so they take it whole. Of each layer, the forward direction
   comes first in the model, and then the backward one, whose schedule begins at the last step. `room` holds the rows
   of a window, one a step, that one layer writes and the next one reads: two windows of `wide` numbers a row. */
#ifndef GLSTM_WINDOW_H
#define GLSTM_WINDOW_H

typedef struct {
  float *room;
  uint32_t wide, every; /* every: the head reads each step, else what both directions have at their ends */
} glstm_window;

/* One direction through the window. Row n of x has l->inputs numbers; h of all steps goes into rows of `stride`. */
static inline void glstm_one_way(const glstm_layer *l, uint32_t steps, int backwards, glstm_place *at, float *number,
                                 const float *x, float *into, uint32_t stride) {
  uint32_t step, row;
  for (step = 0; step < steps; step++) {
    row = backwards ? steps - 1 - step : step;
    glstm_layer_step(l, step, at, number, x + (size_t)row * l->inputs);
    if (into) memcpy(into + (size_t)row * stride, number, l->units * sizeof *into);
  }
}

/* What the head reads of one direction after the whole window. */
static inline void glstm_read_end(const glstm_layer *l, uint32_t steps, const float *number, float *into) {
  const float *pooled = number + glstm_own_numbers(l);
  uint32_t n, how = glstm_pooling(l);
  for (n = 0; n < l->units; n++)
    into[n] = how == GLSTM_MAX ? pooled[n] : how == GLSTM_MEAN ? number[n] - pooled[n] / (float)steps : number[n];
}

/* A whole window x (steps, inputs) -> y, or (steps, y) if the head reads every step. `read`: room for what it reads. */
static inline void glstm_run_window(const glstm_model *m, glstm_state s, glstm_window w, const float *x, float *y,
                                    float *space, float *read) {
  const uint32_t outputs = m->head[m->dense - 1].outputs;
  float *number = s.number + glstm_carried(m), *into = w.room, *other = w.room + (size_t)m->steps * w.wide, *swap;
  uint32_t n, step, width = 0;
  glstm_reset(m, s);
#ifdef GLSTM_RAW
  for (step = 0; step < m->steps; step++)
    glstm_standardize(m, s, x + (size_t)step * m->raw, into + (size_t)step * m->layer[0].inputs);
  x = into, into = other, other = w.room;
#endif
  for (n = 0; n < m->layers; n += 2) {
    const glstm_layer *l = m->layer + n;
    int keeps = w.every || n + 2 < m->layers;
    width = l[0].units + l[1].units;
    glstm_one_way(l, m->steps, 0, s.place + n, number, x, keeps ? into : 0, width);
    if (!keeps) glstm_read_end(l, m->steps, number, read);
    number += glstm_numbers(l);
    glstm_one_way(l + 1, m->steps, 1, s.place + n + 1, number, x, keeps ? into + l->units : 0, width);
    if (!keeps) glstm_read_end(l + 1, m->steps, number, read + l->units);
    number += glstm_numbers(l + 1);
    x = into, swap = into, into = other, other = swap;
  }
  if (!w.every) glstm_run_head(m, read, y, space);
  for (step = 0; w.every && step < m->steps; step++)
    glstm_run_head(m, x + (size_t)step * width, y + (size_t)step * outputs, space);
  *s.step = m->steps;
}

#endif
