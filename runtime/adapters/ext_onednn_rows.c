/* Pooling, softmax, normalisation and elementwise functions on oneDNN. */
#include "ext_onednn_core.h"

/* ------------------------------------------------------------------ pooling */

typedef struct {
  int64_t algorithm, batch, channels, in[2], out[2], x_stride, y_stride;
  dnnl_dims_t kernel, stride, dilation, before, after;
} pooling;

static dnnl_memory_desc_t draft_image(draft* d, slot where, int argument, const pooling* p,
                                      const int64_t* pixels, int64_t pixel) {
  const int64_t row = pixels[1] * pixel;
  const int64_t dims[] = {p->batch, p->channels, pixels[0], pixels[1]};
  const int64_t strides[] = {pixels[0] * row, 1, row, pixel};
  return onednn_tensor(d, where, argument, 4, dims, strides);
}

static void describe_pooling(draft* d, const request* call) {
  const pooling* p = call->shape;
  dnnl_memory_desc_t x = draft_image(d, SLOT_X, DNNL_ARG_SRC, p, p->in, p->x_stride);
  dnnl_memory_desc_t y = draft_image(d, SLOT_Y, DNNL_ARG_DST, p, p->out, p->y_stride);
  dnnl_primitive_attr_t attributes = onednn_attributes(d);
  if (d->status != EXT_OK) return;
  onednn_check(
      d, dnnl_pooling_forward_primitive_desc_create(
             &d->primitive, d->engine, dnnl_forward_inference, (dnnl_alg_kind_t)p->algorithm, x, y,
             p->stride, p->kernel, p->dilation, p->before, p->after, attributes));
}

/* Padding at the end, so that the windows reach exactly as far as the output wants. */
static int64_t padding_after(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                             int64_t dilation, int64_t before) {
  const int64_t after = (out - 1) * stride + (kernel - 1) * dilation + 1 - in - before;
  return after > 0 ? after : 0;
}

static int pool(ext_onednn_site* site, const ext_pool2d_params* p, dnnl_alg_kind_t algorithm,
                const float* x, float* y) {
  if (p->batch * p->channels * p->out_h * p->out_w == 0) return EXT_OK;
  if (p->in_h * p->in_w == 0) return EXT_ERR_ARGUMENT;
  const pooling shape = {
      .algorithm = algorithm,
      .batch = p->batch,
      .channels = p->channels,
      .in = {p->in_h, p->in_w},
      .out = {p->out_h, p->out_w},
      .kernel = {p->kernel_h, p->kernel_w},
      .stride = {p->stride_h, p->stride_w},
      .before = {p->pad_top, p->pad_left},
      .after = {padding_after(p->in_h, p->out_h, p->kernel_h, p->stride_h, p->dilation_h,
                              p->pad_top),
                padding_after(p->in_w, p->out_w, p->kernel_w, p->stride_w, p->dilation_w,
                              p->pad_left)},
      .dilation = {p->dilation_h - 1, p->dilation_w - 1},
      .x_stride = p->x_stride,
      .y_stride = p->y_stride,
  };
  /* oneDNN divides by the whole window, the kernels by its part in the padded image. */
  if (algorithm == dnnl_pooling_avg_include_padding &&
      (shape.after[0] > p->pad_bottom || shape.after[1] > p->pad_right))
    return EXT_ERR_ARGUMENT;
  const request call = {.describe = describe_pooling,
                        .shape = &shape,
                        .shape_bytes = sizeof(shape),
                        .data = {[SLOT_X] = x, [SLOT_Y] = y}};
  return ext_onednn_run(site, &call);
}

int ext_onednn_max_pool2d(ext_onednn_site* site, const ext_pool2d_params* p, const float* x,
                          float* y) {
  return pool(site, p, dnnl_pooling_max, x, y);
}

int ext_onednn_avg_pool2d(ext_onednn_site* site, const ext_pool2d_params* p, const float* x,
                          float* y) {
  const int include = p->count_include_pad;
  return pool(site, p,
              include ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding, x, y);
}

/* ------------------------------------------------------------------ softmax, layer norm */

typedef struct {
  int64_t outer, reduce, inner, logarithm;
} rows;

