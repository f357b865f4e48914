/*
 * ext_bfloat16.h - products whose operands are bf16, or fp32 as the sum of two bf16, and whose sums
 * are fp32.
 *
 * ext_kernels.h includes it at its end.  Its conventions hold here; strides count elements.
 *
 * A bf16 is the upper half of an fp32: 8 bits of exponent, 7 of mantissa.  fp32 becomes bf16 by
 * rounding to the nearest, halves to the even one; a NaN stays a NaN.  What lies in memory is told
 * by an ext_storage; operands in fp32 are rounded as they are packed.  Bias, activations and the
 * residual are computed in fp32 (bias and sums are fp32 whatever the storage), and a result in bf16
 * is rounded once, at the end.
 *
 * Accuracy.  The product of two bf16 is exact in fp32.  Sums are fp32; in which order their terms
 * are added, and whether each addition of a pair rounds, differs between instruction sets.  Units
 * for bf16 (AVX512-BF16, AMX, that of AArch64) take numbers below 2^-126 as zero, and give zero for
 * sums and conversions below it; other instruction sets keep them.
 *
 * Packed weights.  B[K][N] is stored as ceil(N / 16) panels; panel j holds B[:, 16 j .. 16 j + 15]
 * as [ceil(K / 2)][16][2]: of each column, two rows of B are neighbours.  What lies past N or K is
 * zero.  One format serves every instruction set; two rows of a panel are 64 bytes, one vector of
 * AVX-512 or one row of an AMX tile.
 *
 * Two parts (ext_..._bf16x3).  An fp32 x is high + low: high the nearest bf16 that is finite, low
 * the nearest to x - high.  |low| <= 2^-8 |x|, and both together are off by 2^-17 |x| at most, or
 * by 2^-126 where low is that small.  Tiles add up high high + high low + low high: without low
 * low, at most 2^-15 |x w| away from each product x w, and then sums round as in fp32.  Instruction
 * sets without tiles take x as it is and w as high + low, 2^-17 |x w| away.  Infinities and NaNs
 * act as in fp32; less than the bound below the greatest fp32, a number may become infinite.  Of
 * packed weights B[K][N] panel j is [ceil(K / 2)][2][16][2]: the higher parts of two rows of B,
 * then their lower parts.
 */
#ifndef EXT_BFLOAT16_H_
#define EXT_BFLOAT16_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What lies in memory: EXT_FLOAT32 or EXT_BFLOAT16 each; others are EXT_ERR_ARGUMENT. */
typedef struct {
  ext_dtype x;        /* the operand that is not packed */
  ext_dtype residual; /* what e->residual points at, if it points at anything */
  ext_dtype y;
} ext_storage;

/* ext_matmul_packed of bf16 operands.  b_batch strides count packed elements.  The residual may be
 * y itself, if both are stored alike. */
int ext_matmul_bf16(const ext_matmul_params* p, const ext_storage* s, const void* a,
                    const uint16_t* b, const ext_epilogue* e, void* y);

/* ext_matmul_grouped of bf16 operands; s->residual is not read. */
int ext_matmul_grouped_bf16(const ext_matmul_params* p, const ext_storage* s, int64_t groups,
                            const int64_t* group, const void* a, const uint16_t* b, void* y);

/* ext_conv2d of bf16 operands.  w: per group the packed B[kernel_h * kernel_w * in_c/groups]
 * [out_c/groups], groups one after the other.  in_place_rows is not read. */
int ext_conv2d_bf16(const ext_conv2d_params* p, const ext_storage* s, const void* x,
                    const uint16_t* w, const ext_epilogue* e, void* y);
/* ext_conv2d_prologue of bf16 operands: x, fp32 or widened, goes through the prologue in fp32 and
 * is rounded then. */
int ext_conv2d_bf16_prologue(const ext_conv2d_params* p, const ext_prologue* before,
                             const ext_storage* s, const void* x, const uint16_t* w,
                             const ext_epilogue* e, void* y);

/* What lies in memory of an attention: EXT_FLOAT32 or EXT_BFLOAT16 each. */
typedef struct {
  ext_dtype q, k, v, y;
} ext_attention_storage;

/* ext_attention of bf16 operands: q, k and v are rounded, and so are the exponentials, of which the
 * greatest in a row is 1.  Their sums, by which the result is divided last, are fp32. */
int ext_attention_bf16(const ext_attention_params* p, const ext_attention_storage* s, const void* q,
                       const void* k, const void* v, const float* mask, void* y);

/* Operators that compute in fp32 what is stored as bf16.  Rounding aside they give what their
 * namesakes give.
 *
 * ext_conv2d_winograd; w is fp32. */
int ext_conv2d_winograd_bf16(const ext_conv2d_params* p, int32_t tile, const ext_storage* s,
                             const void* x, const float* w, const ext_epilogue* e, void* y);
/* ext_depthwise_conv2d of x as bf16; w, bias and residual are fp32. */
int ext_depthwise_conv2d_bf16(const ext_conv2d_params* p, ext_dtype y_dtype, const uint16_t* x,
                              const float* w, const ext_epilogue* e, void* y);
/* The same for ext_grouped_conv2d. */
int ext_grouped_conv2d_bf16(const ext_conv2d_params* p, ext_dtype y_dtype, const uint16_t* x,
                            const float* w, const ext_epilogue* e, void* y);
int ext_max_pool2d_bf16(const ext_pool2d_params* p, const uint16_t* x, uint16_t* y);
int ext_avg_pool2d_bf16(const ext_pool2d_params* p, const uint16_t* x, uint16_t* y);
int ext_reduce_bf16(ext_reduce_kind kind, int64_t outer, int64_t reduce, int64_t inner,
                    const uint16_t* x, float* y);
/* ext_binary of floats; s->residual tells how b is stored.  p->dtype is not read.  In place is
 * allowed on an operand that is stored as y is. */
int ext_binary_bf16(const ext_binary_params* p, const ext_storage* s, const void* a, const void* b,
                    void* y);

/* ext_layer_norm; s->residual is not read.  In place is allowed where x is stored as y is. */
int ext_layer_norm_bf16(int64_t rows, int64_t n, float epsilon, const ext_storage* s, const void* x,
                        const float* gamma, const float* beta, void* y);

/* ext_rms_norm; s->residual is not read.  In place is allowed where x is stored as y is. */
int ext_rms_norm_bf16(int64_t rows, int64_t n, float epsilon, const ext_storage* s, const void* x,
                      const float* gamma, void* y);

/* ext_rotary; s->residual is not read.  In place is allowed where x is dense and stored as y is. */
int ext_rotary_bf16(const ext_rotary_params* p, const ext_storage* s, const void* x,
                    const float* cosine, const float* sine, void* y);

/* ext_group_norm; s->residual is not read.  In place is allowed where x is stored as y is. */
int ext_group_norm_bf16(const ext_group_norm_params* p, const ext_storage* s, const void* x,
                        const float* gamma, const float* beta, void* y);

/* ext_matmul_packed of operands in two parts. */
int ext_matmul_bf16x3(const ext_matmul_params* p, const float* a, const uint16_t* b,
                      const ext_epilogue* e, float* y);

/* ext_conv2d of operands in two parts; w and in_place_rows as of ext_conv2d_bf16. */
int ext_conv2d_bf16x3(const ext_conv2d_params* p, const float* x, const uint16_t* w,
                      const ext_epilogue* e, float* y);

#ifdef __cplusplus
}
#endif
#endif /* EXT_BFLOAT16_H_ */
