#include <stdint.h>

int plugin_matmul(const float* lhs, const float* rhs, float* output, int64_t m, int64_t n,
                  int64_t k);
