/* The FMA peak of one core, measured: independent chains of multiply-adds in registers. */
#define _POSIX_C_SOURCE 199309L
#include <time.h>

#include "../simd/simd.h"

enum { CHAINS = PEAK_CHAINS, STEPS = 20000 };
#if defined(EXT_PEAK_ADDS)
#define NEXT(x) vf_fma(a, b, x) /* the form that it has; the factors change register otherwise */
#else
#define NEXT(x) vf_fma(x, a, b)
#endif

/* Returns the GFLOP/s of one short run (about a millisecond); callers take the best of many. */
double EXT_NAME(ext_bench_fma_peak)(void) {
  volatile float seed = 1.0f;
  vf acc[CHAINS], a = vf_set1(0.999f), b = vf_set1(1e-3f);
  EXT_UNROLL
  for (int i = 0; i < CHAINS; i++) acc[i] = vf_set1(seed); /* chains that no compiler can join */
  struct timespec start, stop;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int step = 0; step < STEPS; step++) {
    EXT_UNROLL
    for (int i = 0; i < CHAINS; i++) acc[i] = NEXT(acc[i]);
    __asm__ volatile("" ::: "memory"); /* keeps the steps apart */
  }
  EXT_UNROLL
  for (int i = 1; i < CHAINS; i++) acc[0] += acc[i];
  volatile float sink = vf_sum(acc[0]);
  (void)sink;
  clock_gettime(CLOCK_MONOTONIC, &stop);
  double seconds =
      (double)(stop.tv_sec - start.tv_sec) + 1e-9 * (double)(stop.tv_nsec - start.tv_nsec);
  return 2.0 * VL * CHAINS * STEPS / seconds * 1e-9;
}

__attribute__((visibility("default"))) double ext_bench_fma_peak(void);
EXT_DISPATCH_OF(double, ext_bench_fma_peak, (void), ())
