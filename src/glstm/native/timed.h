/* Streams in time: each unit has a pulse, once or in every period, and is open for a while around it. Nothing else is
   known beforehand, so a stream may go on for ever, and its samples may come at any increasing times. stream.h includes
   this where GLSTM_TIMED is defined.

   Time is a whole number of ticks, modulo 2^64; only differences of less than 2^62 matter. A tick is a power of two of
   the gates' unit of time, such that the smallest of all widths and periods has at least 2^30 ticks. A period is a
   float32 p with 2^a <= p < 2^(a + 1), so a multiple of 2^(a - 23), and a tick is at most 2^(a - 30): p is a whole number
   of ticks. (Where the largest duration is 2^30 times the smallest and more, ticks are longer. Then a period that is not
   a whole number of them is refused before it gets here.) So every moment first + n p is exact, for any n, and nothing
   drifts, not even when the count begins anew at 2^64. Where `first` and the borders of a window are rounded to a tick,
   that is 2^-30 of a width, once.

   A unit is open, with its window from opens[j] up to, but without, opens[j] + length[j]; or it waits for opens[j]; or,
   if it opens only once, it has finished. Those that wait form a heap by opens[j], those that are open a list by their
   number. At a step before the next event nothing of this is looked at. */
#ifndef GLSTM_TIMED_H
#define GLSTM_TIMED_H

enum { GLSTM_BELL, GLSTM_TRIANGLE, GLSTM_BOX };

/* Time as it is given: the moment of time t is begin + t (ticks + fine / 2^64), in ticks. `fine` is rounded, which makes
   a moment wrong by t / 2^65, so by less than a tick for ever. `longest`: so much may lie between two samples. */
typedef struct {
  uint64_t begin, ticks, fine, longest;
} glstm_clock;

/* The upper 64 of the 128 bits of a product. */
static inline uint64_t glstm_upper(uint64_t a, uint64_t b) {
  uint64_t low = (uint32_t)a, high = a >> 32, first = (uint32_t)b, second = b >> 32;
  uint64_t middle = high * first + (low * first >> 32), other = low * second + (uint32_t)middle;
  return high * second + (middle >> 32) + (other >> 32);
}

static inline uint64_t glstm_moment(const glstm_clock *clock, uint64_t t) {
  uint64_t moment = clock->begin + t * clock->ticks;
  return clock->fine ? moment + glstm_upper(t, clock->fine) : moment;
}

static inline int glstm_is_before(uint64_t moment, uint64_t other) { return (moment - other) >> 63 != 0; }

/* The parts of a layer's state that its pulses need. */
typedef struct {
  glstm_agenda *at;
  uint64_t *opens;
  uint16_t *waiting, *open;
} glstm_pulses;

static inline int glstm_is_open(const glstm_layer *l, glstm_pulses p, uint32_t j, uint64_t now) {
  return now - p.opens[j] < l->length[j];
}

/* Moves a unit's window to the first that ends after `now`. Returns 0 if there is none. */
static inline int glstm_find_window(const glstm_layer *l, glstm_pulses p, uint32_t j, uint64_t now) {
  uint64_t period = l->period[j], end = p.opens[j] + l->length[j];
  if (!glstm_is_before(now, end)) {
    if (period == 0) return 0;
    p.opens[j] += now - end < period ? period : ((now - end) / period + 1) * period;
  } else if (period != 0 && end - now > period) {
    p.opens[j] -= (end - now - 1) / period * period;
  }
  return 1;
}

/* Whether unit i opens before unit j. Those that open together do so by their numbers: so the order in which anything
   happens depends on the moment alone. */
static inline int glstm_is_earlier(glstm_pulses p, uint32_t i, uint32_t j) {
  return p.opens[i] == p.opens[j] ? i < j : glstm_is_before(p.opens[i], p.opens[j]);
}

static inline void glstm_wait(glstm_pulses p, uint32_t j) {
  uint32_t place = p.at->waiting++;
  while (place > 0 && glstm_is_earlier(p, j, p.waiting[(place - 1) / 2])) {
    p.waiting[place] = p.waiting[(place - 1) / 2];
    place = (place - 1) / 2;
  }
  p.waiting[place] = (uint16_t)j;
}

/* Takes out the unit that opens first. */
static inline uint32_t glstm_wake(glstm_pulses p) {
  uint32_t first = p.waiting[0], last = p.waiting[--p.at->waiting], place = 0, child;
  while ((child = 2 * place + 1) < p.at->waiting) {
    if (child + 1 < p.at->waiting && glstm_is_earlier(p, p.waiting[child + 1], p.waiting[child])) child++;
    if (!glstm_is_earlier(p, p.waiting[child], last)) break;
    p.waiting[place] = p.waiting[child];
    place = child;
  }
  p.waiting[place] = (uint16_t)last;
  return first;
}

static inline void glstm_insert_open(glstm_pulses p, uint32_t j) {
  uint32_t q = p.at->open++;
  for (; q > 0 && p.open[q - 1] > j; q--) p.open[q] = p.open[q - 1];
  p.open[q] = (uint16_t)j;
}

static inline void glstm_find_next(const glstm_layer *l, glstm_pulses p, uint64_t now) {
  uint64_t least = UINT64_MAX;
  uint32_t q;
  if (p.at->waiting) least = p.opens[p.waiting[0]] - now;
  for (q = 0; q < p.at->open; q++) {
    uint64_t left = p.opens[p.open[q]] + l->length[p.open[q]] - now;
    if (left < least) least = left;
  }
  p.at->next = now + least;
}

