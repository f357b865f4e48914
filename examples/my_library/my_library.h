/* A matrix product for fp32, row-major matrices. */
#include <stdint.h>

/* output[m, n] = lhs[m, k] * rhs[k, n] + bias[n], negative results replaced by 0 if `relu`.
 * bias may be NULL. Returns 0, or MY_BAD_SIZE. */
int my_gemm(const float* lhs, const float* rhs, const float* bias, int relu, float* output,
            int64_t m, int64_t n, int64_t k);

enum { MY_BAD_SIZE = 1 };
const char* my_status(int status); /* what a status of my_gemm means */
