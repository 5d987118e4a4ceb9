/* As much of OpenMP as GCC calls for the engine, on plain threads. The thread sanitizer sees these begin and end; in
   the compiler's own library it would not, and call every hand-over of data between threads a race. */
#include <pthread.h>
#include <stdlib.h>

typedef struct {
  void (*work)(void *);
  void *data;
  int number, count;
} Part;

static _Thread_local const Part *mine;

int omp_get_thread_num(void) { return mine ? mine->number : 0; }
int omp_get_num_threads(void) { return mine ? mine->count : 1; }

static void *run(void *part) {
  const Part *before = mine;
  mine = part;
  mine->work(mine->data);
  mine = before;
  return NULL;
}

void GOMP_parallel(void (*work)(void *), void *data, unsigned count, unsigned flags) {
  pthread_t threads[64];
  Part parts[64];
  (void)flags;
  if (count < 1 || count > 64) exit(2);
  for (unsigned i = 0; i < count; i++) parts[i] = (Part){work, data, (int)i, (int)count};
  for (unsigned i = 1; i < count; i++)
    if (pthread_create(&threads[i], NULL, run, &parts[i])) exit(2);
  run(&parts[0]);
  for (unsigned i = 1; i < count; i++) pthread_join(threads[i], NULL);
}
