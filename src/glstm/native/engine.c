/* What Python calls: selects the kernels for this machine, divides samples among threads, adds the threads' sums.
   In every thread that computes, subnormal numbers count as 0 meanwhile (flush.h). */
#ifdef _OPENMP
#include <omp.h>
#endif
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "flush.h"
#include "team.h"

#define DECLARE(M)                                                                                                  \
  size_t glstm_dense_weights_size##M(const Layer *);                                                                \
  void glstm_dense_pack##M(const Layer *, float *);                                                                 \
  size_t glstm_dense_forward_space##M(const Layer *, int, int);                                                     \
  void glstm_dense_forward##M(const Layer *, const float *, int, int, Team, float *);                               \
  size_t glstm_dense_transposed_size##M(const Layer *, int);                                                        \
  void glstm_dense_pack_transposed##M(const Layer *, int, float *);                                                 \
  size_t glstm_dense_backward_space##M(const Layer *, int, int);                                                    \
  void glstm_dense_backward##M(const Layer *, const Gradients *, const float *, int, int, float *, float *, float *); \
  void glstm_dense_unpack##M(const Layer *, const float *, const Gradients *);                                      \
  size_t glstm_sparse_space##M(const Layer *, int, int);                                                            \
  size_t glstm_sparse_tape_size##M(const Layer *, const Schedule *, int);                                           \
  void glstm_sparse_forward##M(const Layer *, const Schedule *, int, int, float *, float *);                        \
  size_t glstm_sparse_backward_space##M(const Layer *, int, int);                                                   \
  void glstm_sparse_backward##M(const Layer *, const Gradients *, const Schedule *, int, int, const float *, float *, \
                                float *, float *, float *, float *);                                                \
  size_t glstm_single_space##M(const Layer *, const Schedule *);                                                    \
  size_t glstm_single_tape_size##M(const Layer *, const Schedule *);                                                \
  void glstm_single_forward##M(const Layer *, const Schedule *, int, float *, float *);                             \
  size_t glstm_single_backward_space##M(const Layer *, const Schedule *);                                           \
  void glstm_single_backward##M(const Layer *, const Gradients *, const Schedule *, int, float *, const Sums *,     \
                                float *);                                                                           \
  int glstm_sigmoid_tanh##M(const float *, float *, float *, int);                                                  \
  int glstm_by_powers##M(const float *, float *, float *, int);

#define FIELDS(M, lanes)                                                                                             \
  {                                                                                                                  \
    lanes, glstm_dense_weights_size##M, glstm_dense_pack##M, glstm_dense_forward_space##M, glstm_dense_forward##M,   \
        glstm_dense_transposed_size##M, glstm_dense_pack_transposed##M, glstm_dense_backward_space##M,               \
        glstm_dense_backward##M, glstm_dense_unpack##M, glstm_sparse_space##M, glstm_sparse_tape_size##M,            \
        glstm_sparse_forward##M, glstm_sparse_backward_space##M, glstm_sparse_backward##M, glstm_single_space##M,    \
        glstm_single_tape_size##M, glstm_single_forward##M, glstm_single_backward_space##M, glstm_single_backward##M,\
        glstm_sigmoid_tanh##M, glstm_by_powers##M                                                                    \
  }

typedef struct {
  int lanes;
  size_t (*dense_weights_size)(const Layer *);
  void (*dense_pack)(const Layer *, float *);
  size_t (*dense_forward_space)(const Layer *, int, int);
  void (*dense_forward)(const Layer *, const float *, int, int, Team, float *);
  size_t (*dense_transposed_size)(const Layer *, int);
  void (*dense_pack_transposed)(const Layer *, int, float *);
  size_t (*dense_backward_space)(const Layer *, int, int);
  void (*dense_backward)(const Layer *, const Gradients *, const float *, int, int, float *, float *, float *);
  void (*dense_unpack)(const Layer *, const float *, const Gradients *);
  size_t (*sparse_space)(const Layer *, int, int);
  size_t (*sparse_tape_size)(const Layer *, const Schedule *, int);
  void (*sparse_forward)(const Layer *, const Schedule *, int, int, float *, float *);
  size_t (*sparse_backward_space)(const Layer *, int, int);
  void (*sparse_backward)(const Layer *, const Gradients *, const Schedule *, int, int, const float *, float *, float *,
                          float *, float *, float *);
  size_t (*single_space)(const Layer *, const Schedule *);
  size_t (*single_tape_size)(const Layer *, const Schedule *);
  void (*single_forward)(const Layer *, const Schedule *, int, float *, float *);
  size_t (*single_backward_space)(const Layer *, const Schedule *);
  void (*single_backward)(const Layer *, const Gradients *, const Schedule *, int, float *, const Sums *, float *);
  int (*sigmoid_tanh)(const float *, float *, float *, int);
  int (*by_powers)(const float *, float *, float *, int);
} Kernels;

