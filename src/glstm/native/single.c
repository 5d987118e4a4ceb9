/* Only the open units, for one sequence: units lie in the lanes. Each open unit sits in a slot, and the weights
   between the slots form one small dense block that changes only where a unit sits down or gets up. What frozen units
   contribute is kept in `base`, as in sparse.c. */
#include "engine.h"
#include "kernels.h"

typedef struct {
  const Layer *l;
  int capacity;
  float *frozen_h, *c_of; /* (H): h of frozen units, 0 for open ones; c of frozen units */
  float *h, *c, *base;    /* (capacity) (capacity) (4, capacity) */
  float *h_before;        /* (capacity), while a step is under way */
  float *w, *w_x;         /* (capacity, 4, capacity) and (D, 4, capacity): from slot, or input, to slots */
  int *taken, *taken_by;  /* the slots in use, in order of arrival; who sits in a slot */
  int count;
} Seats;

size_t NAME(single_space)(const Layer *l, const Schedule *plan) {
  size_t n = plan->capacity;
  return 2 * (size_t)l->hidden + n * 7 + n * n * 4 + (size_t)l->inputs * 4 * n + 2 * n + 2 * VL;
}

static float dot(const float *a, const float *b, int n) {
  vf sum = splat(0);
  int i = 0;
  for (; i + VL <= n; i += VL) sum += load(a + i) * load(b + i);
  float tail = 0;
  for (; i < n; i++) tail += a[i] * b[i];
  return sum_lanes(sum) + tail;
}

static void sum_afresh(Seats *n, int slot) {
  int H = n->l->hidden, j = n->taken_by[slot];
  for (int g = 0; g < 4; g++)
    n->base[g * n->capacity + slot] =
        dot(n->l->w_hh + ((size_t)g * H + j) * H, n->frozen_h, H) + (n->l->b ? n->l->b[g * H + j] : 0);
}

static void get_up(Seats *n, int slot) {
  int u = n->taken_by[slot], cap = n->capacity, at = 0;
  vf h = splat(n->h[slot]);
  for (int v = 0; v < 4 * cap; v += VL) store(n->base + v, load(n->base + v) + h * load(n->w + (size_t)slot * 4 * cap + v));
  n->frozen_h[u] = n->h[slot], n->c_of[u] = n->c[slot], n->h[slot] = 0;
  for (int i = 0; i < n->count; i++)
    if (n->taken[i] != slot) n->taken[at++] = n->taken[i];
  n->count = at;
}

static void sit_down(Seats *n, int slot, int j) {
  const Layer *l = n->l;
  int H = l->hidden, D = l->inputs, cap = n->capacity;
  n->taken[n->count++] = slot, n->taken_by[slot] = j;
  n->h[slot] = n->frozen_h[j], n->c[slot] = n->c_of[j], n->frozen_h[j] = 0;
  for (int g = 0; g < 4; g++) {
    const float *row = l->w_hh + ((size_t)g * H + j) * H;
    for (int d = 0; d < D; d++) n->w_x[(d * 4 + g) * cap + slot] = l->w_ih[((size_t)g * H + j) * D + d];
    for (int i = 0; i < n->count; i++) {
      int other = n->taken[i], u = n->taken_by[other];
      n->w[((size_t)other * 4 + g) * cap + slot] = row[u];
      n->w[((size_t)slot * 4 + g) * cap + other] = l->w_hh[((size_t)g * H + u) * H + j];
    }
  }
}

