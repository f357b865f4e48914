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
  const float* next; /* [kc][EXT_PANEL] of B that is wanted soon: goes to L2 meanwhile */
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