DECLARE(_plain)
static const Kernels plain = FIELDS(_plain, 4);
#ifdef GLSTM_X86
DECLARE(_avx2)
DECLARE(_avx512)
static const Kernels avx2 = FIELDS(_avx2, 8), avx512 = FIELDS(_avx512, 16);
#endif

static int forced = 0; /* lanes requested by a test; 0: the widest the machine has */

static const Kernels *kernels(void) {
#ifdef GLSTM_X86
  __builtin_cpu_init();
  int has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  int has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (has_avx512 && (forced == 0 || forced == 16)) return &avx512;
  if (has_avx2 && (forced == 0 || forced == 8)) return &avx2;
#endif
  return &plain;
}

/* For tests: sets the floats per vector to 4, 8 or 16, or with 0 to the best. Returns the number now in use. */
int glstm_lanes(int lanes) {
  if (lanes >= 0) forced = lanes;
  return kernels()->lanes;
}

int glstm_nonlinearities(const float *x, float *sigmoid, float *tanh, int n) {
  FloatState before = flush_subnormals();
  int done = kernels()->sigmoid_tanh(x, sigmoid, tanh, n);
  set_float_state(before);
  return done;
}

int glstm_nonlinearities_by_powers(const float *x, float *sigmoid, float *tanh, int n) {
  FloatState before = flush_subnormals();
  int done = kernels()->by_powers(x, sigmoid, tanh, n);
  set_float_state(before);
  return done;
}

static int padded(int n, int lanes) { return (n + lanes - 1) / lanes * lanes; }

/* Samples of thread number `index`: whole vectors where `step` is a vector, so that threads share no lane. */
typedef struct { int first, samples; } Share;

static Share share(int batch, int threads, int index, int step) {
  int units = (batch + step - 1) / step, first = (int)((long)units * index / threads) * step;
  int end = (int)((long)units * (index + 1) / threads) * step;
  if (first > batch) first = batch;
  if (end > batch) end = batch;
  Share s = {first, end - first};
  return s;
}

/* After a fork the parent's threads do not exist in the child, but OpenMP does not know: the child uses one thread. */
static int in_child = 0;
static void after_fork(void) { in_child = 1; }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork); }

static int allowed_threads(const Layer *l) {
#ifdef _OPENMP
  return l->threads < 1 ? 1 : l->threads;
#else
  (void)l;
  return 1;
#endif
}

/* The number of shares of `step` samples: one for each thread, as long as there are samples enough. A tape is laid out
   by shares, so their number must not depend on how many threads work: in a forked child one thread takes them all. */
static int shares(const Layer *l, int step) {
  int most = (l->batch + step - 1) / step, threads = allowed_threads(l);
  return threads < most ? threads : (most < 1 ? 1 : most);
}

static int workers(int shares) { return in_child ? 1 : shares; }

/* The number of threads that share the units of a few samples and wait for each other after each step. It is 1 where a
   step is less work than the wait. */
int glstm_team_size(const Layer *l) {
  enum { FEW = 6, WORTH_A_BARRIER = 16384 };
  int lanes = kernels()->lanes, blocks = (l->hidden + lanes - 1) / lanes, threads = workers(allowed_threads(l));
  double products = 4.0 * l->hidden * (l->hidden + l->inputs) * l->batch;
  if (l->batch < 1 || l->batch >= FEW * threads || products / threads <= WORTH_A_BARRIER) return 1;
  return threads < blocks ? threads : blocks;
}

static float *floats(size_t n) {
  void *p = NULL;
  return posix_memalign(&p, 64, (n ? n : 1) * sizeof(float)) ? NULL : p;
}

static int forward_by_team(const Kernels *use, const Layer *l, const float *panel, int most) {
  float *space = floats(use->dense_forward_space(l, l->batch, most));
  if (!space) return 1;
  Barrier barrier = {.arrived = 0};
#pragma omp parallel num_threads(most)
  {
#ifdef _OPENMP
    Team team = {omp_get_thread_num(), omp_get_num_threads(), &barrier}; /* perhaps fewer than requested */
#else
    Team team = {0, 1, &barrier};
#endif
    FloatState before = flush_subnormals();
    use->dense_forward(l, panel, 0, l->batch, team, space);
    set_float_state(before);
  }
  free(space);
  return 0;
}

