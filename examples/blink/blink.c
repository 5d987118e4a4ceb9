/* Reads a digit one pixel at a time and says with the board's light which it was: a flash for each unit, none for 0.
   Everything the network needs is in digits.h and digits.c, which `glstm export c` wrote. */
#include <stdint.h>
#include <stdio.h>

#include "digits.h"

#define LIGHT (*(volatile uint32_t *)0x40028000) /* LED 0 of Arm's MPS2 board */

static digits_state state;

static void wait(void) {
  volatile int n;
  for (n = 0; n < 100000; n++) {
  }
}

static void flash(int times) {
  while (times-- > 0) {
    LIGHT = 1, putchar('*');
    wait();
    LIGHT = 0;
    wait();
  }
}

int main(void) {
  float x, y[DIGITS_OUTPUTS];
  int digit = 0, n;
  digits_reset(&state);
  while (scanf("%f", &x) == 1 && digits_step(&state, &x)) {
  }
  digits_output(&state, y);
  for (n = 1; n < DIGITS_OUTPUTS; n++)
    if (y[n] > y[digit]) digit = n;
  flash(digit);
  printf(" %d\n", digit);
  return 0;
}
