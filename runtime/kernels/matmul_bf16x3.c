/* y[b][i][j] = epilogue(sum_p a[b][i][p] b[b][p][j]) over up to 4 batch axes, of fp32 operands as
 * sums of two bf16. */
#define EXT_PARTS 2
#include "bgemm_matmul.h"

int EXT_NAME(ext_matmul_bf16x3)(const ext_matmul_params* p, const float* a, const uint16_t* b,
                                const ext_epilogue* e, float* y) {
  const ext_storage s = {EXT_FLOAT32, EXT_FLOAT32, EXT_FLOAT32};
  return multiply(p, &s, a, b, e, y);
}

EXT_DISPATCH(ext_matmul_bf16x3,
             (const ext_matmul_params* p, const float* a, const uint16_t* b, const ext_epilogue* e,
              float* y),
             (p, a, b, e, y))
