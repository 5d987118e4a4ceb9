#ifndef GLSTM_PLACE
#define GLSTM_PLACE
/* How far a layer is in its schedule: spans begun, openness values read, units that were ever open. */
typedef struct {
  uint32_t spans, k_at, known;
} glstm_place;
#endif
