/* Only the open units, for one sequence: who sits down, who gets up, and what changes then. What frozen units
   contribute is kept in `base`, as in sparse.c. */
#include "kernels.h"
#include "seats.h"

void NAME(single_steps)(Seats *, const Sitting *);
#if VL >= 8
void JOIN(NAME(single_steps), _4)(Seats *, const Sitting *);
#endif
#if VL >= 16
void JOIN(NAME(single_steps), _8)(Seats *, const Sitting *);
#endif

static void run_steps(Seats *n, const Sitting *s) {
#if VL >= 8
  if (s->slots_used <= 4) JOIN(NAME(single_steps), _4)(n, s);
  else
#endif
#if VL >= 16
      if (s->slots_used <= 8) JOIN(NAME(single_steps), _8)(n, s);
  else
#endif
    NAME(single_steps)(n, s);
}

size_t NAME(single_space)(const Layer *l, const Schedule *plan) {
  size_t n = plan->capacity;
  return 2 * (size_t)l->hidden + n * 7 + n * n * 4 + (size_t)l->inputs * 4 * n + 2 * VL;
}

static Seats make_seats(const Layer *l, int capacity, int sample, float *space, size_t space_size) {
  int H = l->hidden;
  size_t cap = capacity;
  Seats n = {.l = l, .capacity = capacity, .frozen_h = space, .c_of = space + H};
  n.h = n.c_of + H, n.c = n.h + cap, n.base = n.c + cap, n.h_before = n.base + 4 * cap, n.w = n.h_before + cap;
  n.w_x = n.w + cap * 4 * cap;
  memset(space, 0, sizeof(float) * space_size);
  memcpy(n.frozen_h, l->h0 + (size_t)sample * H, sizeof(float) * H);
  memcpy(n.c_of, l->c0 + (size_t)sample * H, sizeof(float) * H);
  return n;
}

/* From entry n on: zeros, then n ones. */
static const float last_lanes[2 * VL] = {
    [VL] = 1, 1, 1, 1,
#if VL >= 8
    1, 1, 1, 1,
#endif
#if VL >= 16
    1, 1, 1, 1, 1, 1, 1, 1,
#endif
};

/* What the frozen units and the bias contribute to the unit in a slot: four rows of weights times frozen_h. */
static void sum_afresh(Seats *n, int slot, int j) {
  int H = n->l->hidden, u = 0, size = H * H;
  const float *w = n->l->w_hh + (size_t)j * H, *b = n->l->b;
  vf a0 = splat(0), a1 = splat(0), a2 = splat(0), a3 = splat(0);
  for (; u + VL <= H; u += VL) {
    vf h = load(n->frozen_h + u);
    a0 += h * load(w + u), a1 += h * load(w + size + u), a2 += h * load(w + 2 * size + u), a3 += h * load(w + 3 * size + u);
  }
  if (u < H && H >= VL) { /* the last units in a vector that reaches back to units already counted: those times 0 */
    vf h = load(n->frozen_h + H - VL) * load(last_lanes + H - u);
    w += H - VL;
    a0 += h * load(w), a1 += h * load(w + size), a2 += h * load(w + 2 * size), a3 += h * load(w + 3 * size);
  } else if (u < H) {
    float rest[5][VL] = {{0}};
    for (int g = 0; g < 4; g++) memcpy(rest[g], w + (size_t)g * size, sizeof(float) * H);
    memcpy(rest[4], n->frozen_h, sizeof(float) * H);
    vf h = load(rest[4]);
    a0 += h * load(rest[0]), a1 += h * load(rest[1]), a2 += h * load(rest[2]), a3 += h * load(rest[3]);
  }
  float sums[4] = {sum_lanes(a0), sum_lanes(a1), sum_lanes(a2), sum_lanes(a3)};
  for (int g = 0; g < 4; g++) n->base[g * n->capacity + slot] = sums[g] + (b ? b[g * H + j] : 0);
}

static void get_up(Seats *n, int slot, int u, int slots_used) {
  int cap = n->capacity;
  vf h = splat(n->h[slot]);
  const float *w = n->w + (size_t)slot * 4 * cap;
  for (int g = 0; g < 4; g++)
    for (int at = g * cap; at < g * cap + slots_used; at += VL) store(n->base + at, load(n->base + at) + h * load(w + at));
  n->frozen_h[u] = n->h[slot], n->c_of[u] = n->c[slot];
}

/* `others`: who sits already, itself included */
static void sit_down(Seats *n, int slot, int j, const int32_t *slots, const int32_t *units, int others) {
  const Layer *l = n->l;
  int H = l->hidden, D = l->inputs, cap = n->capacity;
  n->h[slot] = n->frozen_h[j], n->c[slot] = n->c_of[j], n->frozen_h[j] = 0;
  for (int g = 0; g < 4; g++) {
    const float *row = l->w_hh + ((size_t)g * H + j) * H;
    for (int d = 0; d < D; d++) n->w_x[(d * 4 + g) * cap + slot] = l->w_ih[((size_t)g * H + j) * D + d];
    for (int i = 0; i < others; i++) {
      n->w[((size_t)slots[i] * 4 + g) * cap + slot] = row[units[i]];
      n->w[((size_t)slot * 4 + g) * cap + slots[i]] = l->w_hh[((size_t)g * H + units[i]) * H + j];
    }
  }
}

static void write_output(const Seats *n, const int32_t *slots, const int32_t *units, int open, float *out) {
  memcpy(out, n->frozen_h, sizeof(float) * n->l->hidden);
  for (int q = 0; q < open; q++) out[units[q]] = n->h[slots[q]];
}

void NAME(single_forward)(const Layer *l, const Schedule *plan, int sample, float *space) {
  int H = l->hidden, D = l->inputs, B = l->batch, cap = plan->capacity, slots_used = 0;
  Seats n = make_seats(l, cap, sample, space, NAME(single_space)(l, plan));
  for (int span = 0; span < plan->spans; span++) {
    const int32_t *slots = plan->slots + plan->offset[span], *units = plan->units + plan->offset[span];
    int open = plan->offset[span + 1] - plan->offset[span], revived = 0;
    for (int q = plan->leaving_offset[span]; q < plan->leaving_offset[span + 1]; q++)
      get_up(&n, plan->leaving_slots[q], plan->leaving[q], slots_used);
    slots_used = plan->slots_used[span];
    for (int q = 0; q < open; q++)
      if (plan->arrived[plan->offset[span] + q]) {
        revived |= n.frozen_h[units[q]] != 0;
        sit_down(&n, slots[q], units[q], slots, units, open);
      }
    for (int q = 0; q < open; q++)
      if (revived || plan->arrived[plan->offset[span] + q]) sum_afresh(&n, slots[q], units[q]);
    int start = plan->start[span], end = plan->start[span + 1], stride = l->h ? 1 : end - start;
    for (int t = start; t < end; t += stride) {
      Sitting sitting = {stride, open, slots_used, slots, l->x + ((size_t)t * B + sample) * D,
                         plan->slot_k + (size_t)t * cap, (size_t)B * D};
      if (open) run_steps(&n, &sitting);
      if (l->h) write_output(&n, slots, units, open, l->h + ((size_t)t * B + sample) * H);
    }
  }
  const int32_t last = plan->spans - 1;
  for (int q = plan->offset[last]; q < plan->offset[last + 1]; q++) get_up(&n, plan->slots[q], plan->units[q], slots_used);
  memcpy(l->h_n + (size_t)sample * H, n.frozen_h, sizeof(float) * H);
  memcpy(l->c_n + (size_t)sample * H, n.c_of, sizeof(float) * H);
}
