/* Internal: matrix products with few rows or few columns. */
#ifndef EXT_GEMV_H_
#define EXT_GEMV_H_

#include "../simd/simd.h"

/* Whether ext_gemv_run is the faster way to compute the product. */
int EXT_NAME(ext_gemv_takes)(const ext_matmul_params* p, int packed);

/* ext_matmul, or ext_matmul_packed, of a product that ext_gemv_takes. */
int EXT_NAME(ext_gemv_run)(const ext_matmul_params* p, int packed, const float* a, const float* b,
                           const ext_epilogue* e, float* y);

#endif /* EXT_GEMV_H_ */
