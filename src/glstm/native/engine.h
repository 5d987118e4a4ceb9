/* The engine's view of one gated LSTM layer. All arrays are float32, row-major, owned by the caller.
   T steps, B samples, D inputs, H units; gates in torch's order i f g o. */
#ifndef GLSTM_ENGINE_H
#define GLSTM_ENGINE_H

#include <stdint.h>

typedef struct {
  int32_t steps, batch, inputs, hidden;
  int32_t logistic;     /* candidate: 0 tanh, 1 logistic */
  int32_t k_per_sample; /* k is (T, B, H), not (T, H) */
  int32_t threads;
  int32_t unused;
  const float *x, *w_ih, *w_hh, *b; /* (T,B,D) (4H,D) (4H,H) (4H) or NULL */
  const float *k, *h0, *c0;         /* (T,H) or (T,B,H), (B,H), (B,H) */
  float *h, *h_n, *c_n, *c;         /* (T,B,H) or NULL, (B,H), (B,H) or NULL, (T,B,H) or NULL */
  float *tape;                      /* what backward needs, at a multiple of 64 bytes; or NULL */
} Layer;

typedef struct {
  const float *dh, *dh_n, *dc_n, *dc;   /* of the four outputs; dh and dc may be NULL */
  float *dx, *dw_ih, *dw_hh, *db, *dk;  /* dx may be NULL, and so may dh0 */
  float *dh0, *dc0;
} Gradients;

/* Which unit works when: known before the first sample arrives, because k does not depend on the input.
   Span n covers steps start[n] .. start[n+1] - 1, in which just units[offset[n]] .. units[offset[n+1] - 1] are open,
   in increasing order. Where a span begins, units of the span before leave and others arrive.
   For a single sequence, whose units lie in the lanes, a unit keeps one slot from opening to closing. Its slot is free
   for one span more on either side, so that a unit can be prepared while the span before it is under way. */
typedef struct {
  int32_t steps, hidden, spans, most_open;
  int32_t capacity; /* slots, a multiple of the widest vector */
  int32_t *start, *offset, *slots_used;                  /* a span each; slots_used: the highest taken slot, plus one */
  int32_t *leaving_offset, *arriving_offset;             /* a span each */
  int32_t *units, *slots;                                /* side by side: who is open, and where he sits */
  int32_t *leaving, *leaving_slots, *arriving, *arriving_slots; /* who changes as the span begins */
  float *slot_k;                                         /* (T, capacity), 0 where nobody sits */
} Schedule;

#endif
