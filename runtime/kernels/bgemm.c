/* Products of bf16 matrices: bgemm_loops.h. */
#include "bgemm_loops.h"
