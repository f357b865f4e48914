/*
 * y[n][oh][ow][o] = epilogue(sum x[n][ih][iw][c] * w[c][o][kh][kw]),
 *   oh = ih sh + kh dh - top, ow = iw sw + kw dw - left
 *
 * First a matrix product per group: rows are input pixels, columns (kh, kw, o), so that every input
 * pixel has the patch that it adds to y.  Then each output pixel gathers what the patches have for
 * it, and the epilogue follows; no two threads write the same pixel.
 */
#include "activation.h"
#include "gemm.h"

/* Floats that one task gathers at least: some ten microseconds. */
static const int64_t TASK_FLOATS = 1 << 15;

typedef struct {
  const ext_conv2d_params* p;
  ext_epilogue e;
  int64_t patch;        /* floats of one input pixel's patches: groups x taps x channels */
  int64_t channels;     /* outputs of one group */
  const float* patches; /* [pixel][group][tap][channels] */
  float* y;
} transpose_job;

static void add_run(float* y, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) vf_store(y + i, vf_load(y + i) + vf_load(x + i));
  if (i < n) vf_store_n(y + i, vf_load_n(y + i, n - i) + vf_load_n(x + i, n - i), n - i);
}

/* Adds what input pixel `patch` has for a tap to an output pixel, all groups. */
static void add_tap(const transpose_job* job, const float* patch, int64_t tap, float* y) {
  const ext_conv2d_params* p = job->p;
  int64_t group_floats = job->patch / p->groups;
  for (int64_t g = 0; g < p->groups; g++)
    add_run(y + g * job->channels, patch + g * group_floats + tap * job->channels, job->channels);
}

/* The input position whose tap k falls on output position o, or -1. */
EXT_INLINE int64_t source(int64_t o, int64_t pad, int64_t k, int64_t dilation, int64_t stride,
                          int64_t size) {
  int64_t at = o + pad - k * dilation;
  return at < 0 || at % stride || at / stride >= size ? -1 : at / stride;
}

static void gather_pixel(const transpose_job* job, int64_t n, int64_t oh, int64_t ow, float* y) {
  const ext_conv2d_params* p = job->p;
  if (job->e.bias)
    memcpy(y, job->e.bias, (size_t)p->out_c * sizeof *y);
  else
    zero_run(y, p->out_c);
  for (int64_t kh = 0; kh < p->kernel_h; kh++) {
    int64_t ih = source(oh, p->pad_top, kh, p->dilation_h, p->stride_h, p->in_h);
    if (ih < 0) continue;
    for (int64_t kw = 0; kw < p->kernel_w; kw++) {
      int64_t iw = source(ow, p->pad_left, kw, p->dilation_w, p->stride_w, p->in_w);
      if (iw < 0) continue;
      const float* patch = job->patches + ((n * p->in_h + ih) * p->in_w + iw) * job->patch;
      add_tap(job, patch, kh * p->kernel_w + kw, y);
    }
  }
}

static int gather_rows(void* context, int64_t begin, int64_t end) {
  const transpose_job* job = context;
  const ext_conv2d_params* p = job->p;
  const ext_epilogue* e = &job->e;
  for (int64_t row = begin; row < end; row++) {
    for (int64_t ow = 0; ow < p->out_w; ow++) {
      int64_t pixel = row * p->out_w + ow;
      float* y = job->y + pixel * p->y_stride;
      gather_pixel(job, row / p->out_h, row % p->out_h, ow, y);
      EXT_NAME(ext_activate)(&e->before, p->out_c, y, y);
      if (e->residual) add_run(y, e->residual + pixel * e->residual_stride, p->out_c);
      EXT_NAME(ext_activate)(&e->after, p->out_c, y, y);
    }
  }
  return EXT_OK;
}

int EXT_NAME(ext_conv2d_transpose)(const ext_conv2d_params* p, const float* x, const float* w,
                                   const ext_epilogue* e, float* y) {
  if (p->groups < 1 || p->in_c % p->groups || p->out_c % p->groups) return EXT_ERR_ARGUMENT;
  if (p->stride_h < 1 || p->stride_w < 1) return EXT_ERR_ARGUMENT;
  int64_t outputs = p->batch * p->out_h * p->out_w * p->out_c;
  if (outputs <= 0) return EXT_OK;
  int64_t taps = p->kernel_h * p->kernel_w, pixels = p->batch * p->in_h * p->in_w;
  transpose_job job = {.p = p, .y = y, .channels = p->out_c / p->groups};
  if (e) job.e = *e;
  job.patch = taps * p->out_c;
  float* patches = ext_workspace_alloc((size_t)(pixels * job.patch) * sizeof(float));
  if (!patches) return EXT_ERR_MEMORY;
  job.patches = patches;
  ext_gemm g = {.m = pixels,
                .n = taps * job.channels,
                .k = p->in_c / p->groups,
                .a = x,
                .a_row = p->x_stride,
                .panels = w,
                .y = patches,
                .y_row = job.patch,
                .batch_ndim = p->groups > 1};
  g.batch[0] = p->groups;
  g.a_batch[0] = g.k;
  g.b_batch[0] = ceil_div(g.n, EXT_PANEL) * EXT_PANEL * g.k;
  g.y_batch[0] = g.n;
  int status = EXT_NAME(ext_gemm_run)(&g);
  int64_t row_floats = outputs / (p->batch * p->out_h);
  if (!status)
    status = ext_parallel_for(p->batch * p->out_h, i64_max(1, TASK_FLOATS / row_floats),
                              gather_rows, &job);
  ext_workspace_free(patches);
  return status;
}

EXT_DISPATCH(ext_conv2d_transpose,
             (const ext_conv2d_params* p, const float* x, const float* w, const ext_epilogue* e,
              float* y),
             (p, x, w, e, y))
