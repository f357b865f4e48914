/*
 * qgemm_tile.h - the microkernel of 8-bit products: a tile of int32 sums in registers.
 *
 *   sum[i][j] = start[j] + sum_p a[i][p] * b[p][j],  i < rows <= QR, j < QTILE_N or QHALF_N
 *
 * which become y[i][j] = round(limit(sum factor[j] + shift[j])) + zero there, or are stored.
 *
 * qgemm_vectors.h has the sums in vectors, qgemm_tiles.h in AMX's tiles.
 */
#ifndef EXT_QGEMM_TILE_H_
#define EXT_QGEMM_TILE_H_

#include "qgemm.h"

/* Of the columns of a tile. */
typedef struct {
  _Alignas(EXT_ALIGN) int32_t start[QTILE_N];
  _Alignas(EXT_ALIGN) float factor[QTILE_N], shift[QTILE_N];
  int tame; /* whether all results, in steps of y, are far from the limits of int32 */
} qgemm_columns;

typedef struct {
  int is_signed; /* the x that a tile reads as it is */
  const qa* a;
  int64_t a_row;
  const int8_t* b; /* four rows of a panel; the next four follow; vector v at + v b_step */
  int64_t b_step;
  const int8_t* ends; /* of runs of B, with EXT_TILES: what is left of the last step of K */
  const int8_t* next; /* goes to L2 meanwhile, so many bytes for each four rows */
  int64_t next_step;
  int64_t groups;           /* of four rows of B, in a run of A */
  int64_t taps[2], skip[2]; /* runs, and elements of A between the end of one and the next */
  const qgemm_columns* columns;
  int64_t rows;
  int64_t a_high; /* elements of A to a tile's other half, with EXT_TILES */
  /* There, of a tile of several lines: those of a half, 0 where it has rows of one line alone; rows
   * of each, and rows of A from one to the next. */
  int64_t half_lines, line_rows, line_step;
  int finish; /* whether y is written, and else sums */
  const vx_steps* steps;
  uint8_t* y;
  int64_t y_row;
  int32_t* sums; /* [rows][width] */
  int64_t width;
} qgemm_tile;

typedef void (*qgemm_tile_function)(const qgemm_tile* t);

#if defined(EXT_TILES)
#include "qgemm_tiles.h"
#else
#include "qgemm_vectors.h"
#endif

#endif /* EXT_QGEMM_TILE_H_ */
