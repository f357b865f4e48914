/*
 * y[i] = f(a[i] b[i] + c[i]) over `shape`, strides 0 broadcast, y dense: one pass where a product
 * and a sum are two, as for scale and shift of a batch norm.  Runs, and the activation:
 * float_runs.h.
 */
#include "float_runs.h"

/* What a pass for each gives: rounded twice, so that a product beyond the greatest fp32 is infinite
 * whatever is added. */
EXT_INLINE vf apply(vf a, vf b, vf c) {
  return vf_keep(a * b) + c;
}

/* Steps of 1 (contiguous) or 0 (one value), constants. */
EXT_INLINE void span_of(const int a_step, const int b_step, const int c_step, int64_t n,
                        const float* a, const float* b, const float* c, float* y) {
  const vf none = vf_zero();
  const vf a_all = a_step ? none : vf_set1(*a), b_all = b_step ? none : vf_set1(*b);
  const vf c_all = c_step ? none : vf_set1(*c);
  int64_t i = 0;
  for (; i + VL <= n; i += VL)
    vf_store(y + i, apply(a_step ? vf_load(a + i) : a_all, b_step ? vf_load(b + i) : b_all,
                          c_step ? vf_load(c + i) : c_all));
  if (i == n) return;
  const vf u = a_step ? vf_load_n(a + i, n - i) : a_all;
  const vf v = b_step ? vf_load_n(b + i, n - i) : b_all;
  vf_store_n(y + i, apply(u, v, c_step ? vf_load_n(c + i, n - i) : c_all), n - i);
}

static void span(const void* context, int64_t n, const float* const* x, const int64_t* step,
                 float* y) {
  (void)context;
#define EXT_STEPS(a, b, c) \
  case 4 * a + 2 * b + c: span_of(a, b, c, n, x[0], x[1], x[2], y); return;
  switch (4 * step[0] + 2 * step[1] + step[2]) {
    EXT_STEPS(0, 0, 0)
    EXT_STEPS(0, 0, 1)
    EXT_STEPS(0, 1, 0)
    EXT_STEPS(0, 1, 1)
    EXT_STEPS(1, 0, 0)
    EXT_STEPS(1, 0, 1)
    EXT_STEPS(1, 1, 0)
    EXT_STEPS(1, 1, 1)
  }
#undef EXT_STEPS
}

int EXT_NAME(ext_multiply_add)(const ext_multiply_add_params* p, const float* a, const float* b,
                               const float* c, float* y) {
  const float_runs runs = {span, NULL, &p->activation, 3};
  const int64_t size = sizeof(float);
  broadcast_job job = {.run = float_run,
                       .run_rows = float_rows,
                       .context = &runs,
                       .operands = 3,
                       .sizes = {size, size, size},
                       .y_size = size,
                       .x = {a, b, c},
                       .y = y};
  const int64_t* strides[] = {p->a_strides, p->b_strides, p->c_strides};
  return broadcast(&job, p->ndim, p->shape, strides);
}

EXT_DISPATCH(ext_multiply_add,
             (const ext_multiply_add_params* p, const float* a, const float* b, const float* c,
              float* y),
             (p, a, b, c, y))
