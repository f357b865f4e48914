/* The clock around products of benchmarks.gemm_bf16, and those of oneDNN. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef int (*matmul_bf16)(const void* params, const void* storage, const void* a,
                           const uint16_t* b, const void* epilogue, void* y);
typedef int (*matmul_fp32)(const void* params, const float* a, const float* b, const void* epilogue,
                           float* y);

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of `calls` calls; negative where one fails. */
double byoc_time_bf16(matmul_bf16 f, const void* params, const void* storage, const void* a,
                      const uint16_t* b, const void* epilogue, void* y, long calls) {
  double begin = now();
  for (long i = 0; i < calls; ++i)
    if (f(params, storage, a, b, epilogue, y) != 0) return -1.0;
  return now() - begin;
}

double byoc_time_fp32(matmul_fp32 f, const void* params, const float* a, const float* b,
                      const void* epilogue, float* y, long calls) {
  double begin = now();
  for (long i = 0; i < calls; ++i)
    if (f(params, a, b, epilogue, y) != 0) return -1.0;
  return now() - begin;
}

#if defined(BYOC_ONEDNN)
#include <oneapi/dnnl/dnnl.h>

/* One product of bf16, with weights in the layout that oneDNN likes best. */
typedef struct {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t product;
  dnnl_memory_t weights;
  dnnl_exec_arg_t arguments[3];
} onednn_product;

#define TRY(call) \
  if ((call) != dnnl_success) return NULL

static dnnl_memory_t memory_of(const_dnnl_memory_desc_t desc, dnnl_engine_t engine, void* data) {
  dnnl_memory_t memory;
  TRY(dnnl_memory_create(&memory, desc, engine, data));
  return memory;
}

/* Turns plain weights into those of the primitive. */
static dnnl_memory_t reordered(const onednn_product* p, const_dnnl_memory_desc_t plain,
                               const_dnnl_memory_desc_t wanted, void* data) {
  dnnl_memory_t from = memory_of(plain, p->engine, data);
  dnnl_memory_t to = memory_of(wanted, p->engine, DNNL_MEMORY_ALLOCATE);
  dnnl_primitive_desc_t desc;
  dnnl_primitive_t reorder;
  if (!from || !to) return NULL;
  TRY(dnnl_reorder_primitive_desc_create(&desc, plain, p->engine, wanted, p->engine, NULL));
  TRY(dnnl_primitive_create(&reorder, desc));
  dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  TRY(dnnl_primitive_execute(reorder, p->stream, 2, arguments));
  TRY(dnnl_stream_wait(p->stream));
  dnnl_primitive_destroy(reorder);
  dnnl_primitive_desc_destroy(desc);
  dnnl_memory_destroy(from);
  return to;
}

/* y[m][n] = a[m][k] b[k][n], all bf16 and dense.  NULL where oneDNN cannot; never freed. */
void* byoc_onednn_product(long m, long n, long k, void* a, void* b, void* y) {
  onednn_product* p = calloc(1, sizeof *p);
  dnnl_memory_desc_t x, w, plain, result;
  dnnl_primitive_desc_t desc;
  const dnnl_dims_t a_dims = {m, k}, b_dims = {k, n}, y_dims = {m, n};
  if (!p) return NULL;
  TRY(dnnl_engine_create(&p->engine, dnnl_cpu, 0));
  TRY(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags));
  TRY(dnnl_memory_desc_create_with_tag(&x, 2, a_dims, dnnl_bf16, dnnl_ab));
  TRY(dnnl_memory_desc_create_with_tag(&w, 2, b_dims, dnnl_bf16, dnnl_format_tag_any));
  TRY(dnnl_memory_desc_create_with_tag(&plain, 2, b_dims, dnnl_bf16, dnnl_ab));
  TRY(dnnl_memory_desc_create_with_tag(&result, 2, y_dims, dnnl_bf16, dnnl_ab));
  TRY(dnnl_matmul_primitive_desc_create(&desc, p->engine, x, w, NULL, result, NULL));
  TRY(dnnl_primitive_create(&p->product, desc));
  const_dnnl_memory_desc_t wanted = dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
  p->weights = reordered(p, plain, wanted, b);
  p->arguments[0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, memory_of(x, p->engine, a)};
  p->arguments[1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, p->weights};
  p->arguments[2] = (dnnl_exec_arg_t){DNNL_ARG_DST, memory_of(result, p->engine, y)};
  return p->weights && p->arguments[0].memory && p->arguments[2].memory ? p : NULL;
}

double byoc_time_onednn(void* product, long calls) {
  onednn_product* p = product;
  double begin = now();
  for (long i = 0; i < calls; ++i)
    if (dnnl_primitive_execute(p->product, p->stream, 3, p->arguments) != dnnl_success) return -1.0;
  dnnl_stream_wait(p->stream);
  return now() - begin;
}
#endif
