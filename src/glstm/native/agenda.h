#ifndef GLSTM_AGENDA
#define GLSTM_AGENDA
/* When units of a layer open or close next, in ticks; how many are open, how many are closed and will open; and how many
   units have opened by now, at least: those after them have not. */
typedef struct {
  uint64_t next;
  uint16_t open, waiting, known, unused;
} glstm_agenda;
#endif
