#include "wrong.h"

int wrong_matmul(const float* a, const float* b, float* y, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < k / 2; ++p) sum += a[i * k + p] * b[p * n + j];
      y[i * n + j] = sum;
    }
  }
  return 0;
}
