/*
 * matmul_grouped.h - rows of A, each by the matrix of its group:
 *
 *   y[i][:] = a[i][:] b[group[i]],  i < m, or 0 where there is no such group
 *
 * Neighbouring rows of one group are one product, so that rows which are sorted by their groups, as
 * those of a mixture of experts are, read every matrix once.
 */
#ifndef EXT_MATMUL_GROUPED_H_
#define EXT_MATMUL_GROUPED_H_

#include "../simd/simd.h"

/* The product of the rows [first, first + q->m) with the matrix of a group. */
typedef int (*grouped_product)(const void* job, const ext_matmul_params* q, int64_t group,
                               int64_t first);

/* Elements of y have so many bytes. */
EXT_INLINE int grouped_rows(const ext_matmul_params* p, int64_t groups, const int64_t* group,
                            int64_t size, char* y, grouped_product product, const void* job) {
  ext_matmul_params q = *p;
  int status = p->batch_ndim == 0 ? EXT_OK : EXT_ERR_ARGUMENT;
  for (int64_t i = 0; i < p->m && !status; i += q.m) {
    const int64_t own = group[i];
    q.m = 1;
    while (i + q.m < p->m && group[i + q.m] == own) q.m++;
    if (own >= 0 && own < groups) {
      status = product(job, &q, own, i);
      continue;
    }
    for (int64_t r = i; r < i + q.m; r++) memset(y + r * p->y_row * size, 0, (size_t)(p->n * size));
  }
  return status;
}

#endif /* EXT_MATMUL_GROUPED_H_ */
