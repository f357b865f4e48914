/*
 * The greatest or the mean of a window of an image, channels last: `rows` of `taps` elements each.
 *
 * Vectorised over channels, BLOCK vectors at a time.
 */
#ifndef EXT_POOL_WINDOW_H_
#define EXT_POOL_WINDOW_H_

#include "../simd/bf16_pairs.h"

enum { BLOCK = 4 };
/* Elements read by one task at least, some ten microseconds. */
static const int64_t TASK_READS = 1 << 16;
/* What a maximum begins with: the least number, not -inf, so that a window of padding alone, or of
 * -inf alone, has the value that ONNX Runtime, TVM and oneDNN give it. */
static const float LOWEST = -3.402823466e+38f, LOWEST_BF16 = -3.3895313892515355e+38f;

/* VL elements, or the first `lanes`, as fp32; `narrow` (a constant): they are bf16. */
EXT_INLINE vf load(const int narrow, const void* p, int64_t lanes) {
  if (narrow) return vbf_widen(lanes == VL ? vbf_load(p) : vbf_load_n(p, lanes));
  return lanes == VL ? vf_load(p) : vf_load_n(p, lanes);
}

EXT_INLINE void store(const int narrow, void* p, vf x, int64_t lanes) {
  if (narrow && lanes == VL)
    vbf_store(p, vbf_round(x));
  else if (narrow)
    vbf_store_n(p, vbf_round(x), lanes);
  else if (lanes == VL)
    vf_store(p, x);
  else
    vf_store_n(p, x, lanes);
}

/* One window of `vectors` vectors of channels, a constant, or of the first `lanes` of one; x is its
 * corner.  Steps are in elements. */
EXT_INLINE void window(const int is_max, const int narrow, const int vectors, int64_t lanes,
                       const char* x, int64_t rows, int64_t row_step, int64_t taps,
                       int64_t tap_step, float divisor, char* y) {
  const int64_t size = narrow ? 2 : 4;
  vf acc[BLOCK];
  EXT_UNROLL
  for (int v = 0; v < vectors; v++)
    acc[v] = vf_set1(!is_max ? 0.0f : narrow ? LOWEST_BF16 : LOWEST);
  for (int64_t i = 0; i < rows; i++) {
    const char* tap = x + i * row_step * size;
    for (int64_t j = 0; j < taps; j++, tap += tap_step * size) {
      EXT_UNROLL
      for (int v = 0; v < vectors; v++) {
        vf value = load(narrow, tap + v * VL * size, lanes);
        acc[v] = is_max ? vf_max_nan(acc[v], value) : acc[v] + value;
      }
    }
  }
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    if (!is_max) acc[v] = acc[v] / vf_set1(divisor);
    store(narrow, y + v * VL * size, acc[v], lanes);
  }
}

/* All channels of a window. */
EXT_INLINE void channels_of(const int is_max, const int narrow, int64_t channels, const char* x,
                            int64_t rows, int64_t row_step, int64_t taps, int64_t tap_step,
                            float divisor, char* y) {
  const int64_t size = narrow ? 2 : 4;
  int64_t c = 0;
  for (; c + BLOCK * VL <= channels; c += BLOCK * VL)
    window(is_max, narrow, BLOCK, VL, x + c * size, rows, row_step, taps, tap_step, divisor,
           y + c * size);
  for (; c < channels; c += VL)
    window(is_max, narrow, 1, i64_min(VL, channels - c), x + c * size, rows, row_step, taps,
           tap_step, divisor, y + c * size);
}

#endif /* EXT_POOL_WINDOW_H_ */
