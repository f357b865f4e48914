/* y[b][i][j] = epilogue(sum_p a[b][i][p] b[b][p][j]) over up to 4 batch axes, of bf16 operands. */
#include "bgemm_matmul.h"

int EXT_NAME(ext_matmul_bf16)(const ext_matmul_params* p, const ext_storage* s, const void* a,
                              const uint16_t* b, const ext_epilogue* e, void* y) {
  return multiply(p, s, a, b, e, y);
}

EXT_DISPATCH(ext_matmul_bf16,
             (const ext_matmul_params* p, const ext_storage* s, const void* a, const uint16_t* b,
              const ext_epilogue* e, void* y),
             (p, s, a, b, e, y))
