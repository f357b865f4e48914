/* Internal: the products of matmul_bf16 and matmul_bf16x3 as the loops of bgemm.h take them. */
#ifndef EXT_BGEMM_MATMUL_H_
#define EXT_BGEMM_MATMUL_H_

#include "bgemm.h"

typedef struct {
  const void* a;
  ext_dtype dtype;
  int64_t a_row, a_col;
} strided_rows;

/* Columns of a are apart: reads them one after the other. */
static void pack_strided(const void* source, int64_t offset, int64_t row, int64_t rows, int64_t k0,
                         int64_t kc, ba* dst, int64_t stride) {
  const strided_rows* s = source;
  offset += row * s->a_row + k0 * s->a_col;
  for (int64_t k = 0; k < kc; k++)
    for (int64_t r = 0; r < rows; r++)
      ba_run(s->dtype, dst + r * stride + k,
             stored_at(s->a, s->dtype, offset + k * s->a_col + r * s->a_row), 1);
}

static int multiply(const ext_matmul_params* p, const ext_storage* s, const void* a,
                    const uint16_t* b, const ext_epilogue* e, void* y) {
  if (p->batch_ndim < 0 || p->batch_ndim > 4 || check_storage(s, e)) return EXT_ERR_ARGUMENT;
  strided_rows rows = {a, s->x, p->a_row, p->a_col};
  ext_bgemm g = {.m = p->m,
                 .n = p->n,
                 .k = p->k,
                 .s = *s,
                 .pack = p->a_col == 1 ? NULL : pack_strided,
                 .source = &rows,
                 .a = a,
                 .a_row = p->a_row,
                 .panels = b,
                 .y = y,
                 .y_row = p->y_row,
                 .epilogue = e ? *e : (ext_epilogue){0},
                 .batch_ndim = p->batch_ndim};
  for (int d = 0; d < p->batch_ndim; d++) {
    g.batch[d] = p->batch[d];
    g.a_batch[d] = p->a_batch[d];
    g.b_batch[d] = p->b_batch[d];
    g.y_batch[d] = p->y_batch[d];
    g.residual_batch[d] = p->residual_batch[d];
  }
  return EXT_BGEMM_RUN(&g);
}

#endif /* EXT_BGEMM_MATMUL_H_ */
