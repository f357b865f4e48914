/* y[i] = table[x[i]], i < size, for bytes. */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 16;

typedef struct {
  const uint8_t *x, *table;
  uint8_t* y;
} lookup_job;

static int lookup_range(void* context, int64_t begin, int64_t end) {
  const lookup_job* job = context;
  const uint8_t *x = job->x, *table = job->table;
  uint8_t* y = job->y;
  const int64_t step = (int64_t)sizeof(vx);
  int64_t i = begin;
  for (; i + step <= end; i += step) vx_store(y + i, vx_lookup(table, vx_load(x + i)));
  for (; i < end; i++) y[i] = table[x[i]];
  return EXT_OK;
}

int EXT_NAME(ext_lookup)(int64_t size, const void* x, const void* table, void* y) {
  lookup_job job = {x, table, y};
  return ext_parallel_for(size, TASK_ELEMENTS, lookup_range, &job);
}

EXT_DISPATCH(ext_lookup, (int64_t size, const void* x, const void* table, void* y),
             (size, x, table, y))
