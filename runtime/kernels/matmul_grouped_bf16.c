/* Rows of bf16 operands, each by the matrix of its group (matmul_grouped.h). */
#include "bgemm.h"
#include "matmul_grouped.h"

int EXT_NAME(ext_matmul_bf16)(const ext_matmul_params* p, const ext_storage* s, const void* a,
                              const uint16_t* b, const ext_epilogue* e, void* y);

typedef struct {
  const ext_storage* s;
  const void* a;
  const uint16_t* b;
  void* y;
} grouped_job;

static int product(const void* context, const ext_matmul_params* q, int64_t group, int64_t first) {
  const grouped_job* job = context;
  const uint16_t* b = job->b + group * ceil_div(q->n, EXT_PANEL) * ceil_div(q->k, 2) * BPAIR;
  const void* a = stored_at(job->a, job->s->x, first * q->a_row);
  void* y = (void*)stored_at(job->y, job->s->y, first * q->y_row);
  return EXT_NAME(ext_matmul_bf16)(q, job->s, a, b, NULL, y);
}

int EXT_NAME(ext_matmul_grouped_bf16)(const ext_matmul_params* p, const ext_storage* s,
                                      int64_t groups, const int64_t* group, const void* a,
                                      const uint16_t* b, void* y) {
  if (check_storage(s, NULL)) return EXT_ERR_ARGUMENT;
  const grouped_job job = {s, a, b, y};
  return grouped_rows(p, groups, group, s->y == EXT_BFLOAT16 ? 2 : 4, y, product, &job);
}

EXT_DISPATCH(ext_matmul_grouped_bf16,
             (const ext_matmul_params* p, const ext_storage* s, int64_t groups,
              const int64_t* group, const void* a, const uint16_t* b, void* y),
             (p, s, groups, group, a, b, y))
