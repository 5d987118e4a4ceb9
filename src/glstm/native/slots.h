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
} StepRange;

#endif
