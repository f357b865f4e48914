#include "conv2d.h"

int my_conv2d(const float* x, const float* weight, float* y, int64_t n, int64_t h, int64_t w,
              int64_t c, int64_t kh, int64_t kw, int64_t o, int64_t oh, int64_t ow,
              int64_t stride_h, int64_t stride_w, int64_t pad_top, int64_t pad_left) {
  if (stride_h <= 0 || stride_w <= 0) return 1;
  for (int64_t pixel = 0; pixel < n * oh * ow; ++pixel) {
    const float* image = x + pixel / (oh * ow) * h * w * c;
    const int64_t top = pixel / ow % oh * stride_h - pad_top;
    const int64_t left = pixel % ow * stride_w - pad_left;
    float* out = y + pixel * o;
    for (int64_t f = 0; f < o; ++f) out[f] = 0.0f;
    for (int64_t tap = 0; tap < kh * kw; ++tap) {
      const int64_t row = top + tap / kw, column = left + tap % kw;
      if (row < 0 || row >= h || column < 0 || column >= w) continue;
      for (int64_t d = 0; d < c; ++d) {
        const float value = image[(row * w + column) * c + d];
        for (int64_t f = 0; f < o; ++f) out[f] += value * weight[(tap * c + d) * o + f];
      }
    }
  }
  return 0;
}
