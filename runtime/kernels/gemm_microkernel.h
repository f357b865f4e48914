/*
 * gemm_microkernel.h - the microkernel's functions, for A that is packed or that is not:
 *
 *   y[i][j] = tail(c[i][j] + sum_p a[i][p] * b[p][j]),  i < rows <= MR, j < columns <= TILE_N
 *
 * One function per number of rows (and of vectors), made from one always-inlined body whose loops
 * unroll completely, so that the accumulators live in registers.
 */
#ifndef EXT_GEMM_MICROKERNEL_H_
#define EXT_GEMM_MICROKERNEL_H_

#include "gemm_tile.h"

/* One row's vector in memory; `full` is a constant: all VL lanes, or only the first `lanes`. */
EXT_INLINE vf tile_load(const int full, const float* p, int64_t lanes) {
  return full ? vf_load(p) : vf_load_n(p, lanes);
}

EXT_INLINE void tile_tail(const int rows, const int nv, const int full, const gemm_tile* t,
                          vf acc[MR][NV]) {
  int64_t lanes[NV];
  for (int v = 0; v < nv; v++) lanes[v] = clamp_lanes(t->columns - v * VL);
  if (t->residual) {
    EXT_UNROLL
    for (int i = 0; i < rows; i++) {
      EXT_UNROLL
      for (int v = 0; v < nv; v++) {
        const vf other = tile_load(full, t->residual + i * t->residual_row + v * VL, lanes[v]);
        acc[i][v] = t->residual_is_factor ? acc[i][v] * other : acc[i][v] + other;
      }
    }
  }
  if (t->clamp) {
    vf low = vf_set1(t->low), high = vf_set1(t->high);
    EXT_UNROLL
    for (int i = 0; i < rows; i++) {
      EXT_UNROLL
      for (int v = 0; v < nv; v++) acc[i][v] = vf_min(high, vf_max(low, acc[i][v]));
    }
  }
  float* y = t->y;
  const int64_t y_row = t->y_row; /* read once: for all the compiler knows, y is where *t is */
  EXT_UNROLL
  for (int i = 0; i < rows; i++, y += y_row) {
    EXT_UNROLL
    for (int v = 0; v < nv; v++) {
      if (full)
        vf_store(y + v * VL, acc[i][v]);
      else
        vf_store_n(y + v * VL, acc[i][v], lanes[v]);
    }
  }
}

/* The sums' first values: bias (or 0) plus c. */
EXT_INLINE void tile_begin(const int rows, const int nv, const int full, const gemm_tile* t,
                           vf acc[MR][NV]) {
  int64_t lanes[NV];
  for (int v = 0; v < nv; v++) lanes[v] = clamp_lanes(t->columns - v * VL);
  EXT_UNROLL
  for (int v = 0; v < nv; v++) {
    acc[0][v] = t->bias ? tile_load(full, t->bias + v * VL, lanes[v]) : vf_zero();
    EXT_UNROLL
    for (int i = 1; i < rows; i++) acc[i][v] = acc[0][v];
  }
  if (!t->c) return;
  EXT_UNROLL
  for (int i = 0; i < rows; i++) {
    EXT_UNROLL
    for (int v = 0; v < nv; v++)
      acc[i][v] += tile_load(full, t->c + i * t->c_row + v * VL, lanes[v]);
  }
}

/* Asks for all lines that the tail will write, before the first step.  A row in each of the first
 * steps needs pointers that the loop has no registers for: on Zen 4 stems, 3 channels to 64, then
 * take 1.3 times as long, and products of K = 16 to 64 up to 1.2 times. */
EXT_INLINE void tile_fetch(const int rows, const int nv, const gemm_tile* t) {
  const float* y = t->finished;
  const int64_t y_row = t->finished_row;
  EXT_UNROLL
  for (int i = 0; i < rows; i++, y += y_row) {
    EXT_UNROLL
    for (int v = 0; v < nv; v++) __builtin_prefetch(y + v * VL, 1);
  }
}

