/* c[i, j] = sum_p a[i, p] * b[p, j], added to what c holds if `accumulate`.
 *
 * a: [m, k], b: [k, n], c: [m, n], float32; rows are a_row, b_row, c_row elements apart, so that
 * each may be a tile of something larger. Returns 0, or 1 where rows of c would overlap.
 *
 * Every integer is an int32: call_extern passes what TVM has, without looking at this prototype,
 * and TVM's indices are int32 unless a shape says otherwise. */
#include <stdint.h>

int32_t doors_gemm(const float* a, int32_t a_row, const float* b, int32_t b_row, float* c,
                   int32_t c_row, int32_t m, int32_t n, int32_t k, int32_t accumulate) {
  if (m > 1 && c_row < n) return 1;
  for (int32_t i = 0; i < m; ++i) {
    float* row = c + (int64_t)i * c_row;
    for (int32_t j = 0; !accumulate && j < n; ++j) row[j] = 0;
    for (int32_t p = 0; p < k; ++p) {
      const float factor = a[(int64_t)i * a_row + p];
      const float* other = b + (int64_t)p * b_row;
      for (int32_t j = 0; j < n; ++j) row[j] += factor * other[j];
    }
  }
  return 0;
}
