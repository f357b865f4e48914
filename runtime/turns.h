/*
 * Steps that follow one another on several threads, without a launch for each.
 *
 * A step has parts, one for each thread that is expected.  A thread takes its own part of a step,
 * then waits until all parts are done; the next step begins there.  A part whose thread has not
 * come, or does not for a while, is taken by another, so that one thread alone does all, and
 * nobody waits for a thread that was never started.
 */
#ifndef EXT_TURNS_H_
#define EXT_TURNS_H_

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
  MOST_PARTS = 16,
  TURN_LINE = 64,
  PATIENCE = 64, /* pauses until a part that nobody has taken is taken by who waits */
  YIELD = 4096   /* pauses until the system may run another thread */
};

typedef struct {
  _Alignas(TURN_LINE) _Atomic int64_t taken; /* steps whose part was taken */
  _Atomic int is_here;                       /* its thread has come */
} ext_turn_part;

typedef struct {
  ext_turn_part parts[MOST_PARTS];
  _Alignas(TURN_LINE) _Atomic int64_t done; /* parts of all steps */
  int64_t count;                            /* parts of a step */
} ext_turns;

/* Computes part `part` of step `step`. */
typedef void (*ext_turn_body)(const void* context, int64_t step, int64_t part);

static inline void ext_turn_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static inline void ext_take_part(ext_turns* t, int64_t step, int64_t part, ext_turn_body body,
                                 const void* context) {
  int64_t before = step;
  if (!atomic_compare_exchange_strong(&t->parts[part].taken, &before, step + 1)) return;
  body(context, step, part);
  atomic_fetch_add_explicit(&t->done, 1, memory_order_acq_rel);
}

/* Takes part in what is left of `steps` steps, as the thread of part `own`. */
static inline void ext_take_turns(ext_turns* t, int64_t own, int64_t steps, ext_turn_body body,
                                  const void* context) {
  atomic_store(&t->parts[own].is_here, 1);
  int64_t step = atomic_load(&t->done) / t->count;
  for (; step < steps; step++) {
    ext_take_part(t, step, own, body, context);
    for (int64_t part = 0; part < t->count; part++)
      if (!atomic_load_explicit(&t->parts[part].is_here, memory_order_relaxed))
        ext_take_part(t, step, part, body, context);
    const int64_t all = (step + 1) * t->count;
    for (int64_t pauses = 1; atomic_load_explicit(&t->done, memory_order_acquire) < all; pauses++) {
      ext_turn_pause();
      if (pauses % YIELD == 0) sched_yield();
      if (pauses % PATIENCE) continue;
      for (int64_t part = 0; part < t->count; part++) ext_take_part(t, step, part, body, context);
    }
  }
}

#endif /* EXT_TURNS_H_ */
