/*
 * y[i][j] = tail(c[i][j] + sum_p a[i][p] * b[p][j]),  i < rows <= MR, j < columns <= TILE_N
 *
 * with A where it lies.  See gemm_microkernel.h; every product of fp32 panels calls these.
 */
#include "gemm_microkernel.h"

EXT_TILE_FUNCTIONS(ext_unpacked_tiles, unpacked_tile, 1)
