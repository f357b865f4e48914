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

/* The row of x that an index means, or -1. */
EXT_INLINE int64_t row_of(int64_t index, int64_t extent) {
  if (index < 0) index += extent;
  return index < 0 || index >= extent ? -1 : index;
}

/* Items [begin, end), `bytes` each, of indices of a type. */
#define EXT_TAKE(name, type)                                                                  \
  EXT_INLINE int name(const take_job* job, const int64_t bytes, int64_t begin, int64_t end) { \
    const int64_t count = job->p->count, extent = job->p->extent;                             \
    const type* indices = job->indices;                                                       \
    int64_t j = begin % count;                                                                \
    const char* from = job->x + begin / count * extent * bytes;                               \
    char* y = job->y + begin * bytes;                                                         \
    for (; begin < end; from += extent * bytes, j = 0)                                        \
      for (; j < count && begin < end; j++, begin++, y += bytes) {                            \
        const int64_t row = row_of(indices[j], extent);                                       \
        if (row < 0) return EXT_ERR_INDEX;                                                    \
        memcpy(y, from + row * bytes, (size_t)bytes);                                         \
      }                                                                                       \
    return EXT_OK;                                                                            \
  }
EXT_TAKE(take_int32, int32_t)
EXT_TAKE(take_int64, int64_t)

static int take_range(void* context, int64_t begin, int64_t end) {
  const take_job* job = context;
  const int64_t bytes = job->p->inner * job->p->element_size;
  const int is_long = job->p->index_dtype == EXT_INT64;
  /* Of single elements each copy is one instruction. */
  if (bytes == 2) return is_long ? take_int64(job, 2, begin, end) : take_int32(job, 2, begin, end);
  if (bytes == 4) return is_long ? take_int64(job, 4, begin, end) : take_int32(job, 4, begin, end);
  if (bytes == 8) return is_long ? take_int64(job, 8, begin, end) : take_int32(job, 8, begin, end);
  return is_long ? take_int64(job, bytes, begin, end) : take_int32(job, bytes, begin, end);
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