static void describe_softmax(draft* d, const request* call) {
  const rows* p = call->shape;
  const int64_t dims[] = {p->outer, p->reduce, p->inner};
  const int ndim = p->inner == 1 ? 2 : 3;
  dnnl_memory_desc_t x = onednn_tensor(d, SLOT_X, DNNL_ARG_SRC, ndim, dims, NULL);
  dnnl_memory_desc_t y = onednn_tensor(d, SLOT_Y, DNNL_ARG_DST, ndim, dims, NULL);
  dnnl_primitive_attr_t attributes = onednn_attributes(d);
  if (d->status != EXT_OK) return;
  onednn_check(d,
               dnnl_softmax_forward_primitive_desc_create(
                   &d->primitive, d->engine, dnnl_forward_inference,
                   p->logarithm ? dnnl_softmax_log : dnnl_softmax_accurate, x, y, 1, attributes));
}

int ext_onednn_softmax(ext_onednn_site* site, int64_t outer, int64_t reduce, int64_t inner,
                       int32_t logarithm, const float* x, float* y) {
  if (outer * reduce * inner == 0) return EXT_OK;
  const rows shape = {outer, reduce, inner, logarithm};
  const request call = {.describe = describe_softmax,
                        .shape = &shape,
                        .shape_bytes = sizeof(shape),
                        .data = {[SLOT_X] = x, [SLOT_Y] = y}};
  return ext_onednn_run(site, &call);
}

typedef struct {
  int64_t rows, n, scaled, shifted;
  double epsilon;
} norm;

static void describe_layer_norm(draft* d, const request* call) {
  const norm* p = call->shape;
  const int64_t dims[] = {p->rows, p->n};
  unsigned flags = dnnl_normalization_flags_none;
  dnnl_memory_desc_t x = onednn_tensor(d, SLOT_X, DNNL_ARG_SRC, 2, dims, NULL);
  dnnl_memory_desc_t y = onednn_tensor(d, SLOT_Y, DNNL_ARG_DST, 2, dims, NULL);
  if (p->scaled) {
    flags |= dnnl_use_scale;
    onednn_tensor(d, SLOT_WEIGHTS, DNNL_ARG_SCALE, 1, &p->n, NULL);
  }
  if (p->shifted) {
    flags |= dnnl_use_shift;
    onednn_tensor(d, SLOT_BIAS, DNNL_ARG_SHIFT, 1, &p->n, NULL);
  }
  dnnl_primitive_attr_t attributes = onednn_attributes(d);
  if (d->status != EXT_OK) return;
  onednn_check(d, dnnl_layer_normalization_forward_primitive_desc_create(
                      &d->primitive, d->engine, dnnl_forward_inference, x, y, NULL,
                      (float)p->epsilon, flags, attributes));
}

int ext_onednn_layer_norm(ext_onednn_site* site, int64_t rows, int64_t n, float epsilon,
                          const float* x, const float* gamma, const float* beta, float* y) {
  if (rows * n == 0) return EXT_OK;
  const norm shape = {rows, n, gamma != NULL, beta != NULL, epsilon};
  const request call = {
      .describe = describe_layer_norm,
      .shape = &shape,
      .shape_bytes = sizeof(shape),
      .data = {[SLOT_X] = x, [SLOT_WEIGHTS] = gamma, [SLOT_BIAS] = beta, [SLOT_Y] = y}};
  return ext_onednn_run(site, &call);
}

/* ------------------------------------------------------------------ elementwise */

typedef struct {
  int64_t n, kind;
  double alpha, beta;
} unary;

static void describe_unary(draft* d, const request* call) {
  const unary* p = call->shape;
  const ext_activation f = {(ext_unary_kind)p->kind, (float)p->alpha, (float)p->beta};
  eltwise found;
  if (!ext_onednn_eltwise(&f, &found)) {
    d->status = EXT_ERR_ARGUMENT;
    return;
  }
  dnnl_memory_desc_t x = onednn_tensor(d, SLOT_X, DNNL_ARG_SRC, 1, &p->n, NULL);
  dnnl_memory_desc_t y = onednn_tensor(d, SLOT_Y, DNNL_ARG_DST, 1, &p->n, NULL);
  onednn_scale(d, found.scale);
  dnnl_primitive_attr_t attributes = onednn_attributes(d);
  if (d->status != EXT_OK) return;
  onednn_check(d, dnnl_eltwise_forward_primitive_desc_create(
                      &d->primitive, d->engine, dnnl_forward_inference, found.algorithm, x, y,
                      found.alpha, found.beta, attributes));
}

int ext_onednn_unary(ext_onednn_site* site, const ext_activation* f, int64_t n, const float* x,
                     float* y) {
  if (n == 0) return EXT_OK;
  const unary shape = {n, f->kind, f->alpha, f->beta};
  const request call = {.describe = describe_unary,
                        .shape = &shape,
                        .shape_bytes = sizeof(shape),
                        .data = {[SLOT_X] = x, [SLOT_Y] = y}};
  return ext_onednn_run(site, &call);
}

