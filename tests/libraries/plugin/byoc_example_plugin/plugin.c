#include "plugin.h"

int plugin_matmul(const float* lhs, const float* rhs, float* output, int64_t m, int64_t n,
                  int64_t k) {
  for (int64_t at = 0; at < m * n; ++at) {
    output[at] = 0;
    for (int64_t p = 0; p < k; ++p) output[at] += lhs[at / n * k + p] * rhs[p * n + at % n];
  }
  return 0;
}