/* `vectors` is a constant where this is inlined: with one vector nothing is written before everything is read. */
INLINE void step(int vectors, Seats *n, const float *x, const float *k) {
  int cap = n->capacity;
  const float *h_before = n->h;
  if (vectors > 1) h_before = memcpy(n->h_before, n->h, sizeof(float) * cap);
  for (int v = 0; v < vectors; v++) {
    float *base = n->base + v * VL;
    vf a0 = load(base), a1 = load(base + cap), a2 = load(base + 2 * cap), a3 = load(base + 3 * cap);
    for (int d = 0; d < n->l->inputs; d++) {
      const float *w = n->w_x + (size_t)d * 4 * cap + v * VL;
      vf value = splat(x[d]);
      a0 += value * load(w), a1 += value * load(w + cap), a2 += value * load(w + 2 * cap), a3 += value * load(w + 3 * cap);
    }
    vf b0 = splat(0), b1 = splat(0), b2 = splat(0), b3 = splat(0); /* a second chain: the sums wait for each other less */
    int i = 0;
    for (; i + 2 <= n->count; i += 2) {
      const float *w = n->w + (size_t)n->taken[i] * 4 * cap + v * VL, *u = n->w + (size_t)n->taken[i + 1] * 4 * cap + v * VL;
      vf p = splat(h_before[n->taken[i]]), q = splat(h_before[n->taken[i + 1]]);
      a0 += p * load(w), a1 += p * load(w + cap), a2 += p * load(w + 2 * cap), a3 += p * load(w + 3 * cap);
      b0 += q * load(u), b1 += q * load(u + cap), b2 += q * load(u + 2 * cap), b3 += q * load(u + 3 * cap);
    }
    for (; i < n->count; i++) {
      const float *w = n->w + (size_t)n->taken[i] * 4 * cap + v * VL;
      vf p = splat(h_before[n->taken[i]]);
      a0 += p * load(w), a1 += p * load(w + cap), a2 += p * load(w + 2 * cap), a3 += p * load(w + 3 * cap);
    }
    vf c = load(n->c + v * VL), h = load(n->h + v * VL), kk = load(k + v * VL);
    vf g = n->l->logistic ? sigmoid(a2 + b2) : tanh_(a2 + b2);
    vf c_new = sigmoid(a1 + b1) * c + sigmoid(a0 + b0) * g;
    vf h_new = sigmoid(a3 + b3) * tanh_(c_new);
    store(n->c + v * VL, mix(kk, c_new, c));
    store(n->h + v * VL, mix(kk, h_new, h));
  }
}

void NAME(single_forward)(const Layer *l, const Schedule *plan, int sample, float *space) {
  int H = l->hidden, D = l->inputs, B = l->batch, cap = plan->capacity;
  Seats n = {l, cap, space, space + H, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0};
  memset(space, 0, sizeof(float) * NAME(single_space)(l, plan));
  n.h = n.c_of + H, n.c = n.h + cap, n.base = n.c + cap, n.h_before = n.base + 4 * cap, n.w = n.h_before + cap;
  n.w_x = n.w + (size_t)cap * 4 * cap;
  n.taken = (int *)(n.w_x + (size_t)D * 4 * cap), n.taken_by = n.taken + cap;
  memcpy(n.frozen_h, l->h0 + (size_t)sample * H, sizeof(float) * H);
  memcpy(n.c_of, l->c0 + (size_t)sample * H, sizeof(float) * H);
  int were = 0, before = 0; /* the span before: its units from `before` on, `were` of them */
  for (int span = 0; span < plan->spans; span++) {
    int from = plan->offset[span], open = plan->offset[span + 1] - from, arrived = n.count, revived = 0;
    /* Units are listed in increasing order: one merge finds who leaves and who comes. */
    for (int p = 0, q = 0; p < were; p++) {
      while (q < open && plan->units[from + q] < plan->units[before + p]) q++;
      if (q == open || plan->units[from + q] != plan->units[before + p]) get_up(&n, plan->slots[before + p]);
    }
    arrived = n.count;
    for (int p = 0, q = 0; q < open; q++) {
      while (p < were && plan->units[before + p] < plan->units[from + q]) p++;
      if (p == were || plan->units[before + p] != plan->units[from + q]) {
        revived |= n.frozen_h[plan->units[from + q]] != 0;
        sit_down(&n, plan->slots[from + q], plan->units[from + q]);
      }
    }
    for (int i = revived ? 0 : arrived; i < n.count; i++) sum_afresh(&n, n.taken[i]);
    int last = 0; /* low slots are taken first, so that mostly one vector has them all */
    for (int i = 0; i < n.count; i++) last = n.taken[i] > last ? n.taken[i] : last;
    for (int t = plan->start[span]; t < plan->start[span + 1]; t++) {
      const float *x = l->x + ((size_t)t * B + sample) * D, *k = plan->slot_k + (size_t)t * cap;
      if (n.count) {
        if (last < VL) step(1, &n, x, k);
        else step(last / VL + 1, &n, x, k);
      }
      if (l->h) {
        float *out = l->h + ((size_t)t * B + sample) * H;
        memcpy(out, n.frozen_h, sizeof(float) * H);
        for (int i = 0; i < n.count; i++) out[n.taken_by[n.taken[i]]] = n.h[n.taken[i]];
      }
    }
    before = from, were = open;
  }
  while (n.count) get_up(&n, n.taken[0]);
  memcpy(l->h_n + (size_t)sample * H, n.frozen_h, sizeof(float) * H);
  memcpy(l->c_n + (size_t)sample * H, n.c_of, sizeof(float) * H);
}
