/* Rows of fp32, each by the matrix of its group (matmul_grouped.h). */
#include "matmul_grouped.h"

int EXT_NAME(ext_matmul_packed)(const ext_matmul_params* p, const float* a, const float* b,
                                const ext_epilogue* e, float* y);

typedef struct {
  const float *a, *b;
  float* y;
} grouped_job;

static int product(const void* context, const ext_matmul_params* q, int64_t group, int64_t first) {
  const grouped_job* job = context;
  const float* b = job->b + group * ceil_div(q->n, EXT_PANEL) * EXT_PANEL * q->k;
  return EXT_NAME(ext_matmul_packed)(q, job->a + first * q->a_row, b, NULL,
                                     job->y + first * q->y_row);
}

int EXT_NAME(ext_matmul_grouped)(const ext_matmul_params* p, int64_t groups, const int64_t* group,
                                 const float* a, const float* b, float* y) {
  const grouped_job job = {a, b, y};
  return grouped_rows(p, groups, group, sizeof *y, (char*)y, product, &job);
}

EXT_DISPATCH(ext_matmul_grouped,
             (const ext_matmul_params* p, int64_t groups, const int64_t* group, const float* a,
              const float* b, float* y),
             (p, groups, group, a, b, y))
