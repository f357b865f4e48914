/* The peak of one core's products of bytes, measured as in peak.c: sums of four products each, by
 * the unit where the row has one, else of 16-bit products. */
#define _POSIX_C_SOURCE 199309L
#include <time.h>

#include "../simd/simd.h"

enum { STEPS = 20000 };

#if defined(EXT_TILES)
#include "../simd/amx.h"

/* Four tiles of sums, as a product has them. */
enum { OPERATIONS = 4 * 2 * 16 * 16 * 64 };
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
    tile_dot_unsigned(t, 0, 4, 6);
    tile_dot_unsigned(t, 1, 4, 7);
    tile_dot_unsigned(t, 2, 5, 6);
    tile_dot_unsigned(t, 3, 5, 7);
  }
  tile_end();
}
#else
#if defined(EXT_DOT) && defined(__x86_64__)
#define NEXT vq_dot_in_place
#else
#define NEXT vq_dot
#endif
enum { ROWS = QVR, PANELS = QVN, OPERATIONS = 8 * VL * ROWS * PANELS };
/* The tile of a product, on the same few bytes in each step: a compiler that knew rows and panels
 * would multiply them once. */
EXT_INLINE void run_steps(void) {
  static int8_t panels[PANELS][8 * VL];
  static qa rows[ROWS][16];
  const volatile int32_t seed = 1;
  const vi start = vi_set1(seed);
  vq acc[ROWS][PANELS];
  EXT_UNROLL
  for (int i = 0; i < ROWS; i++) {
    EXT_UNROLL
    for (int v = 0; v < PANELS; v++) acc[i][v] = vq_start(start);
  }
  for (int step = 0; step < STEPS; step++) {
    vqb b[PANELS];
    __asm__ volatile("" ::"r"(panels), "r"(rows) : "memory");
    EXT_UNROLL
    for (int v = 0; v < PANELS; v++) b[v] = vq_panel(panels[v]);
    EXT_UNROLL
    for (int i = 0; i < ROWS; i++) {
      const vqa a = vq_row(rows[i]);
      EXT_UNROLL
      for (int v = 0; v < PANELS; v++) acc[i][v] = NEXT(acc[i][v], a, b[v]);
    }
  }
  vi sum = start;
  EXT_UNROLL
  for (int i = 0; i < ROWS; i++) {
    EXT_UNROLL
    for (int v = 0; v < PANELS; v++) sum += vq_sum(acc[i][v], start);
  }
  int32_t lanes[VL];
  vi_store(lanes, sum);
  volatile int32_t sink = 0;
  for (int i = 0; i < VL; i++) sink |= lanes[i];
}
#endif

/* Returns the 10^9 operations in a second, two to a product, of one short run (about a
 * millisecond); callers take the best of many. */
double EXT_NAME(ext_bench_int8_peak)(void) {
  struct timespec start, stop;
  clock_gettime(CLOCK_MONOTONIC, &start);
  run_steps();
  clock_gettime(CLOCK_MONOTONIC, &stop);
  double seconds =
      (double)(stop.tv_sec - start.tv_sec) + 1e-9 * (double)(stop.tv_nsec - start.tv_nsec);
  return (double)OPERATIONS * STEPS / seconds * 1e-9;
}

__attribute__((visibility("default"))) double ext_bench_int8_peak(void);
EXT_DISPATCH_OF(double, ext_bench_int8_peak, (void), ())
