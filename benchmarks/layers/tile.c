/* c[i, j] += sum_p a[i, p] * b[p, j]: the microkernel of the tensorised convolution.
 *
 * a: [m, k], b: [k, n], c: [m, n], float32; rows are a_row, b_row, c_row elements apart. Tiles of
 * byoc_bench_tile_columns() columns and at most byoc_bench_tile_rows() rows are held in registers;
 * others are computed slowly. Compiled for the CPU that it is measured on. */
#include <stdint.h>

#ifdef __AVX512F__
enum { LANES = 16, ROWS = 14 };
#else
enum { LANES = 8, ROWS = 6 };
#endif
enum { VECTORS = 2, COLUMNS = VECTORS * LANES };

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 14")
#endif

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4)));

/* rows is a constant where this is called. */
static inline __attribute__((always_inline)) void registers(const float* a, int64_t a_row,
                                                            const float* b, int64_t b_row, float* c,
                                                            int64_t c_row, int rows, int32_t k) {
  vector sum[ROWS][VECTORS];
  UNROLL for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < VECTORS; ++v) sum[i][v] = *(const vector*)(c + i * c_row + v * LANES);
  }
  for (int32_t p = 0; p < k; ++p, b += b_row) {
    const vector left = *(const vector*)b, right = *(const vector*)(b + LANES);
    UNROLL for (int i = 0; i < rows; ++i) {
      sum[i][0] += a[i * a_row + p] * left;
      sum[i][1] += a[i * a_row + p] * right;
    }
  }
  UNROLL for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < VECTORS; ++v) *(vector*)(c + i * c_row + v * LANES) = sum[i][v];
  }
}

int32_t byoc_bench_tile_rows(void) {
  return ROWS;
}

int32_t byoc_bench_tile_columns(void) {
  return COLUMNS;
}

/* Every integer is an int32, as TVM's indices are. */
int32_t byoc_bench_tile(const float* a, int32_t a_row, const float* b, int32_t b_row, float* c,
                        int32_t c_row, int32_t m, int32_t n, int32_t k) {
#define CASE(M) \
  case M: registers(a, a_row, b, b_row, c, c_row, M, k); return 0;
  switch (n == COLUMNS ? m : 0) {
    CASE(1)
    CASE(2)
    CASE(3)
    CASE(4)
    CASE(5)
    CASE(6)
#ifdef __AVX512F__
    CASE(7)
    CASE(8)
    CASE(9)
    CASE(10)
    CASE(11)
    CASE(12)
    CASE(13)
    CASE(14)
#endif
  }
  for (int32_t i = 0; i < m; ++i) {
    for (int32_t p = 0; p < k; ++p) {
      const float factor = a[(int64_t)i * a_row + p];
      for (int32_t j = 0; j < n; ++j)
        c[(int64_t)i * c_row + j] += factor * b[(int64_t)p * b_row + j];
    }
  }
  return 0;
}