/* acc[v] += x row[v], v < nv; with `half` (a constant) only half of the last vector counts. */
EXT_INLINE void tile_step(const int nv, const int half, float x, const vf row[NV], vf acc[NV]) {
#if defined(EXT_HALF_VECTORS)
  vf a = half && nv == 1 ? vf_set1_low(x) : vf_set1(x);
  EXT_UNROLL
  for (int v = 0; v < nv; v++)
    acc[v] = half && v == nv - 1 ? vf_fma_low(a, row[v], acc[v]) : vf_fma(a, row[v], acc[v]);
#else
  (void)half;
  vf a = vf_set1(x);
  EXT_UNROLL
  for (int v = 0; v < nv; v++) acc[v] = vf_fma(a, row[v], acc[v]);
#endif
}

#if defined(EXT_LANE_FMA)
#include "gemm_lanes.h"
#else

/* Where a loop stands: a pointer to every third row of A that lies as it is, and one to A that is
 * packed. */
enum { GROUPS = (MR + 2) / 3 };
typedef struct {
  const float *a[GROUPS], *b, *next, *following;
} tile_place;

/* `steps` steps of K.  Of an A that is not packed one register has the distance of rows, which x86
 * adds once or twice in the load: fourteen pointers would be too many. */
EXT_INLINE void tile_steps(const int steps, const int rows, const int nv, const int half,
                           const int unpacked, int64_t a_row, int64_t b_step, tile_place* at,
                           vf acc[MR][NV]) {
  EXT_UNROLL
  for (int p = 0; p < steps; p++) {
    vf row[NV];
    EXT_UNROLL
    for (int v = 0; v < nv; v++) row[v] = vf_load(at->b + p * EXT_PANEL + v * b_step);
    EXT_UNROLL
    for (int i = 0; i < rows; i++)
      tile_step(nv, half, unpacked ? at->a[i / 3][p + i % 3 * a_row] : at->a[0][p + i * A_STRIDE],
                row, acc[i]);
    if ((unpacked || !FETCH_B) && p % STEPS_OF_LINE == 0)
      __builtin_prefetch(at->following + p / STEPS_OF_LINE * EXT_PANEL, 0, 3);
    if (FETCH_B) __builtin_prefetch(at->next + p * EXT_PANEL, 0, 2);
  }
  at->a[0] += steps;
  if (unpacked) {
    EXT_UNROLL
    for (int i = 1; i < GROUPS; i++) at->a[i] += steps;
  }
  at->b += steps * EXT_PANEL;
  at->next += steps * EXT_PANEL;
  if (unpacked || !FETCH_B) at->following += ceil_div(steps, STEPS_OF_LINE) * EXT_PANEL;
}

/* A run of kc steps: one by one until whole rounds are left. */
EXT_INLINE void tile_run_of_k(const int rows, const int nv, const int half, const int unpacked,
                              const gemm_tile* t, tile_place* at, vf acc[MR][NV]) {
  const int64_t a_row = t->a_row, b_step = VL == EXT_PANEL ? t->b_step : VL;
  for (int64_t p = t->kc % TILE_ROUND; p > 0; p--)
    tile_steps(1, rows, nv, half, unpacked, a_row, b_step, at, acc);
  for (int64_t p = t->kc / TILE_ROUND; p > 0; p--)
    tile_steps(TILE_ROUND, rows, nv, half, unpacked, a_row, b_step, at, acc);
}

EXT_INLINE void tile_loop(const int rows, const int nv, const int half, const gemm_tile* t,
                          vf acc[MR][NV]) {
  tile_place at = {.a = {t->a}, .b = t->b, .next = t->next};
  at.following = t->next ? t->next : t->b;
  tile_run_of_k(rows, nv, half, 0, t, &at, acc);
}

