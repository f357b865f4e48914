/* Convolutions and matrix products on oneDNN. */
#include "ext_onednn_core.h"

#define MAX_SPATIAL 3
#define MAX_BATCH 4

/* ------------------------------------------------------------------ convolution */

/* A convolution of two or three spatial axes; strides are those between pixels. */
typedef struct {
  int64_t spatial, transposed;
  int64_t batch, groups, in_c, out_c;
  int64_t in[MAX_SPATIAL], out[MAX_SPATIAL], kernel[MAX_SPATIAL], dilation[MAX_SPATIAL];
  dnnl_dims_t stride, pad;
  int64_t x_stride, y_stride, residual_stride;
} convolution;

/* Extents and strides of a channels-last image, in oneDNN's order: batch, channel, pixels. */
static void image(const convolution* c, int64_t channels, const int64_t* pixels, int64_t pixel,
                  int64_t* dims, int64_t* strides) {
  dims[0] = c->batch;
  dims[1] = channels;
  strides[1] = 1;
  for (int i = (int)c->spatial - 1; i >= 0; --i) {
    dims[2 + i] = pixels[i];
    strides[2 + i] = pixel;
    pixel *= pixels[i];
  }
  strides[0] = pixel;
}

/* Weights as [groups,] outputs, inputs, kernel, from OI... or, transposed, IO... in memory. */
static dnnl_memory_desc_t conv_weights(draft* d, const convolution* c) {
  int64_t dims[3 + MAX_SPATIAL], strides[3 + MAX_SPATIAL];
  const int64_t outputs = c->out_c / c->groups, inputs = c->in_c / c->groups;
  int64_t taps = 1;
  for (int i = (int)c->spatial - 1; i >= 0; --i) {
    dims[3 + i] = c->kernel[i];
    strides[3 + i] = taps;
    taps *= c->kernel[i];
  }
  dims[0] = c->groups;
  dims[1] = outputs;
  dims[2] = inputs;
  strides[0] = outputs * inputs * taps;
  strides[1] = c->transposed ? taps : inputs * taps;
  strides[2] = c->transposed ? outputs * taps : taps;
  const int skip = c->groups == 1;
  return onednn_weights(d, 3 + (int)c->spatial - skip, dims + skip, strides + skip);
}

static void describe_convolution(draft* d, const request* call) {
  const convolution* c = call->shape;
  const ext_epilogue* e = call->epilogue;
  const int ndim = 2 + (int)c->spatial;
  const int64_t one = 1;
  int64_t dims[2 + MAX_SPATIAL], strides[2 + MAX_SPATIAL];
  dnnl_dims_t dilation, after;
  dnnl_memory_desc_t x, w, y, bias = NULL;
  for (int i = 0; i < c->spatial; ++i) {
    const int64_t big = c->transposed ? c->out[i] : c->in[i];
    const int64_t small = c->transposed ? c->in[i] : c->out[i];
    const int64_t reach = (c->kernel[i] - 1) * c->dilation[i] + 1;
    dilation[i] = c->dilation[i] - 1;
    after[i] = (small - 1) * c->stride[i] + reach - big - c->pad[i];
    if (after[i] < 0) after[i] = 0; /* pixels at the end that no window reaches */
  }
  image(c, c->in_c, c->in, c->x_stride, dims, strides);
  x = onednn_tensor(d, SLOT_X, DNNL_ARG_SRC, ndim, dims, strides);
  w = conv_weights(d, c);
  if (e != NULL && e->bias != NULL)
    bias = onednn_tensor(d, SLOT_BIAS, DNNL_ARG_BIAS, 1, &c->out_c, &one);
  image(c, c->out_c, c->out, c->residual_stride, dims, strides);
  onednn_epilogue(d, e, ndim, dims, strides);
  image(c, c->out_c, c->out, c->y_stride, dims, strides);
  y = onednn_tensor(d, SLOT_Y, DNNL_ARG_DST, ndim, dims, strides);
  dnnl_primitive_attr_t attributes = onednn_attributes(d);
  if (d->status != EXT_OK) return;
  if (c->transposed)
    onednn_check(d, dnnl_deconvolution_forward_primitive_desc_create(
                        &d->primitive, d->engine, dnnl_forward_inference, dnnl_deconvolution_direct,
                        x, w, bias, y, c->stride, dilation, c->pad, after, attributes));
  else
    onednn_check(d, dnnl_convolution_forward_primitive_desc_create(
                        &d->primitive, d->engine, dnnl_forward_inference, dnnl_convolution_direct,
                        x, w, bias, y, c->stride, dilation, c->pad, after, attributes));
}

