/* Streams on this machine: stream.h behind one pointer, the only argument of most calls from Python. */
#include "stream.h"

typedef struct {
  const glstm_model *model;
  glstm_state state;
  const float *x; /* the sample to take */
  float *y;       /* what the head makes of the state */
  float *space;
} Stream;

void glstm_stream_reset(const Stream *s) { glstm_reset(s->model, s->state); }

void glstm_stream_step(const Stream *s) { glstm_step(s->model, s->state, s->x); }

void glstm_stream_output(const Stream *s) { glstm_output(s->model, s->state.number, s->y, s->space); }

void glstm_stream_step_output(const Stream *s) {
  glstm_step(s->model, s->state, s->x);
  glstm_output(s->model, s->state.number, s->y, s->space);
}

/* Several samples, one after the other. */
void glstm_stream_run(const Stream *s, const float *x, uint32_t steps) {
  uint32_t n, inputs = s->model->layer[0].inputs;
  for (n = 0; n < steps; n++) glstm_step(s->model, s->state, x + (size_t)n * inputs);
}