/* Returns 0 on success, 1 when memory is short. */
int glstm_dense_forward(const Layer *l) {
  const Kernels *use = kernels();
  int threads, failed = 0, team = glstm_team_size(l);
  float *panel = floats(use->dense_weights_size(l));
  if (!panel) return 1;
  use->dense_pack(l, panel);
  if (team > 1) {
    failed = forward_by_team(use, l, panel, team);
    free(panel);
    return failed;
  }
  threads = shares(l, 1);
#pragma omp parallel for num_threads(workers(threads)) schedule(static, 1) reduction(| : failed) if (workers(threads) > 1)
  for (int index = 0; index < threads; index++) {
    Share s = share(l->batch, threads, index, 1);
    float *space = floats(use->dense_forward_space(l, s.samples, 1));
    FloatState before = flush_subnormals();
    if (space && s.samples) use->dense_forward(l, panel, s.first, s.samples, (Team){0, 1, NULL}, space);
    set_float_state(before);
    failed |= !space;
    free(space);
  }
  free(panel);
  return failed;
}

static void add_into(float *sum, const float *part, size_t n) {
  for (size_t i = 0; i < n; i++) sum[i] += part[i];
}

int glstm_dense_backward(const Layer *l, const Gradients *d) {
  const Kernels *use = kernels();
  int T = l->steps, B = l->batch, H = l->hidden, Hp = padded(H, use->lanes);
  int threads = shares(l, 1), with_x = d->dx != NULL, failed = 0;
  size_t dw_size = use->dense_weights_size(l);
  float *transposed = floats(use->dense_transposed_size(l, with_x));
  float **dw = calloc(threads, sizeof *dw), **dk = calloc(threads, sizeof *dk);
  if (!transposed || !dw || !dk) {
    free(transposed), free(dw), free(dk);
    return 1;
  }
  use->dense_pack_transposed(l, with_x, transposed);
#pragma omp parallel for num_threads(workers(threads)) schedule(static, 1) reduction(| : failed) if (workers(threads) > 1)
  for (int index = 0; index < threads; index++) {
    Share s = share(B, threads, index, 1);
    float *space = floats(use->dense_backward_space(l, s.samples ? s.samples : 1, with_x));
    dw[index] = floats(dw_size), dk[index] = floats((size_t)T * (l->k_per_sample ? s.samples : 1) * Hp);
    if (space && dw[index] && dk[index]) {
      memset(dw[index], 0, sizeof(float) * dw_size);
      memset(dk[index], 0, sizeof(float) * T * (l->k_per_sample ? s.samples : 1) * Hp);
      FloatState before = flush_subnormals();
      if (s.samples) use->dense_backward(l, d, transposed, s.first, s.samples, dw[index], dk[index], space);
      set_float_state(before);
    } else failed = 1;
    free(space);
  }
  FloatState before = flush_subnormals();
  for (int index = 0; !failed && index < threads; index++) {
    Share s = share(B, threads, index, 1);
    if (index) add_into(dw[0], dw[index], dw_size);
    for (int t = 0; t < T; t++)
      for (int row = 0; row < (l->k_per_sample ? s.samples : 1); row++) {
        const float *from = dk[index] + ((size_t)t * (l->k_per_sample ? s.samples : 1) + row) * Hp;
        float *to = d->dk + (l->k_per_sample ? (size_t)t * B + s.first + row : (size_t)t) * H;
        if (l->k_per_sample || !index) memcpy(to, from, sizeof(float) * H);
        else add_into(to, from, H);
      }
  }
  set_float_state(before);
  if (!failed) use->dense_unpack(l, dw[0], d);
  for (int index = 0; index < threads; index++) free(dw[index]), free(dk[index]);
  free(transposed), free(dw), free(dk);
  return failed;
}

/* Samples that are computed together have a lane each, so a thread takes whole vectors of them. */
static int together(const Kernels *use, const Layer *l) { return l->one_by_one ? 1 : use->lanes; }

/* The size of the tape of all threads before this one. */
static size_t tape_before(const Kernels *use, const Layer *l, const Schedule *schedule, int index) {
  int step = together(use, l), threads = shares(l, step);
  size_t size = 0;
  for (int i = 0; i < index; i++) {
    int samples = share(l->batch, threads, i, step).samples;
    size += l->one_by_one ? samples * use->single_tape_size(l, schedule) : use->sparse_tape_size(l, schedule, samples);
  }
  return size;
}

size_t glstm_sparse_tape_size(const Layer *l, const Schedule *schedule) {
  const Kernels *use = kernels();
  return tape_before(use, l, schedule, shares(l, together(use, l)));
}

int glstm_sparse_forward(const Layer *l, const Schedule *schedule) {
  const Kernels *use = kernels();
  int single = l->one_by_one, threads = shares(l, together(use, l)), failed = 0;
#pragma omp parallel for num_threads(workers(threads)) schedule(static, 1) reduction(| : failed) if (workers(threads) > 1)
  for (int index = 0; index < threads; index++) {
    Share s = share(l->batch, threads, index, together(use, l));
    size_t size = single ? use->single_space(l, schedule) : use->sparse_space(l, s.samples, schedule->most_open);
    size_t of_sample = single && l->tape ? use->single_tape_size(l, schedule) : 0;
    float *space = floats(size), *tape = l->tape ? l->tape + tape_before(use, l, schedule, index) : NULL;
    FloatState before = flush_subnormals();
    if (!space) failed = 1;
    else if (!single && s.samples) use->sparse_forward(l, schedule, s.first, s.samples, tape, space);
    else
      for (int i = 0; i < s.samples; i++)
        use->single_forward(l, schedule, s.first + i, tape ? tape + i * of_sample : NULL, space);
    set_float_state(before);
    free(space);
  }
  return failed;
}

