/* Instructions of STEPS steps after BEFORE others, by the system timer: under -icount shift=0 an instruction takes a nanosecond of the
   emulated time, and the timer ticks every 40. */
#include <stdint.h>
#include <stdio.h>

#include HEADER

#define CONTROL (*(volatile uint32_t *)0xE000E010)
#define RELOAD (*(volatile uint32_t *)0xE000E014)
#define CURRENT (*(volatile uint32_t *)0xE000E018)
#define FULL 0xFFFFFFu

static STATE state;
static uint64_t elapsed;
static uint32_t before;

static void tick(void) { /* often enough for the timer not to come round twice */
  uint32_t now = CURRENT;
  elapsed += (before - now) & FULL;
  before = now;
}

int main(void) {
  float x[INPUTS], y[OUTPUTS];
  int n, i;
  RELOAD = FULL, CURRENT = 0, CONTROL = 5;
  RESET(&state);
  for (n = 0; n < BEFORE + STEPS; n++) {
    if (n == BEFORE) before = CURRENT, elapsed = 0;
    for (i = 0; i < INPUTS; i++) x[i] = (float)((n * 7 + i * 3) % 11) * 0.1f;
#ifdef TICKS /* of the network's time in a step */
    STEP(&state, x, (uint64_t)(n + 1) * TICKS);
#else
    STEP(&state, x);
#endif
    tick();
  }
  OUTPUT(&state, y);
  tick();
  printf("%.0f\n", (double)elapsed * 40);
  return 0;
}