static int convolve(ext_onednn_site* site, convolution* c, const float* x, const float* w,
                    const ext_epilogue* e, float* y) {
  int64_t inputs = c->in_c, outputs = c->batch * c->out_c;
  for (int i = 0; i < c->spatial; ++i) {
    inputs *= c->in[i];
    outputs *= c->out[i];
  }
  if (outputs == 0) return EXT_OK;
  if (inputs == 0) return EXT_ERR_ARGUMENT;
  if (e != NULL && e->residual != NULL) c->residual_stride = e->residual_stride;
  const request call = {
      .describe = describe_convolution,
      .shape = c,
      .shape_bytes = sizeof(*c),
      .epilogue = e,
      .data = {[SLOT_X] = x,
               [SLOT_WEIGHTS] = w,
               [SLOT_BIAS] = e == NULL ? NULL : e->bias,
               [SLOT_Y] = y,
               [SLOT_OTHER] = e == NULL ? NULL : e->residual},
  };
  return ext_onednn_run(site, &call);
}

static convolution of_two_axes(const ext_conv2d_params* p, int transposed) {
  return (convolution){
      .spatial = 2,
      .transposed = transposed,
      .batch = p->batch,
      .groups = p->groups,
      .in_c = p->in_c,
      .out_c = p->out_c,
      .in = {p->in_h, p->in_w},
      .out = {p->out_h, p->out_w},
      .kernel = {p->kernel_h, p->kernel_w},
      .stride = {p->stride_h, p->stride_w},
      .pad = {p->pad_top, p->pad_left},
      .dilation = {p->dilation_h, p->dilation_w},
      .x_stride = p->x_stride,
      .y_stride = p->y_stride,
  };
}

int ext_onednn_conv2d(ext_onednn_site* site, const ext_conv2d_params* p, const float* x,
                      const float* w, const ext_epilogue* e, float* y) {
  convolution c = of_two_axes(p, 0);
  return convolve(site, &c, x, w, e, y);
}

int ext_onednn_conv2d_transpose(ext_onednn_site* site, const ext_conv2d_params* p, const float* x,
                                const float* w, const ext_epilogue* e, float* y) {
  convolution c = of_two_axes(p, 1);
  return convolve(site, &c, x, w, e, y);
}

int ext_onednn_conv3d(ext_onednn_site* site, const ext_conv3d_params* p, const float* x,
                      const float* w, const ext_epilogue* e, float* y) {
  convolution c = {
      .spatial = 3,
      .batch = p->batch,
      .groups = p->groups,
      .in_c = p->in_c,
      .out_c = p->out_c,
      .in = {p->in_d, p->in_h, p->in_w},
      .out = {p->out_d, p->out_h, p->out_w},
      .kernel = {p->kernel_d, p->kernel_h, p->kernel_w},
      .stride = {p->stride_d, p->stride_h, p->stride_w},
      .pad = {p->pad_front, p->pad_top, p->pad_left},
      .dilation = {p->dilation_d, p->dilation_h, p->dilation_w},
      .x_stride = p->in_c,
      .y_stride = p->out_c,
  };
  return convolve(site, &c, x, w, e, y);
}

/* ------------------------------------------------------------------ matrix product */

typedef struct {
  int64_t dims[MAX_BATCH + 2], strides[MAX_BATCH + 2];
} matrix;

/* ext_matmul_params as oneDNN sees it: the batch axes, then rows and columns. */
typedef struct {
  int64_t ndim, constant, n;
  matrix a, b, y, residual;
} product;

/* A matrix of which an operand has one per batch; a batch stride of 0 repeats it.  The stride of an
 * axis of one element may be anything, but oneDNN recognises layouts by it. */
static matrix batch_of(int axes, const int64_t* batch, const int64_t* batch_strides, int64_t rows,
                       int64_t columns, int64_t row, int64_t column) {
  matrix x = {.dims = {0}};
  if (columns == 1) column = 1;
  if (rows == 1) row = column == 1 ? columns : 1;
  x.dims[axes] = rows;
  x.dims[axes + 1] = columns;
  x.strides[axes] = row;
  x.strides[axes + 1] = column;
  int64_t step = rows * row > columns * column ? rows * row : columns * column;
  for (int i = axes - 1; i >= 0; --i) {
    const int single = batch[i] == 1 || batch_strides[i] == 0;
    x.dims[i] = single ? 1 : batch[i];
    x.strides[i] = single ? step : batch_strides[i];
    if (x.dims[i] * x.strides[i] > step) step = x.dims[i] * x.strides[i];
  }
  return x;
}

