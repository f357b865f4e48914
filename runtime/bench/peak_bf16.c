/* The peak of one core's products of bf16, measured as in peak.c: sums of two products each, by the
 * unit where the row has one, else widened. */
#define _POSIX_C_SOURCE 199309L
#include <time.h>

#include "../simd/bf16.h"

enum { STEPS = 20000 };

#if defined(EXT_TILES)
#include "../simd/amx.h"

/* Four tiles of sums, as a product has them. */
enum { FLOPS = 4 * 2 * 16 * 16 * 32 };
EXT_INLINE void run_steps(void) {
  tile_file file, *t = &file;
  tile_begin();
  tile_zero(t, 0);
  tile_zero(t, 1);
  tile_zero(t, 2);
  tile_zero(t, 3);
  tile_zero(t, 4);
  tile_zero(t, 5);
  tile_zero(t, 6);
  tile_zero(t, 7);
  for (int step = 0; step < STEPS; step++) {
    tile_dot(t, 0, 4, 6);
    tile_dot(t, 1, 4, 7);
    tile_dot(t, 2, 5, 6);
    tile_dot(t, 3, 5, 7);
  }
  tile_end();
}
#else
#if defined(EXT_BF16_UNIT)
enum {
  CHAINS = 24
}; /* two units of six cycles need more than 12, as the loop takes time as well */
#else
enum { CHAINS = PEAK_CHAINS };
#endif
enum { FLOPS = 4 * VL * CHAINS };
EXT_INLINE void run_steps(void) {
  static const uint16_t zeros[2 * VL];
  static const ba no_row[2];
  const volatile float seed = 1.0f;
  vf acc[CHAINS];
  vbb b = vb_panel(zeros);
  vba a = vb_row(no_row);
  EXT_UNROLL
  for (int i = 0; i < CHAINS; i++) acc[i] = vf_set1(seed); /* chains that no compiler can join */
  for (int step = 0; step < STEPS; step++) {
    EXT_UNROLL
    for (int i = 0; i < CHAINS; i++) acc[i] = vb_dot(acc[i], a, b);
    __asm__ volatile("" ::: "memory"); /* keeps the steps apart */
  }
  EXT_UNROLL
  for (int i = 1; i < CHAINS; i++) acc[0] += acc[i];
  volatile float sink = vf_sum(acc[0]);
  (void)sink;
}
#endif

/* Returns the GFLOP/s of one short run (about a millisecond); callers take the best of many. */
double EXT_NAME(ext_bench_bf16_peak)(void) {
  struct timespec start, stop;
  clock_gettime(CLOCK_MONOTONIC, &start);
  run_steps();
  clock_gettime(CLOCK_MONOTONIC, &stop);
  double seconds =
      (double)(stop.tv_sec - start.tv_sec) + 1e-9 * (double)(stop.tv_nsec - start.tv_nsec);
  return (double)FLOPS * STEPS / seconds * 1e-9;
}

__attribute__((visibility("default"))) double ext_bench_bf16_peak(void);
EXT_DISPATCH_OF(double, ext_bench_bf16_peak, (void), ())
