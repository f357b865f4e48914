/*
 * ext_norms.h - the C interface of normalisations; part of ext_kernels.h, which includes it.
 */
#ifndef EXT_NORMS_H_
#define EXT_NORMS_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[r][:] = (x[r][:] - mean) / sqrt(variance + epsilon) * gamma + beta, population variance over
 * n elements; gamma, beta [n] or NULL.  In place is allowed. */
int ext_layer_norm(int64_t rows, int64_t n, float epsilon, const float* x, const float* gamma,
                   const float* beta, float* y);

/* y[r][:] = x[r][:] / sqrt(mean(x[r][:]^2) + epsilon) * gamma over n elements; gamma [n].  In place
 * is allowed. */
int ext_rms_norm(int64_t rows, int64_t n, float epsilon, const float* x, const float* gamma,
                 float* y);

typedef struct {
  int64_t batch, groups, channels, inner; /* inner: pixels of a channel; groups divide channels */
  int64_t x_stride, y_stride;             /* of pixels, where channels are last */
  int32_t channels_last; /* [batch, inner, channels], else [batch, channels, inner] */
  float epsilon;
  ext_activation after;
} ext_group_norm_params;

/* y[n][c][:] = after((x[n][c][:] - mean) / sqrt(variance + epsilon) * gamma[c] + beta[c]), mean and
 * population variance over the channels / groups channels of c's group; gamma, beta [channels] or
 * NULL.  In place is allowed where x and y have the same strides. */
int ext_group_norm(const ext_group_norm_params* p, const float* x, const float* gamma,
                   const float* beta, float* y);

typedef struct {
  int64_t outer, channels, inner;
  int64_t size; /* channels of a window; above 0 */
  float alpha, beta, bias;
} ext_lrn_params;

/* y[o][c][i] = x[o][c][i] / (bias + alpha mean_k x[o][k][i]^2)^beta, k from c - (size - 1) / 2 to
 * c + size / 2, where channels outside are 0; x is dense [outer, channels, inner]. */
int ext_lrn(const ext_lrn_params* p, const float* x, float* y);

/* y[o][r][i] = sum of x[o][s][i] over s <= r (`exclusive`: s < r; `reverse`: s >= r, s > r); x is
 * dense [outer, reduce, inner].  In place is allowed. */
int ext_cumsum(int32_t exclusive, int32_t reverse, int64_t outer, int64_t reduce, int64_t inner,
               const float* x, float* y);
/* The same of integers: EXT_INT32 or EXT_INT64, whose sums wrap around. */
int ext_cumsum_integers(ext_dtype dtype, int32_t exclusive, int32_t reverse, int64_t outer,
                        int64_t reduce, int64_t inner, const void* x, void* y);
/* Products instead of sums, of EXT_FLOAT32, EXT_INT32 or EXT_INT64. */
int ext_cumprod(ext_dtype dtype, int32_t exclusive, int32_t reverse, int64_t outer, int64_t reduce,
                int64_t inner, const void* x, void* y);

/* y[o][r][i] = exp(x - max_r x) / sum_r exp(x - max_r x), or its logarithm; x is dense
 * [outer, reduce, inner].  In place is allowed. */
int ext_softmax(int64_t outer, int64_t reduce, int64_t inner, int32_t logarithm, const float* x,
                float* y);

#ifdef __cplusplus
}
#endif

#endif /* EXT_NORMS_H_ */
