/*
 * y[i][j] = tail(c[i][j] + sum_p a[i][p] * b[p][j]),  i < rows <= MR, j < columns <= TILE_N
 *
 * with A packed: rows of A_STRIDE floats.  See gemm_microkernel.h; every product of fp32 panels
 * calls these.
 */
#include "gemm_microkernel.h"

EXT_TILE_FUNCTIONS(ext_packed_tiles, packed_tile, 0)