/* The same with A as it lies. */
EXT_INLINE void tile_unpacked_loop(const int rows, const int nv, const int half, const gemm_tile* t,
                                   vf acc[MR][NV]) {
  const int64_t a_row = t->a_row, ahead = rows * a_row;
  tile_place at = {.b = t->b, .next = t->next, .following = t->next};
  const float* line = t->a;
  for (int64_t h = t->taps_h; h > 0; h--, line += t->a_line, at.b += t->b_skip * EXT_PANEL) {
    const float* tap = line;
    for (int64_t w = t->taps_w; w > 0; w--, tap += t->a_tap) {
      EXT_UNROLL
      for (int i = 0; i < GROUPS; i++) at.a[i] = tap + 3 * i * a_row;
      /* The next tile's rows come next, most often. */
      if (FETCH_B || !t->next) at.following = tap + ahead;
      tile_run_of_k(rows, nv, half, 1, t, &at, acc);
    }
  }
}

#endif /* EXT_LANE_FMA */

/* All parameters but t are constants. */
EXT_INLINE void tile_body(const int rows, const int nv, const int half, const int unpacked,
                          const gemm_tile* t) {
  vf acc[MR][NV];
  const int full = t->columns == nv * VL;
  tile_fetch(rows, nv, t);
  if (full)
    tile_begin(rows, nv, 1, t, acc);
  else
    tile_begin(rows, nv, 0, t, acc);
  if (unpacked)
    tile_unpacked_loop(rows, nv, half, t, acc);
  else
    tile_loop(rows, nv, half, t, acc);
  /* The tail reads *t anew.  Else the addresses that the prefetches computed would be kept for it
   * across the loop, in vector registers, and push a row of B out onto the stack. */
  __asm__("" : "+r"(t) : : "memory");
  if (full)
    tile_tail(rows, nv, 1, t, acc);
  else
    tile_tail(rows, nv, 0, t, acc);
}

#define EXT_TILE(rows, kind, unpacked)            \
  static void kind##_##rows(const gemm_tile* t) { \
    tile_body(rows, NV, 0, unpacked, t);          \
  }
#define EXT_TILE_ENTRY(rows, kind, unpacked) kind##_##rows,

/* Defines the functions of a kind, and the table `name` of them. */
#if defined(EXT_HALF_VECTORS)
#define EXT_TILE_8(rows, kind, unpacked)            \
  static void kind##_8_##rows(const gemm_tile* t) { \
    tile_body(rows, 1, 1, unpacked, t);             \
  }
#define EXT_TILE_16(rows, kind, unpacked)            \
  static void kind##_16_##rows(const gemm_tile* t) { \
    tile_body(rows, 1, 0, unpacked, t);              \
  }
#define EXT_TILE_24(rows, kind, unpacked)            \
  static void kind##_24_##rows(const gemm_tile* t) { \
    tile_body(rows, 2, 1, unpacked, t);              \
  }
#define EXT_TILE_ENTRY_8(rows, kind, unpacked) kind##_8_##rows,
#define EXT_TILE_ENTRY_16(rows, kind, unpacked) kind##_16_##rows,
#define EXT_TILE_ENTRY_24(rows, kind, unpacked) kind##_24_##rows,
#define EXT_TILE_FUNCTIONS(name, kind, unpacked)               \
  EXT_ROWS(EXT_TILE_8, kind, unpacked)                         \
  EXT_ROWS(EXT_TILE_16, kind, unpacked)                        \
  EXT_ROWS(EXT_TILE_24, kind, unpacked)                        \
  EXT_ROWS(EXT_TILE, kind, unpacked)                           \
  const gemm_tile_function EXT_NAME(name)[TILE_WIDTHS][MR] = { \
      {EXT_ROWS(EXT_TILE_ENTRY_8, kind, unpacked)},            \
      {EXT_ROWS(EXT_TILE_ENTRY_16, kind, unpacked)},           \
      {EXT_ROWS(EXT_TILE_ENTRY_24, kind, unpacked)},           \
      {EXT_ROWS(EXT_TILE_ENTRY, kind, unpacked)}};
#else
#define EXT_TILE_FUNCTIONS(name, kind, unpacked)               \
  EXT_ROWS(EXT_TILE, kind, unpacked)                           \
  const gemm_tile_function EXT_NAME(name)[TILE_WIDTHS][MR] = { \
      {EXT_ROWS(EXT_TILE_ENTRY, kind, unpacked)}};
#endif

#endif /* EXT_GEMM_MICROKERNEL_H_ */