enum { PARTS = 6 };

/* The parts of sums, and how long they are. */
static void parts_of(const Layer *l, Sums *sums, int gated, float **parts[PARTS], size_t sizes[PARTS]) {
  size_t H = l->hidden, table = gated ? 0 : l->steps * H, values = gated ? H : 0;
  float **all[PARTS] = {&sums->dw_ih, &sums->dw_hh, &sums->db, &sums->dk, &sums->gate.d_mu, &sums->gate.d_sigma};
  size_t lengths[PARTS] = {4 * H * l->inputs, 4 * H * H, 4 * H, table, values, values};
  memcpy(parts, all, sizeof all), memcpy(sizes, lengths, sizeof lengths);
}

/* Sums of a thread, all 0: the first thread has the caller's memory, others their own, which has to be freed. */
static int make_sums(const Layer *l, const Gradients *d, int index, Sums *sums, float **memory) {
  float **parts[PARTS];
  size_t sizes[PARTS], all = 0;
  *sums = (Sums){d->dw_ih, d->dw_hh, d->db, d->dk, d->gate ? *d->gate : (Gaussian){0}};
  parts_of(l, sums, d->gate != NULL, parts, sizes);
  for (int p = 0; p < PARTS; p++) all += sizes[p];
  *memory = index ? floats(all) : NULL;
  if (index && !*memory) return 1;
  size_t at = 0;
  for (int p = 0; p < PARTS; at += sizes[p], p++) {
    if (index) *parts[p] = *memory + at;
    if (sizes[p]) memset(*parts[p], 0, sizeof(float) * sizes[p]);
  }
  return 0;
}

static void add_sums(const Layer *l, int gated, Sums *into, Sums *part) {
  float **to[PARTS], **from[PARTS];
  size_t sizes[PARTS];
  parts_of(l, into, gated, to, sizes), parts_of(l, part, gated, from, sizes);
  for (int p = 0; p < PARTS; p++) add_into(*to[p], *from[p], sizes[p]);
}

int glstm_sparse_backward(const Layer *l, const Gradients *d, const Schedule *schedule) {
  const Kernels *use = kernels();
  int single = l->one_by_one, threads = shares(l, together(use, l)), failed = 0;
  Sums *sums = calloc(threads, sizeof *sums);
  float **memory = calloc(threads, sizeof *memory);
#pragma omp parallel for num_threads(workers(threads)) schedule(static, 1) reduction(| : failed) if (workers(threads) > 1)
  for (int index = 0; index < (sums && memory ? threads : 0); index++) {
    Share s = share(l->batch, threads, index, together(use, l));
    float *space = floats(single ? use->single_backward_space(l, schedule)
                                 : use->sparse_backward_space(l, s.samples, schedule->most_open));
    size_t of_sample = single ? use->single_tape_size(l, schedule) : 0;
    float *tape = l->tape + tape_before(use, l, schedule, index);
    Sums *own = &sums[index];
    if (space && !make_sums(l, d, index, own, &memory[index])) {
      FloatState before = flush_subnormals();
      if (!single && s.samples)
        use->sparse_backward(l, d, schedule, s.first, s.samples, tape, own->dw_ih, own->dw_hh, own->db, own->dk, space);
      for (int i = 0; single && i < s.samples; i++)
        use->single_backward(l, d, schedule, s.first + i, tape + i * of_sample, own, space);
      set_float_state(before);
    } else failed = 1;
    free(space);
  }
  FloatState before = flush_subnormals();
  failed |= !sums || !memory;
  for (int index = 1; !failed && index < threads; index++) add_sums(l, d->gate != NULL, &sums[0], &sums[index]);
  set_float_state(before);
  for (int index = 0; memory && index < threads; index++) free(memory[index]);
  free(sums), free(memory);
  return failed;
}

/* `prepared` has everything set except threads, x and h_n, so that several callers may share it. Without a schedule
   every unit is computed at every step. */
int glstm_run_prepared(const Layer *prepared, const Schedule *schedule, int threads, const float *x, float *h_n) {
  Layer l = *prepared;
  l.threads = threads, l.x = x, l.h_n = h_n;
  return schedule ? glstm_sparse_forward(&l, schedule) : glstm_dense_forward(&l);
}
