/* Streams in time on this machine: timed.h behind one pointer, as stream.c does for known steps. */
#include "every_network.h"
#define GLSTM_TIMED
#include "flush.h"
#include "stream.h"

typedef struct {
  const glstm_model *model;
  const glstm_clock *clock; /* of samples that are counted */
  glstm_state state;
  const float *x; /* the sample to take */
  float *y;       /* what the head makes of the state */
  float *space;
  float *standard;          /* room for the sample as the first layer reads it */
  uint64_t now;             /* the moment of the sample; set by the caller, if samples are not counted */
  uint64_t count;           /* samples taken */
  int32_t counted, finished; /* whether samples are counted; whether no unit will ever open again */
} Timed;

void glstm_timed_reset(Timed *s) {
  glstm_reset(s->model, s->state);
  s->now = s->count = 0;
  s->finished = 0;
}

/* Several samples, one after the other, at these moments; NULL: they are counted. */
void glstm_timed_run(Timed *s, const float *x, const uint64_t *moments, uint64_t steps) {
  FloatState before = flush_subnormals();
  uint64_t n;
  for (n = 0; n < steps; n++, x += s->model->raw) {
    const float *sample = x;
    s->count++;
    s->now = moments ? moments[n] : glstm_moment(s->clock, s->count);
    if (s->model->mean) {
      glstm_standardize(s->model, s->state, x, s->standard);
      sample = s->standard;
    }
    glstm_step(s->model, s->state, s->now, sample);
  }
  s->finished = glstm_finished(s->model, *s->state.step, s->state.place);
  set_float_state(before);
}

void glstm_timed_step(Timed *s) { glstm_timed_run(s, s->x, s->counted ? NULL : &s->now, 1); }

void glstm_timed_output(const Timed *s) {
  FloatState before = flush_subnormals();
  glstm_output(s->model, *s->state.step, s->state.number, s->y, s->space);
  set_float_state(before);
}

void glstm_timed_step_output(Timed *s) {
  glstm_timed_step(s);
  glstm_timed_output(s);
}

/* The state after `count` samples, the last at the moment `now`: which unit is open when depends on the moment alone. The
   caller has put the numbers there, and for each unit a window that ends after `now`, or ends then, if it was the last.
   From the moment alone they cannot be told here, if more than 2^63 ticks went by. */
void glstm_timed_resume(Timed *s, uint64_t now, uint64_t count) {
  glstm_state view = s->state;
  uint32_t n, j;
  s->now = now, s->count = count;
  *s->state.step = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
  for (n = 0; n < s->model->layers; n++) {
    const glstm_layer *l = s->model->layer + n;
    glstm_pulses p = glstm_next_pulses(l, &view);
    memset(p.at, 0, sizeof *p.at);
    if (count == 0) continue;
    for (j = 0; j < l->units; j++)
      if (glstm_find_window(l, p, j, now)) glstm_wait(p, j);
    while (p.at->waiting && !glstm_is_before(now, p.opens[p.waiting[0]])) glstm_insert_open(p, glstm_wake(p));
    for (j = 0; j < l->units; j++)
      if (l->period[j] != 0 || !glstm_is_before(now, p.opens[j])) p.at->known = (uint16_t)(j + 1);
    glstm_find_next(l, p, now);
  }
  s->finished = glstm_finished(s->model, *s->state.step, s->state.place);
}
