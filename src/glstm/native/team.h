/* Threads that go through the same steps, each with some of the units, and wait for each other after every step. */
#ifndef GLSTM_TEAM_H
#define GLSTM_TEAM_H

#include <sched.h>

/* Each count in lines of its own: who waits reads one all the time, and whatever lay beside it would crawl. */
typedef struct {
  char before[128];
  int arrived;
  char between[128];
  int round;
  char after[128];
} Meeting;

typedef struct {
  int index, size;
  Meeting *meeting; /* NULL for one thread alone */
} Team;

/* Returns when all members have come. A step takes a microsecond: who waits does so awake, but yields to other
   processes when it takes longer than that, as on a crowded machine. */
static inline void meet(const Team *team) {
  enum { PATIENCE = 2000 };
  if (team->size == 1) return;
  Meeting *m = team->meeting;
  int round = __atomic_load_n(&m->round, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&m->arrived, 1, __ATOMIC_ACQ_REL) == team->size) {
    __atomic_store_n(&m->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&m->round, round + 1, __ATOMIC_RELEASE);
    return;
  }
  for (int waited = 0; __atomic_load_n(&m->round, __ATOMIC_ACQUIRE) == round; waited++)
    if (waited > PATIENCE) sched_yield();
}

#endif
