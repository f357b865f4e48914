/* y[b][i][j] = requantise(sum_p (a[b][i][p] - a_zero) b[p][j]) over up to 4 batch axes of a. */
#include "qgemm.h"

#if defined(EXT_UNTILED)
int EXT_UNTILED_NAME(ext_qmatmul)(const ext_matmul_params* p, ext_dtype a_dtype, int32_t a_zero,
                                  const void* a, const int8_t* b, const ext_requantise* e, void* y);
#endif

int EXT_NAME(ext_qmatmul)(const ext_matmul_params* p, ext_dtype a_dtype, int32_t a_zero,
                          const void* a, const int8_t* b, const ext_requantise* e, void* y) {
  if (p->batch_ndim < 0 || p->batch_ndim > 4) return EXT_ERR_ARGUMENT;
#if defined(EXT_UNTILED)
  if (!tiles_pay(p->m, p->k)) return EXT_UNTILED_NAME(ext_qmatmul)(p, a_dtype, a_zero, a, b, e, y);
#endif
  const qgemm_matrix rows = {a, p->k, p->a_row, p->a_col};
  ext_qgemm g = {
      .m = p->m, .n = p->n, .panels = b, .y = y, .y_row = p->y_row, .batch_ndim = p->batch_ndim};
  EXT_NAME(ext_qgemm_rows)(&g, &rows, a_dtype);
  for (int d = 0; d < p->batch_ndim; d++) {
    if (p->b_batch[d]) return EXT_ERR_ARGUMENT;
    g.batch[d] = p->batch[d];
    g.a_batch[d] = p->a_batch[d];
    g.y_batch[d] = p->y_batch[d];
    g.residual_batch[d] = p->residual_batch[d];
  }
  int status = EXT_NAME(ext_qgemm_plan)(&g, a_dtype, a_zero, e);
  return status ? status : EXT_NAME(ext_qgemm_run)(&g);
}

EXT_DISPATCH(ext_qmatmul,
             (const ext_matmul_params* p, ext_dtype a_dtype, int32_t a_zero, const void* a,
              const int8_t* b, const ext_requantise* e, void* y),
             (p, a_dtype, a_zero, a, b, e, y))
