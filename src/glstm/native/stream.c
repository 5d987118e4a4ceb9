/* Streams on this machine: stream.h behind one pointer, the only argument of most calls from Python. */
#include "every_network.h"
#include "flush.h"
#include "stream.h"

typedef struct {
  const glstm_model *model;
  glstm_state state;
  const float *x; /* the sample to take */
  float *y;       /* what the head makes of the state */
  float *space;
  float *standard; /* room for the sample as the first layer reads it */
} Stream;

static void take(const Stream *s, const float *x) {
  if (*s->state.step >= s->model->steps) return;
  if (s->model->mean) {
    glstm_standardize(s->model, s->state, x, s->standard);
    x = s->standard;
  }
  glstm_step(s->model, s->state, x);
}

void glstm_stream_reset(const Stream *s) { glstm_reset(s->model, s->state); }

/* Several samples, one after the other. */
void glstm_stream_run(const Stream *s, const float *x, uint32_t steps) {
  FloatState before = flush_subnormals();
  uint32_t n;
  for (n = 0; n < steps; n++) take(s, x + (size_t)n * s->model->raw);
  set_float_state(before);
}

void glstm_stream_step(const Stream *s) { glstm_stream_run(s, s->x, 1); }

void glstm_stream_output(const Stream *s) {
  FloatState before = flush_subnormals();
  glstm_output(s->model, *s->state.step, s->state.number, s->y, s->space);
  set_float_state(before);
}

void glstm_stream_step_output(const Stream *s) {
  glstm_stream_step(s);
  glstm_stream_output(s);
}
