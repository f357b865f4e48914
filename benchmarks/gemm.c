/* The clock around products of benchmarks.gemm: small ones take less than a call from Python. */
#include <stddef.h>
#include <time.h>

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

typedef struct {
  int batch, m, n, k;
  int transposed; /* B is stored as [N, K] */
  long step_b;    /* elements from one B to the next */
} product;

typedef int (*matmul)(const void* params, const float* a, const float* b, const void* epilogue,
                      float* y);
typedef void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                      const float* a, int lda, const float* b, int ldb, float beta, float* c,
                      int ldc);
typedef void (*sgemm_batch)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                            const float* a, int lda, int step_a, const float* b, int ldb,
                            int step_b, float beta, float* c, int ldc, int step_c, int count);
typedef void (*sgemv)(int order, int trans, int rows, int columns, float alpha, const float* a,
                      int lda, const float* x, int step_x, float beta, float* y, int step_y);

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of `calls` calls; negative where one fails. */
double byoc_time_matmul(matmul f, const void* params, const float* a, const float* b,
                        const void* epilogue, float* y, long calls) {
  double begin = now();
  for (long i = 0; i < calls; ++i)
    if (f(params, a, b, epilogue, y) != 0) return -1.0;
  return now() - begin;
}

double byoc_time_sgemm(sgemm f, const product* p, const float* a, const float* b, float* y,
                       long calls) {
  const int trans = p->transposed ? TRANSPOSED : PLAIN, ldb = p->transposed ? p->k : p->n;
  double begin = now();
  for (long i = 0; i < calls; ++i)
    for (int j = 0; j < p->batch; ++j)
      f(ROW_MAJOR, PLAIN, trans, p->m, p->n, p->k, 1.0f, a + (size_t)j * p->m * p->k, p->k,
        b + (size_t)j * p->step_b, ldb, 0.0f, y + (size_t)j * p->m * p->n, p->n);
  return now() - begin;
}

double byoc_time_sgemm_batch(sgemm_batch f, const product* p, const float* a, const float* b,
                             float* y, long calls) {
  const int trans = p->transposed ? TRANSPOSED : PLAIN, ldb = p->transposed ? p->k : p->n;
  double begin = now();
  for (long i = 0; i < calls; ++i)
    f(ROW_MAJOR, PLAIN, trans, p->m, p->n, p->k, 1.0f, a, p->k, p->m * p->k, b, ldb, (int)p->step_b,
      0.0f, y, p->n, p->m * p->n, p->batch);
  return now() - begin;
}

/* A single row times B, or A times a single column. */
double byoc_time_sgemv(sgemv f, const product* p, const float* a, const float* b, float* y,
                       long calls) {
  double begin = now();
  for (long i = 0; i < calls; ++i) {
    if (p->m == 1)
      f(ROW_MAJOR, p->transposed ? PLAIN : TRANSPOSED, p->transposed ? p->n : p->k,
        p->transposed ? p->k : p->n, 1.0f, b, p->transposed ? p->k : p->n, a, 1, 0.0f, y, 1);
    else
      f(ROW_MAJOR, PLAIN, p->m, p->k, 1.0f, a, p->k, b, 1, 0.0f, y, 1);
  }
  return now() - begin;
}
