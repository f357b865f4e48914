/* y[o][j][i] = x[o][indices[j]][i]: rows of an embedding table, mostly. */
#include "../simd/simd.h"

/* Bytes of one task at least: some ten microseconds. */
static const int64_t TASK_BYTES = 1 << 17;

typedef struct {
  const ext_take_params* p;
  const char* x;
  const void* indices;
  char* y;
} take_job;

/* The row of x that index j means, or -1. */
static int64_t row_of(const take_job* job, int64_t j) {
  const ext_take_params* p = job->p;
  int64_t index = p->index_dtype == EXT_INT64 ? ((const int64_t*)job->indices)[j]
                                              : ((const int32_t*)job->indices)[j];
  if (index < 0) index += p->extent;
  return index < 0 || index >= p->extent ? -1 : index;
}

static int take_range(void* context, int64_t begin, int64_t end) {
  const take_job* job = context;
  const ext_take_params* p = job->p;
  int64_t size = p->element_size, bytes = p->inner * size;
  for (int64_t item = begin; item < end; item++) {
    int64_t row = row_of(job, item % p->count);
    if (row < 0) return EXT_ERR_INDEX;
    const char* x = job->x + (item / p->count * p->extent + row) * bytes;
    char* y = job->y + item * bytes;
    if (p->inner == 1 && size == 2)
      memcpy(y, x, 2);
    else if (p->inner == 1 && size == 4)
      memcpy(y, x, 4);
    else if (p->inner == 1 && size == 8)
      memcpy(y, x, 8);
    else
      memcpy(y, x, (size_t)bytes);
  }
  return EXT_OK;
}

int EXT_NAME(ext_take)(const ext_take_params* p, const void* x, const void* indices, void* y) {
  int64_t size = p->element_size;
  if (size != 1 && size != 2 && size != 4 && size != 8) return EXT_ERR_ARGUMENT;
  if (p->index_dtype != EXT_INT32 && p->index_dtype != EXT_INT64) return EXT_ERR_ARGUMENT;
  if (p->outer <= 0 || p->count <= 0) return EXT_OK;
  take_job job = {p, x, indices, y};
  int64_t bytes = i64_max(1, p->inner * size);
  return ext_parallel_for(p->outer * p->count, i64_max(1, TASK_BYTES / bytes), take_range, &job);
}

EXT_DISPATCH(ext_take, (const ext_take_params* p, const void* x, const void* indices, void* y),
             (p, x, indices, y))
