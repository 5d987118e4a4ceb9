/* The structures of the operator. All arrays are float32, row-major, owned by the caller.
   T steps, B samples, D inputs, H units; gates in torch's order i f g o. Of a GRU these are r, z, and the candidate's sums
   of x and of h. */
#ifndef GLSTM_ENGINE_H
#define GLSTM_ENGINE_H

#include <stdint.h>

/* What a unit computes from its four sums: an LSTM with one of two candidates; or a GRU, which the dense path knows. */
enum { LSTM_TANH, LSTM_LOGISTIC, GRU };

/* One call: a gated LSTM layer, its inputs, and where its outputs go. (glstm_layer in stream.h is another thing: the
   constant data of a deployed layer.) */
typedef struct {
  int32_t steps, batch, inputs, hidden;
  int32_t rule;         /* one of the above */
  int32_t k_per_sample; /* k is (T, B, H), not (T, H) */
  int32_t threads;
  int32_t one_by_one;   /* where only open units are computed: each sample by itself, with units in the lanes */
  const float *x, *w_ih, *w_hh, *b; /* (T,B,D) (4H,D) (4H,H) (4H) or NULL */
  const float *k, *h0, *c0;         /* (T,H) or (T,B,H), (B,H), (B,H) */
  float *h, *h_n, *c_n, *c;         /* (T,B,H) or NULL, (B,H), (B,H) or NULL, (T,B,H) or NULL */
  float *tape;                      /* what backward needs, at a multiple of 64 bytes; or NULL */
} Layer;

/* A Gaussian gate, and where the gradients of its values are added. */
typedef struct {
  const void *times;        /* (T), in relative time: they rise, or fall; floats, or doubles if `wide` */
  const float *mu, *sigma;  /* (H) */
  float *d_mu, *d_sigma;    /* (H) */
  int32_t wide, unused;
} Gaussian;

typedef struct {
  const float *dh, *dh_n, *dc_n, *dc;   /* of the four outputs; dh and dc may be NULL */
  float *dx, *dw_ih, *dw_hh, *db, *dk;  /* dx and dh0 may be NULL */
  float *dh0, *dc0;
  const Gaussian *gate; /* of a sample at a time: the gradients of its values are wanted, not dk; or NULL */
} Gradients;

/* Gradients that are sums over samples: each thread has its own. With a gate, that one's instead of dk. */
typedef struct {
  float *dw_ih, *dw_hh, *db, *dk;
  Gaussian gate;
} Sums;

/* Which unit is open when: known before the first sample arrives, because k does not depend on the input. A span is a
   run of steps with the same open units. Span n covers steps start[n] .. start[n+1] - 1, and its open units are
   units[offset[n]] .. units[offset[n+1] - 1], in increasing order. Where a span begins, some units of the span before
   leave (close) and others arrive (open). A slot is a place in the packed block of open units, which a single sequence
   uses. A unit has the same slot from opening to closing. No other unit uses that slot in the span before and the span
   after, so that a unit can be prepared while the span before it is being computed. */
typedef struct {
  int32_t steps, hidden, spans, most_open;
  int32_t capacity; /* slots, a multiple of the widest vector */
  int32_t *start, *offset, *slots_used;                  /* one per span; slots_used: the highest used slot, plus one */
  int32_t *leaving_offset, *arriving_offset;             /* one per span */
  int32_t *units, *slots;                                /* of equal length: the open units, and their slots */
  int32_t *leaving, *leaving_slots, *arriving, *arriving_slots; /* units that close or open as the span begins */
  float *slot_k;                                         /* (T, capacity), 0 for an empty slot */
} Schedule;

#endif
