/* From reset to newlib's own start, on a Cortex-M4 with its floating-point unit switched on. */
#include <stdint.h>

extern uint32_t stack_top;
extern void _start(void);

__attribute__((noreturn)) void reset(void) {
  *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* CPACR: full access to CP10 and CP11 */
  __asm volatile("dsb\n isb");
  _start();
  for (;;) {
  }
}

__attribute__((noreturn)) static void fault(void) {
  for (;;) {
  }
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))(uintptr_t)&stack_top, reset, fault, fault, fault, fault, fault};
