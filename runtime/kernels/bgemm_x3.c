/* Products of fp32 matrices as sums of two bf16: bgemm_loops.h. */
#define EXT_PARTS 2
#include "bgemm_loops.h"
