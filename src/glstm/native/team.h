/* Threads that compute the same steps, each for some of the units, and wait for each other after every step. */
#ifndef GLSTM_TEAM_H
#define GLSTM_TEAM_H

#include <sched.h>

/* Each counter has cache lines of its own: waiting threads read a counter all the time, which would slow down access
   to anything in the same line. */
typedef struct {
  char before[128];
  int arrived;
  char between[128];
  int round;
  char after[128];
} Barrier;

typedef struct {
  int index, size;
  Barrier *barrier; /* NULL for one thread alone */
} Team;

/* Returns when all members have called it. A step takes a microsecond, so a waiting thread spins; if the wait is
   longer than that, as on a busy machine, it yields to other processes. */
static inline void wait_at_barrier(const Team *team) {
  enum { SPINS = 2000 };
  if (team->size == 1) return;
  Barrier *m = team->barrier;
  int round = __atomic_load_n(&m->round, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&m->arrived, 1, __ATOMIC_ACQ_REL) == team->size) {
    __atomic_store_n(&m->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&m->round, round + 1, __ATOMIC_RELEASE);
    return;
  }
  for (int waited = 0; __atomic_load_n(&m->round, __ATOMIC_ACQUIRE) == round; waited++)
    if (waited > SPINS) sched_yield();
}

#endif