/* Axes that both operands step through evenly are one. */
typedef struct {
  int64_t algorithm, ndim, a_dims[EXT_MAX_DIMS], b_dims[EXT_MAX_DIMS], b_strides[EXT_MAX_DIMS];
  int64_t kind;
  double alpha, beta;
} binary;

static void describe_binary(draft* d, const request* call) {
  const binary* p = call->shape;
  const int ndim = (int)p->ndim;
  const ext_activation f = {(ext_unary_kind)p->kind, (float)p->alpha, (float)p->beta};
  dnnl_memory_desc_t a = onednn_tensor(d, SLOT_X, DNNL_ARG_SRC_0, ndim, p->a_dims, NULL);
  dnnl_memory_desc_t b =
      onednn_tensor(d, SLOT_OTHER, DNNL_ARG_SRC_1, ndim, p->b_dims, p->b_strides);
  dnnl_memory_desc_t y = onednn_tensor(d, SLOT_Y, DNNL_ARG_DST, ndim, p->a_dims, NULL);
  onednn_activation(d, &f);
  dnnl_primitive_attr_t attributes = onednn_attributes(d);
  if (d->status != EXT_OK) return;
  onednn_check(
      d, dnnl_binary_primitive_desc_create(&d->primitive, d->engine, (dnnl_alg_kind_t)p->algorithm,
                                           a, b, y, attributes));
}

static int binary_algorithm(ext_binary_kind kind, int64_t* algorithm) {
  switch (kind) {
    case EXT_ADD: *algorithm = dnnl_binary_add; return 1;
    case EXT_SUB: *algorithm = dnnl_binary_sub; return 1;
    case EXT_MUL: *algorithm = dnnl_binary_mul; return 1;
    case EXT_DIV: *algorithm = dnnl_binary_div; return 1;
    default: return 0;
  }
}

/* The axes of a dense `a`, and how `b` repeats along them, as few as possible; 0 if a has gaps. */
static int fold_axes(const ext_binary_params* p, binary* folded) {
  int64_t strides[EXT_MAX_DIMS], expected = 1;
  int used = 0;
  for (int i = p->ndim - 1; i >= 0; --i) { /* innermost first */
    const int64_t extent = p->shape[i], step = p->b_strides[i];
    if (extent == 1) continue;
    if (p->a_strides[i] != expected) return 0;
    expected *= extent;
    if (used > 0 && step == strides[used - 1] * folded->a_dims[used - 1]) {
      folded->a_dims[used - 1] *= extent;
      continue;
    }
    folded->a_dims[used] = extent;
    strides[used++] = step;
  }
  if (used == 0) {
    folded->a_dims[used] = 1;
    strides[used++] = 1;
  }
  for (int i = 0; i < used / 2; ++i) { /* outermost first */
    const int64_t extent = folded->a_dims[i], step = strides[i];
    folded->a_dims[i] = folded->a_dims[used - 1 - i];
    strides[i] = strides[used - 1 - i];
    folded->a_dims[used - 1 - i] = extent;
    strides[used - 1 - i] = step;
  }
  expected = 1;
  for (int i = used - 1; i >= 0; --i) {
    folded->b_dims[i] = strides[i] == 0 ? 1 : folded->a_dims[i];
    folded->b_strides[i] = strides[i] == 0 ? expected : strides[i];
    expected = folded->b_dims[i] * folded->b_strides[i];
  }
  folded->ndim = used;
  return 1;
}

int ext_onednn_binary(ext_onednn_site* site, const ext_binary_params* p, const float* a,
                      const float* b, float* y) {
  binary shape = {
      .kind = p->activation.kind, .alpha = p->activation.alpha, .beta = p->activation.beta};
  if (p->ndim < 1 || p->ndim > EXT_MAX_DIMS) return EXT_ERR_ARGUMENT;
  for (int i = 0; i < p->ndim; ++i) {
    if (p->shape[i] == 0) return EXT_OK;
  }
  if (p->dtype != EXT_FLOAT32 || !binary_algorithm(p->kind, &shape.algorithm) ||
      !fold_axes(p, &shape))
    return EXT_ERR_ARGUMENT;
  const request call = {.describe = describe_binary,
                        .shape = &shape,
                        .shape_bytes = sizeof(shape),
                        .data = {[SLOT_X] = a, [SLOT_OTHER] = b, [SLOT_Y] = y}};
  return ext_onednn_run(site, &call);
}
