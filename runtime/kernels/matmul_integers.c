/*
 * y[b][i][j] = sum_p a[b][i][p] b[b][p][j] of int32 or int64, over up to 4 batch axes.  Sums and
 * products that are too large wrap around.
 *
 * Plain: what networks multiply so is small, as one-hot rows times a table of positions.  Several
 * rows read a row of b together.
 */
#include "../simd/simd.h"

/* Multiply-adds of one task at least: some ten microseconds. */
static const int64_t TASK_MACS = 1 << 15;
/* Columns whose sums are kept beside each other, and rows that share what is read of b. */
enum { COLUMNS = 64, ROWS = 4 };

typedef struct {
  const ext_matmul_params* p;
  int64_t row_blocks, column_blocks;
  const void* a;
  const void* b;
  void* y;
} product_job;

typedef struct {
  int64_t a, b, y;       /* offsets */
  int64_t rows, columns; /* of the block */
} product_block;

static product_block block_of(const product_job* job, int64_t index) {
  const ext_matmul_params* p = job->p;
  int64_t j = index % job->column_blocks * COLUMNS;
  index /= job->column_blocks;
  int64_t i = index % job->row_blocks * ROWS;
  index /= job->row_blocks;
  product_block found = {i * p->a_row, j * p->b_col, i * p->y_row + j, i64_min(ROWS, p->m - i),
                         i64_min(COLUMNS, p->n - j)};
  for (int d = p->batch_ndim - 1; d >= 0; d--) {
    int64_t at = index % p->batch[d];
    index /= p->batch[d];
    found.a += at * p->a_batch[d];
    found.b += at * p->b_batch[d];
    found.y += at * p->y_batch[d];
  }
  return found;
}

/* Of unsigned numbers, which wrap around; `b_col` is a constant where columns are adjacent. */
#define EXT_PRODUCT_OF(bits)                                                           \
  EXT_INLINE void block_##bits(const product_job* job, const product_block* at,        \
                               const int64_t b_col) {                                  \
    const ext_matmul_params* p = job->p;                                               \
    const uint##bits##_t* a = (const uint##bits##_t*)job->a + at->a;                   \
    const uint##bits##_t* b = (const uint##bits##_t*)job->b + at->b;                   \
    uint##bits##_t* y = (uint##bits##_t*)job->y + at->y;                               \
    uint##bits##_t sums[ROWS][COLUMNS] = {{0}};                                        \
    for (int64_t k = 0; k < p->k; k++, b += p->b_row)                                  \
      for (int64_t r = 0; r < at->rows; r++) {                                         \
        uint##bits##_t factor = a[r * p->a_row + k * p->a_col];                        \
        for (int64_t c = 0; c < at->columns; c++) sums[r][c] += factor * b[c * b_col]; \
      }                                                                                \
    for (int64_t r = 0; r < at->rows; r++)                                             \
      for (int64_t c = 0; c < at->columns; c++) y[r * p->y_row + c] = sums[r][c];      \
  }                                                                                    \
  static int range_##bits(void* context, int64_t begin, int64_t end) {                 \
    const product_job* job = context;                                                  \
    for (int64_t index = begin; index < end; index++) {                                \
      product_block at = block_of(job, index);                                         \
      if (job->p->b_col == 1)                                                          \
        block_##bits(job, &at, 1);                                                     \
      else                                                                             \
        block_##bits(job, &at, job->p->b_col);                                         \
    }                                                                                  \
    return EXT_OK;                                                                     \
  }

EXT_PRODUCT_OF(32)
EXT_PRODUCT_OF(64)

int EXT_NAME(ext_matmul_integers)(ext_dtype dtype, const ext_matmul_params* p, const void* a,
                                  const void* b, void* y) {
  if (dtype != EXT_INT32 && dtype != EXT_INT64) return EXT_ERR_ARGUMENT;
  if (p->batch_ndim < 0 || p->batch_ndim > 4) return EXT_ERR_ARGUMENT;
  int64_t batches = 1;
  for (int d = 0; d < p->batch_ndim; d++) batches *= p->batch[d];
  if (batches <= 0 || p->m <= 0 || p->n <= 0) return EXT_OK;
  product_job job = {p, ceil_div(p->m, ROWS), ceil_div(p->n, COLUMNS), a, b, y};
  int64_t macs = i64_min(ROWS, p->m) * i64_min(COLUMNS, p->n) * i64_max(1, p->k);
  return ext_parallel_for(batches * job.row_blocks * job.column_blocks,
                          i64_max(1, TASK_MACS / macs), dtype == EXT_INT32 ? range_32 : range_64,
                          &job);
}

EXT_DISPATCH(ext_matmul_integers,
             (ext_dtype dtype, const ext_matmul_params* p, const void* a, const void* b, void* y),
             (dtype, p, a, b, y))
