/* One sequence, of which only the open units work. Each open unit sits in a slot, and the weights between the slots form
   one small dense block that changes only where a unit sits down or gets up. */
#ifndef GLSTM_SEATS_H
#define GLSTM_SEATS_H

#include <stddef.h>

#include "engine.h"

typedef struct {
  const Layer *l;
  int capacity;
  int reach; /* frozen units from here on have h = 0: where units open in order, half of them on average */
  float *frozen_h, *c_of; /* (H): h of frozen units, 0 for open ones; c of frozen units */
  float *h, *c, *base;    /* (capacity) (capacity) (4, capacity) */
  float *h_before;        /* (capacity), while a step is under way */
  float *w, *w_x;         /* (capacity, 4, capacity) and (D, 4, capacity): from slot, or input, to slots; of each
                             gate the share that its function wants, as in base */
} Seats;

/* Steps during which the same units sit: all arrays begin at the first of them. */
typedef struct {
  int steps, open, slots_used; /* slots_used: one more than the highest slot somebody sits in */
  const int32_t *slots;
  const float *x, *k; /* (steps, x_stride), (steps, capacity) */
  size_t x_stride;
} Sitting;

#endif
