/* y[i] = i, i < n: the positions along an axis.  The compiler's own vectors do. */
#include "../simd/simd.h"

#define EXT_FILL(type)                                    \
  do {                                                    \
    type* restrict numbers = y;                           \
    for (int64_t i = 0; i < n; i++) numbers[i] = (type)i; \
  } while (0)

int EXT_NAME(ext_arange)(ext_dtype dtype, int64_t n, void* y) {
  switch (dtype) {
    case EXT_FLOAT32: EXT_FILL(float); return EXT_OK;
    case EXT_INT32: EXT_FILL(int32_t); return EXT_OK;
    case EXT_INT64: EXT_FILL(int64_t); return EXT_OK;
    default: return EXT_ERR_ARGUMENT;
  }
}

EXT_DISPATCH(ext_arange, (ext_dtype dtype, int64_t n, void* y), (dtype, n, y))