static dnnl_memory_desc_t draft_matrix(draft* d, slot where, int argument, const product* p,
                                       const matrix* x) {
  return onednn_tensor(d, where, argument, (int)p->ndim, x->dims, x->strides);
}

static void describe_product(draft* d, const request* call) {
  const product* p = call->shape;
  const ext_epilogue* e = call->epilogue;
  const int ndim = (int)p->ndim;
  dnnl_memory_desc_t a, b, y, bias = NULL;
  a = draft_matrix(d, SLOT_X, DNNL_ARG_SRC, p, &p->a);
  b = p->constant ? onednn_weights(d, ndim, p->b.dims, p->b.strides)
                  : draft_matrix(d, SLOT_WEIGHTS, DNNL_ARG_WEIGHTS, p, &p->b);
  if (e != NULL && e->bias != NULL) {
    dnnl_dims_t dims;
    for (int i = 0; i < ndim; ++i) dims[i] = i == ndim - 1 ? p->n : 1;
    bias = onednn_tensor(d, SLOT_BIAS, DNNL_ARG_BIAS, ndim, dims, NULL);
  }
  onednn_epilogue(d, e, ndim, p->residual.dims, p->residual.strides);
  y = draft_matrix(d, SLOT_Y, DNNL_ARG_DST, p, &p->y);
  dnnl_primitive_attr_t attributes = onednn_attributes(d);
  if (d->status != EXT_OK) return;
  onednn_check(
      d, dnnl_matmul_primitive_desc_create(&d->primitive, d->engine, a, b, bias, y, attributes));
}

static int multiply(ext_onednn_site* site, const ext_matmul_params* p, int constant, const float* a,
                    const float* b, const ext_epilogue* e, float* y) {
  if (p->batch_ndim < 0 || p->batch_ndim > MAX_BATCH) return EXT_ERR_ARGUMENT;
  int64_t batch[MAX_BATCH] = {1, 1}, a_batch[MAX_BATCH] = {0}, b_batch[MAX_BATCH] = {0};
  int64_t y_batch[MAX_BATCH] = {0}, residual_batch[MAX_BATCH] = {0}, size = p->m * p->n;
  /* One batch axis becomes two: oneDNN's fast kernels know interleaved matrices in that form. */
  const int extra = p->batch_ndim == 1, axes = p->batch_ndim + extra;
  for (int i = 0; i < p->batch_ndim; ++i) {
    size *= batch[i + extra] = p->batch[i];
    a_batch[i + extra] = p->a_batch[i];
    b_batch[i + extra] = p->b_batch[i];
    y_batch[i + extra] = p->y_batch[i];
    residual_batch[i + extra] = p->residual_batch[i];
  }
  if (size == 0) return EXT_OK;
  if (p->k == 0) return ext_matmul(p, a, b, e, y); /* oneDNN would leave y as it is */
  product shape = {.ndim = axes + 2, .constant = constant, .n = p->n};
  shape.a = batch_of(axes, batch, a_batch, p->m, p->k, p->a_row, p->a_col);
  shape.b = batch_of(axes, batch, b_batch, p->k, p->n, p->b_row, p->b_col);
  shape.y = batch_of(axes, batch, y_batch, p->m, p->n, p->y_row, 1);
  if (e != NULL && e->residual != NULL)
    shape.residual = batch_of(axes, batch, residual_batch, p->m, p->n, e->residual_stride, 1);
  const request call = {
      .describe = describe_product,
      .shape = &shape,
      .shape_bytes = sizeof(shape),
      .epilogue = e,
      .data = {[SLOT_X] = a,
               [SLOT_WEIGHTS] = b,
               [SLOT_BIAS] = e == NULL ? NULL : e->bias,
               [SLOT_Y] = y,
               [SLOT_OTHER] = e == NULL ? NULL : e->residual},
  };
  return ext_onednn_run(site, &call);
}

int ext_onednn_matmul_constant(ext_onednn_site* site, const ext_matmul_params* p, const float* a,
                               const float* b, const ext_epilogue* e, float* y) {
  return multiply(site, p, 1, a, b, e, y);
}

int ext_onednn_matmul(ext_onednn_site* site, const ext_matmul_params* p, const float* a,
                      const float* b, const ext_epilogue* e, float* y) {
  return multiply(site, p, 0, a, b, e, y);
}
