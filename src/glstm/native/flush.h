/* Subnormal numbers (below 1.2e-38) count as 0 while the engine computes. Gradients fade into them where units forget,
   and many processors take over ten times as long for them. The caller, and torch, whose threads the engine uses, keep
   their own setting: every thread that computes sets it for the time of its work and puts the old one back. */
#ifndef GLSTM_FLUSH_H
#define GLSTM_FLUSH_H

#include <stdint.h>
#include <string.h>

/* The control register of a thread's floating-point unit: rounding, exceptions, and what subnormal numbers become.
   "memory" tells the compiler that it must not move loads and stores, and what lies between them, across the change. */
#if defined __x86_64__ && defined __SSE__
typedef unsigned int FloatState; /* MXCSR */
enum { FLUSHING = 1 << 15 | 1 << 6 }; /* results become 0 (FTZ), and operands count as 0 (DAZ) */
static inline FloatState float_state(void) {
  FloatState state;
  __asm__ __volatile__("stmxcsr %0" : "=m"(state) : : "memory");
  return state;
}
static inline void set_float_state(FloatState state) { __asm__ __volatile__("ldmxcsr %0" : : "m"(state) : "memory"); }
#elif defined __aarch64__
typedef uint64_t FloatState; /* FPCR */
enum { FLUSHING = 1 << 24 }; /* both at once (FZ) */
static inline FloatState float_state(void) {
  FloatState state;
  __asm__ __volatile__("mrs %0, fpcr" : "=r"(state) : : "memory");
  return state;
}
static inline void set_float_state(FloatState state) { __asm__ __volatile__("msr fpcr, %0" : : "r"(state) : "memory"); }
#else
typedef int FloatState;
enum { FLUSHING = 0 };
static inline FloatState float_state(void) { return 0; }
static inline void set_float_state(FloatState state) { (void)state; }
#endif

/* From here on subnormal numbers count as 0 in this thread. Returns what `set_float_state` needs to end it. */
static inline FloatState flush_subnormals(void) {
  FloatState before = float_state();
  set_float_state(before | FLUSHING);
  return before;
}

/* Whether a unit is closed. Its k is compared bit by bit: a subnormal k, which the end of a bell curve has, means open
   whatever the thread's setting is, because the schedule, the forward pass and the backward pass must agree. */
static inline int is_shut(float k) {
  uint32_t bits;
  memcpy(&bits, &k, sizeof bits);
  return !(bits << 1);
}

#endif
