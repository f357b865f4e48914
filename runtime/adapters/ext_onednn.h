/*
 * ext_onednn.h - the kernels of ext_kernels.h that oneDNN (version 3) has, with its own weights.
 *
 * Generated code includes this header where a model is compiled with the library "onednn".  Each
 * function takes the parameter block of the kernel that it stands for, and computes the same, with
 * three differences:
 *   - weights are plain: OIHW (IOHW for transposed convolutions), a matrix with its two strides.
 *     The first call copies them into the format that oneDNN chooses;
 *   - a residual may not be y;
 *   - a NaN may get lost where oneDNN computes a maximum or a minimum: ReLU and clip give a bound
 *     for it, max pooling skips it, and softmax may give finite numbers beside it.
 *
 * A site belongs to one call: it keeps what oneDNN prepared for it, per shape and number of
 * threads, and the copied weights.  Zeroed memory is an empty site.  Weights and epilogue (but for
 * the residual's place) are the same at every call of a site.  Any number of threads may call.
 *
 * A status is an ext_status, or one that ext_onednn_status_text knows.
 */
#ifndef EXT_ONEDNN_H_
#define EXT_ONEDNN_H_

#include "ext_kernels.h"

typedef struct {
  void* plans;   /* prepared primitives, newest first */
  void* weights; /* copies of the weights in oneDNN's formats */
} ext_onednn_site;

/* w: OIHW [out_c, in_c / groups, kernel_h, kernel_w]. */
int ext_onednn_conv2d(ext_onednn_site* site, const ext_conv2d_params* p, const float* x,
                      const float* w, const ext_epilogue* e, float* y);
/* w: IOHW [in_c, out_c / groups, kernel_h, kernel_w]. */
int ext_onednn_conv2d_transpose(ext_onednn_site* site, const ext_conv2d_params* p, const float* x,
                                const float* w, const ext_epilogue* e, float* y);
/* w: OIDHW [out_c, in_c / groups, kernel_d, kernel_h, kernel_w]. */
int ext_onednn_conv3d(ext_onednn_site* site, const ext_conv3d_params* p, const float* x,
                      const float* w, const ext_epilogue* e, float* y);

/* b is a constant, read at the first call only. */
int ext_onednn_matmul_constant(ext_onednn_site* site, const ext_matmul_params* p, const float* a,
                               const float* b, const ext_epilogue* e, float* y);
/* b is read where it lies, at each call. */
int ext_onednn_matmul(ext_onednn_site* site, const ext_matmul_params* p, const float* a,
                      const float* b, const ext_epilogue* e, float* y);

int ext_onednn_max_pool2d(ext_onednn_site* site, const ext_pool2d_params* p, const float* x,
                          float* y);
/* With count_include_pad the windows must lie inside of the padded image (no ceil mode). */
int ext_onednn_avg_pool2d(ext_onednn_site* site, const ext_pool2d_params* p, const float* x,
                          float* y);

int ext_onednn_softmax(ext_onednn_site* site, int64_t outer, int64_t reduce, int64_t inner,
                       int32_t logarithm, const float* x, float* y);
/* gamma and beta may be NULL. */
int ext_onednn_layer_norm(ext_onednn_site* site, int64_t rows, int64_t n, float epsilon,
                          const float* x, const float* gamma, const float* beta, float* y);

/* EXT_ERR_ARGUMENT for a function that oneDNN has not: erf, floor, ceil, sin, cos, tan, sign. */
int ext_onednn_unary(ext_onednn_site* site, const ext_activation* f, int64_t n, const float* x,
                     float* y);
/* add, sub, mul and div; a has y's shape and is dense, b may repeat. */
int ext_onednn_binary(ext_onednn_site* site, const ext_binary_params* p, const float* a,
                      const float* b, float* y);

/* One constant line of text for a status of these functions. */
const char* ext_onednn_status_text(int status);

/* Threads that oneDNN uses when called from this thread: OpenMP's own setting, but never more than
 * OpenMP can be relied upon to give. */
void ext_onednn_set_threads(int threads);
int ext_onednn_get_threads(void);

#endif /* EXT_ONEDNN_H_ */
