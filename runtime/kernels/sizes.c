/* y[i] = sizes[i], i < count. */
#include "../simd/simd.h"

int EXT_NAME(ext_sizes)(const ext_sizes_params* p, int64_t* y) {
  if (p->count < 0 || p->count > EXT_MAX_DIMS) return EXT_ERR_ARGUMENT;
  for (int32_t i = 0; i < p->count; i++) y[i] = p->sizes[i];
  return EXT_OK;
}

EXT_DISPATCH(ext_sizes, (const ext_sizes_params* p, int64_t* y), (p, y))
