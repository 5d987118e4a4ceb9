/* One sequence, of which only the open units are computed. Each open unit has a slot, and the weights between the
   slots form one small dense block. The block changes only where a unit opens or closes. */
#ifndef GLSTM_SLOTS_H
#define GLSTM_SLOTS_H

#include <stddef.h>

#include "engine.h"

typedef struct {
  const Layer *l;
  int capacity;
  int reach; /* frozen units with this number or a higher one have h = 0; where units open in order, half on average */
  float *frozen_h, *c_of; /* (H): h of frozen units, 0 for open ones; c of frozen units */
  float *h, *c, *base;    /* (capacity) (capacity) (4, capacity) */
  float *h_before;        /* (capacity): h before the step that is being computed */
  float *w, *w_x;         /* (capacity, 4, capacity) and (D, 4, capacity): from slot, or input, to slots; scaled for
                             each gate as its function needs it, like base (scale_of_sum in single.c) */
} Slots;

/* Steps within one span, so with the same open units. All arrays begin at the first of these steps. */
typedef struct {
  int steps, open, slots_used; /* slots_used: the highest used slot, plus one */
  const int32_t *slots;
  const float *x, *k; /* (steps, x_stride), (steps, capacity) */
  size_t x_stride;
  float *tape; /* of these steps, or NULL */
} StepRange;

/* What the backward pass needs of each step, (steps, TAPED, capacity): the gates i, f, g and o, tanh of the new c, and
   the old c and h. After the last step follows h of all units. */
enum { TAPED_TANH = 4, TAPED_C, TAPED_H, TAPED };

static inline float *tape_at(float *tape, int step, int capacity) { return tape + (size_t)step * TAPED * capacity; }

/* The backward pass, through the same slots. */
typedef struct {
  const Layer *l;
  int capacity;
  float *frozen_h, *frozen_dh, *frozen_dc; /* (H): of frozen units; h is 0 for open ones */
  float *dh, *dc;                          /* (capacity) */
  float *dbase;                            /* (4, capacity): of the stored sums over frozen units */
  float *w;                                /* (capacity, 4, capacity): to the gates of a slot, from slots */
  float *dw, *dw_x;  /* (capacity, 4, capacity) and (D, 4, capacity): from slot, or input, to the gates of slots */
  float *arrived;    /* (CHUNK, capacity): the gradients of outputs, or NULL */
  float *da, *dk;    /* (CHUNK, 4, capacity) and (CHUNK, capacity) */
  int *first_span;   /* (H): in which a unit is open first; -1: h_0 counts, too */
  double *mu;                        /* (capacity), and so are the next three: only with a Gaussian gate */
  float *width, *sum, *sum_squared;  /* of this gate: see finish_slopes */
  Sums to;                           /* this thread's sums over its samples */
} SlotsBack;

enum { CHUNK = 32 }; /* steps whose gradients are in the cache when the weights' gradients are made from them */

#endif