/* Before the first step: every unit waits, unless its only window has passed. */
static inline void glstm_begin(const glstm_layer *l, glstm_pulses p, uint64_t now) {
  uint32_t j;
  p.at->open = p.at->waiting = p.at->known = 0;
  for (j = 0; j < l->units; j++) {
    p.opens[j] = l->first[j];
    if (glstm_find_window(l, p, j, now)) glstm_wait(p, j);
  }
}

/* Closes and opens units, and completes the sums of those that are open. d: the change of h since this was last done. */
static inline void glstm_change(const glstm_layer *l, glstm_pulses p, uint64_t now, const float *h, float *sums, float *r,
                                const float *d) {
  uint32_t q, stay = 0, were_open = p.at->open;
  for (q = 0; q < were_open; q++) {
    uint32_t j = p.open[q];
    /* Whoever is open again, after any number of closed windows between two samples, has not changed in them. */
    if (glstm_find_window(l, p, j, now) && glstm_is_open(l, p, j, now))
      glstm_read_open(l, j, p.open, were_open, d, sums + 4 * (size_t)j);
  }
  for (q = 0; q < were_open; q++) {
    uint32_t j = p.open[q];
    if (glstm_is_open(l, p, j, now)) p.open[stay++] = (uint16_t)j;
    else if (l->period[j] != 0) glstm_wait(p, j);
  }
  p.at->open = (uint16_t)stay;
  while (p.at->waiting && !glstm_is_before(now, p.opens[p.waiting[0]])) {
    uint32_t j = glstm_wake(p);
    if (!glstm_find_window(l, p, j, now)) continue; /* its only window was between two samples */
    if (!glstm_is_open(l, p, j, now)) {
      glstm_wait(p, j);
      continue;
    }
    glstm_read_all(l, j, h, p.at->known, sums + 4 * (size_t)j);
    glstm_insert_open(p, j);
  }
  for (q = 0; q < p.at->open; q++) {
    r[q] = h[p.open[q]];
    if (p.at->known <= p.open[q]) p.at->known = (uint16_t)(p.open[q] + 1);
  }
  glstm_find_next(l, p, now);
}

/* k of a unit that has been open since so many ticks. */
static inline float glstm_openness(const glstm_layer *l, uint32_t j, uint64_t since) {
  uint64_t off = since - l->peak[j];
  float u, power, rest;
  if (l->shape == GLSTM_BOX) return 1.0f;
  off = (off >> 63 ? 0 - off : off) >> l->shift[j];
  u = (float)(uint32_t)off * l->steep[j];
  if (l->shape == GLSTM_TRIANGLE) {
    GLSTM_COUNT(4);
    return u < 1.0f ? 1.0f - u : 0.0f;
  }
  u *= u;
  rest = glstm_exp_rest(u < 87.0f ? -u : -87.0f, &power);
  GLSTM_COUNT(9);
  return power + power * rest;
}

static inline void glstm_layer_step(const glstm_layer *l, uint32_t step, uint64_t now, glstm_pulses p, float *number,
                                    const float *x) {
  float *h = number, *c = h + l->units, *sums = c + l->units, *r = sums + 4 * (size_t)l->units, *d = r + l->most_open;
  int changes;
  uint32_t q;
  for (q = 0; q < p.at->open; q++) d[q] = h[p.open[q]] - r[q];
  GLSTM_COUNT(p.at->open);
  if (step == 0) glstm_begin(l, p, now);
  changes = step == 0 || (p.at->open + p.at->waiting > 0 && !glstm_is_before(now, p.at->next));
  if (changes) glstm_change(l, p, now, h, sums, r, d);
  for (q = 0; q < p.at->open; q++) {
    uint32_t j = p.open[q];
    float sum[4];
    GLSTM_REMEMBER(h[j]);
    memcpy(sum, sums + 4 * (size_t)j, sizeof sum);
    if (!changes) glstm_read_open(l, j, p.open, p.at->open, d, sum);
    glstm_read_sample(l, j, x, sum);
    glstm_update(l, sum, glstm_openness(l, j, now - p.opens[j]), h + j, c + j);
    GLSTM_POOL_UNIT(l, step, h[j], d + l->most_open + j);
  }
}

/* A layer's part of the state. What comes next in it is that of the layer above. */
static inline glstm_pulses glstm_next_pulses(const glstm_layer *l, glstm_state *s) {
  glstm_pulses p;
  p.at = s->place++, p.opens = s->opens, p.waiting = s->agenda, p.open = p.waiting + l->units;
  s->opens += l->units, s->agenda = p.open + l->most_open;
  return p;
}

/* Takes a sample at a moment after that of the sample before. */
static inline void glstm_step(const glstm_model *m, glstm_state s, uint64_t now, const float *x) {
  float *number = s.number + glstm_carried(m);
  uint32_t n;
  for (n = 0; n < m->layers; n++) {
    glstm_layer_step(m->layer + n, *s.step, now, glstm_next_pulses(m->layer + n, &s), number, x);
    x = number; /* h of the layer below */
    number += glstm_numbers(m->layer + n);
  }
  if (*s.step < UINT32_MAX) ++*s.step; /* a mean needs the count; time does not */
}

/* Whether no unit will ever open again. */
static inline int glstm_finished(const glstm_model *m, uint32_t step, const glstm_agenda *place) {
  uint32_t n;
  for (n = 0; n < m->layers; n++)
    if (step == 0 || place[n].open || place[n].waiting) return 0;
  return 1;
}

#endif
