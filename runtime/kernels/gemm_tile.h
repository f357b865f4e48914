/*
 * gemm_tile.h - the microkernel: a tile of y in registers.
 *
 *   y[i][j] = tail(c[i][j] + sum_p a[i][p] * b[p][j]),  i < rows <= MR, j < columns <= TILE_N
 */
#ifndef EXT_GEMM_TILE_H_
#define EXT_GEMM_TILE_H_

#include "activation.h"
#include "gemm.h"

typedef struct {
  const float* a; /* packed rows, A_STRIDE apart, or rows where they lie: see `a_row` */
  const float* b; /* row p at b + p EXT_PANEL; vector v of a row at + v b_step */
  int64_t b_step;
  const float* next; /* lines of B that are wanted soon: they go to L2 meanwhile; see FETCH_B */
  int64_t kc;
  int64_t columns;
  float* y;
  int64_t y_row;
  const float* finished; /* where the result is written in the end: y, or later than this tile */
  int64_t finished_row;
  const float* c; /* NULL, or what earlier blocks of K summed up; may be y */
  int64_t c_row;
  const float* bias;     /* NULL or [columns]; the sums begin with it */
  const float* residual; /* NULL or a tile; may be y */
  int64_t residual_row;
  int residual_is_factor;
  int clamp; /* y = min(max(v, low), high) */
  float low, high;
  /* Where A is not packed: rows are a_row apart, and K is taps_h x taps_w runs of kc floats, a_line
   * and a_tap apart.  Behind taps_w runs b_skip rows of B are left out. */
  int64_t a_row, a_line, a_tap, taps_h, taps_w, b_skip;
} gemm_tile;

/*
 * What is fetched ahead.  Prefetches take the places of loads: with few rows they would cost more
 * than they bring (on Zen 3, 6 x 2 tiles, products of 512 to 3072 took 1.08 times as long).
 * With FETCH_B each step asks for a line of `next`, kc of them in all; of an A that is not packed,
 * a line comes for as many steps as the rows of a tile take one from memory, STEPS_OF_LINE.  Else
 * there is one prefetch in so many steps: of a line of `next`, or, where that is NULL, of A.
 */
#if defined(EXT_LANE_FMA)
enum { FETCH_B = 1 };
#else
enum { FETCH_B = TILE_N > EXT_PANEL };
#endif
/*
 * Steps of K that one round of a loop takes.  On Intel's cores what counts and moves pointers takes
 * ports from multiply-adds: rounds of two run products of 512 to 2048 and of BERT's shapes at 162
 * to 177 GFLOP/s of a Granite Rapids, and single steps at 150 to 164.  Rounds of four keep sums in
 * memory, and are slower.
 */
enum { TILE_ROUND = 2 };
enum { STEPS_OF_LINE = 16 / MR < TILE_ROUND ? 16 / MR : TILE_ROUND };

/* `next` of a tile without one. */
EXT_INLINE const float* nothing_next(const float* b) {
  return FETCH_B ? b : NULL;
}

/* `next` of micropanel i of some that are multiplied by one tile, b, before the one of columns
 * [begin, end) of the panels at `panels`, `size` floats each: the first ones fetch what of its
 * panels b has not, each as much as it has prefetches for. */
EXT_INLINE const float* next_of(int64_t i, int64_t kc, const float* panels, int64_t size,
                                int64_t begin, int64_t end, const float* b) {
  const int64_t lines = i64_max(1, FETCH_B ? kc : ceil_div(kc, STEPS_OF_LINE));
  const int64_t shares = i64_max(1, ceil_div(kc, lines));
  const int64_t panel = ceil_div(begin, EXT_PANEL) + i / shares;
  if (panel * EXT_PANEL >= end) return nothing_next(b);
  return panels + panel * size + i % shares * lines * EXT_PANEL;
}

/* Columns of tiles that have functions of their own: these, twice as many, and so on to TILE_N;
 * without half vectors TILE_N alone. */
#if defined(EXT_HALF_VECTORS)
enum { TILE_STEP = VL / 2, TILE_WIDTHS = TILE_N / TILE_STEP };
#else
enum { TILE_STEP = VL, TILE_WIDTHS = 1 };
#endif

typedef void (*gemm_tile_function)(const gemm_tile* t);

/* By width and rows; of an A that is packed, or is not. */
extern const gemm_tile_function EXT_LEVEL_NAME(ext_packed_tiles)[TILE_WIDTHS][MR];
extern const gemm_tile_function EXT_LEVEL_NAME(ext_unpacked_tiles)[TILE_WIDTHS][MR];

/* The function for a tile of so many rows and columns. */
EXT_INLINE gemm_tile_function tile_function(const int packed, int64_t rows, int64_t columns) {
  const int64_t width = TILE_WIDTHS > 1 ? (columns - 1) / TILE_STEP : 0;
  return packed ? EXT_LEVEL_NAME(ext_packed_tiles)[width][rows - 1]
                : EXT_LEVEL_NAME(ext_unpacked_tiles)[width][rows - 1];
}

/* Runs a tile of y with its whole epilogue: in registers where that is a clamp, else by way of a
 * scratch tile.  `residual` is NULL or the tile's corner; t->clamp says which. */
EXT_INLINE void tile_run(gemm_tile_function run, gemm_tile* t, int64_t rows, const ext_epilogue* e,
                         const float* residual, float* y, int64_t y_row) {
  t->finished = t->y = y;
  t->finished_row = t->y_row = y_row;
  t->residual = t->clamp ? residual : NULL;
  t->residual_row = e->residual_stride;
  t->residual_is_factor = e->residual_is_factor;
  if (t->clamp) {
    run(t);
    return;
  }
  _Alignas(EXT_ALIGN) float scratch[MR * TILE_N];
  int64_t width = ceil_div(t->columns, VL) * VL;
  if (t->columns < width) zero_run(scratch, rows * width);
  t->y = scratch;
  t->y_row = width;
  run(t);
  EXT_NAME(ext_finish_tile)(e, rows, t->columns, scratch, width, residual, e->residual_stride, y,
                            y_row);
}

#endif /* EXT_GEMM_TILE_H_ */
