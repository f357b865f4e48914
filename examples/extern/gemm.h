/* A matrix product, to be called from TVM. */
#ifndef GEMM_H_
#define GEMM_H_

#include <stdint.h>

/* c[m][n] = sum over k of a[m][k] * b[k][n]
 *
 * byoc: a=input[m,k] b=weight[k,n] c=output[m,n] m,n,k=size op=matmul
 */
void my_gemm(const float* a, const float* b, float* c, int m, int n, int k);

#endif
