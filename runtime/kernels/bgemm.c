/* Products of bf16 matrices: bgemm_loops.h. */
#include "bgemm_loops.h"

bgemm_tile_function EXT_NAME(ext_bgemm_tile)(int64_t rows, int64_t vectors) {
  return btile_function(rows, vectors);
}
