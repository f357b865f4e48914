/*
 * ext_quantised.h - products of 8-bit integers, with what follows them in a quantised network.
 *
 * ext_kernels.h includes it at its end.  Its conventions hold here; strides count elements.
 *
 * A quantised tensor x stands for (x - x_zero) * x_scale.  Products read x as EXT_UINT8 or
 * EXT_INT8 (x_dtype), weights w as int8 with zero point 0, and sum (x - x_zero) * w exactly in
 * int32.  So that no sum overflows, it has at most EXT_QUANTISED_TERMS terms; more are
 * EXT_ERR_ARGUMENT.
 *
 * Packed weights.  B[K][N] of int8 is stored as ceil(N / 16) panels; panel j holds B[:, 16 j .. 16
 * j
 * + 15] as [ceil(K / 4)][16][4]: of each column, four rows of B are neighbours.  What lies past N
 * or K is zero.  One format serves every instruction set; four rows of a panel are 64 bytes, one
 * vector of AVX-512 or one row of an AMX tile.
 */
#ifndef EXT_QUANTISED_H_
#define EXT_QUANTISED_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EXT_QUANTISED_TERMS 65536 /* 255 * 128 * 65536 < 2^31 */
#define EXT_QUANTISED_TAPS 512    /* 255 * 128 * 512 < 2^24 */

/* What becomes of the sums of column (channel) c, where sum is that of (x - x_zero) * w:
 *
 *   v = before(sum * scale[c] + bias[c])
 *   v = (quantise(v) - inner_zero) * inner_scale, where inner_dtype is 8-bit: what is left of v in
 *       integers of that dtype, made as y is
 *   v = after(v + (residual - residual_zero) * residual_scale)
 *   y = v, where y_dtype is EXT_FLOAT32
 *   y = round(v / y_scale) + y_zero, limited to what y_dtype holds, where it is 8-bit: a division
 *       in fp32, halves to the even integer, as ONNX's QuantizeLinear has it.  A NaN becomes the
 *       least value, as in ONNX Runtime on x86-64.
 *
 * The arrays have an element for each column of y (each channel of all groups), and are padded with
 * zeros to a multiple of EXT_PANEL. */
typedef struct {
  const int32_t* w_sums; /* sums of w's columns, over K: with them comes x_zero into the sums */
  const float* scale;    /* x's scale times w's */
  const float* bias;     /* NULL or what is added, in units of v; a bias of int32 times scale */
  ext_activation before;
  ext_dtype inner_dtype; /* EXT_FLOAT32 (for none), EXT_INT8 or EXT_UINT8 */
  float inner_scale;
  int32_t inner_zero;
  const void* residual;     /* NULL or [M, N]; may be y itself, if both dtypes are of one size */
  int64_t residual_stride;  /* between rows (pixels) of residual */
  ext_dtype residual_dtype; /* EXT_FLOAT32, EXT_INT8 or EXT_UINT8 */
  float residual_scale;     /* of 8-bit residuals; those of fp32 are added as they are */
  int32_t residual_zero;
  ext_activation after;
  ext_dtype y_dtype; /* EXT_FLOAT32, EXT_INT8 or EXT_UINT8 */
  float y_scale;     /* of 8-bit results */
  int32_t y_zero;
} ext_requantise;

/* y[..][i][j] = requantise(sum_p (a[..][i][p] - a_zero) * b[p][j]), over the batch axes of a and y.
 * b is packed, and the same for every batch item: b_batch is 0. */
int ext_qmatmul(const ext_matmul_params* p, ext_dtype a_dtype, int32_t a_zero, const void* a,
                const int8_t* b, const ext_requantise* e, void* y);
/* A binary function, EXT_ADD, EXT_SUB or EXT_MUL, of quantised tensors a and b of `size` elements,
 * EXT_INT8 or EXT_UINT8: v = activation(f(a, b)), which becomes y as above. */
typedef struct {
  ext_binary_kind kind;
  ext_activation activation;
  int64_t size;
  ext_dtype a_dtype, b_dtype, y_dtype;
  float a_scale, b_scale, y_scale;
  int32_t a_zero, b_zero, y_zero;
} ext_qbinary_params;

/* y may be a or b, of the same dtype size. */
int ext_qbinary(const ext_qbinary_params* p, const void* a, const void* b, void* y);

/* Weights of 4 or 8 bits beside data of fp32.  B[K][N] stands for
 *
 *   (q[p][j] - zero[p / block][j]) * scale[p / block][j]
 *
 * with unsigned q of so many bits.  q is stored as [ceil(N / 16)][ceil(K / rows)][16] of 32-bit
 * words: a word holds rows = 32 / bits rows of its column, row i in byte i % 4, of 4 bits in the
 * lower half for i < 4.  scale and zero are [ceil(N / 16)][ceil(K / block)][16].  What lies past N
 * or K is zero.  One format serves every instruction set. */
typedef struct {
  int32_t bits;  /* 4 or 8 */
  int64_t block; /* rows with one scale: a multiple of 32 / bits, or K or more */
  const uint32_t* values;
  const float* scale;
  const void* zero;     /* NULL where all are 2^(bits - 1) */
  ext_dtype zero_dtype; /* EXT_UINT8 or EXT_FLOAT32 */
  int32_t data_bits;    /* 8: a may be rounded to bytes; 0: it may not */
} ext_block_weight;

/* ext_matmul_packed with such a B, the same for every batch item: b_batch is 0.  Integers become
 * floats in registers, or for many rows in L2, and sums are fp32.  Where the CPU adds products of
 * bytes, few rows of a are rounded to 30 bits below the largest number of 128 rows of B at most,
 * and their products with integers summed up exactly.  With data_bits any number of rows of a are
 * rounded there to multiples of the largest one by 127 instead, for each 128 rows of B, or block
 * of fewer.  Rows with a number that is none, or 2^100 or more, are not rounded. */
int ext_matmul_block(const ext_matmul_params* p, const ext_block_weight* b, const float* a,
                     const ext_epilogue* e, float* y);

/* y[i] = table[x[i]], i < size: bytes, of which `table` has 256.  y may be x. */
int ext_lookup(int64_t size, const void* x, const void* table, void* y);

/* ext_conv2d of x - x_zero, which is 0 outside the image.  w: per group the packed B[kernel_h *
 * kernel_w * C][out_c/groups], groups one after the other, where C is in_c/groups rounded up to 4,
 * with rows of zeros.  in_place_rows is not read. */
int ext_qconv2d(const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero, const void* x,
                const int8_t* w, const ext_requantise* e, void* y);
/* The same for groups == in_c == out_c, and at most EXT_QUANTISED_TAPS taps of a kernel; more are
 * EXT_ERR_ARGUMENT.  w is [kernel_h][kernel_w][channels padded to EXT_PANEL]; e->w_sums is not
 * read. */
int ext_qdepthwise_conv2d(const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero,
                          const void* x, const int8_t* w, const ext_requantise* e, void* y);
/* The same for groups of as many inputs as outputs, 4, 8 or a multiple of 16; others are
 * EXT_ERR_ARGUMENT.  w is one packed B[kernel_h * kernel_w * in_c/groups][out_c] of all groups'
 * outputs side by side. */
int ext_qgrouped_conv2d(const ext_conv2d_params* p, ext_dtype x_dtype, int32_t x_zero,
                        const void* x, const int8_t* w, const ext_requantise* e, void* y);

#ifdef __cplusplus
}
#endif
#endif /* EXT_QUANTISED_H_ */
