/*
 * ext_kernels.h - the C interface between generated code and the kernels.
 *
 * Generated code includes this header and calls nothing else.  A kernel takes its shape as a
 * `const` parameter block, its tensors as pointers, and returns an ext_status.  Kernels are
 * re-entrant: they keep no mutable state, and take scratch memory from ext_workspace_alloc.
 *
 * Conventions
 *   - a tensor is fp32 where it is `float`; where it is `void`, the parameter block tells its
 *     dtype or the size of its elements.  A truth value is one byte, 0 or 1;
 *   - every stride and size is counted in elements, not bytes;
 *   - images are channels-last, [batch, height, width, channel]; `x_stride` and `y_stride` are
 *     the distances between neighbouring pixels, so a kernel can write one slice of a concat;
 *   - an output never overlaps an input, except where a kernel says "in place is allowed";
 *   - a size of 0 is valid anywhere and means that there is nothing to do;
 *   - NaN and infinity propagate as IEEE 754 has it (max, min, ReLU and clip keep a NaN).
 *
 * Packed weights ("panels").  The constant right-hand side B[K][N] of a GEMM is stored as
 * ceil(N / 16) panels; panel j holds B[:, 16 j .. 16 j + 15] as [K][16], columns past N are zero.
 * One format serves every instruction set.  Packed data and bias are 64-byte aligned, and a bias
 * is padded with zeros to a multiple of 16 elements.
 */
#ifndef EXT_KERNELS_H_
#define EXT_KERNELS_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ elementwise functions */

/* y[i] = f(x[i]), i < n.  In place is allowed. */
int ext_unary(const ext_activation* f, int64_t n, const float* x, float* y);

typedef enum {
  EXT_ADD = 0,
  EXT_SUB,
  EXT_MUL,
  EXT_DIV,
  EXT_MAX,
  EXT_MIN,
  EXT_POW,
  EXT_PRELU,   /* a < 0 ? a b : a */
  EXT_MOD,     /* a - b trunc(a / b), exactly: with the sign of a */
  EXT_BIT_AND, /* integers only, as are the next ones */
  EXT_BIT_OR,
  EXT_BIT_XOR,
  EXT_SHIFT_LEFT,  /* a 2^b; 0 where b is below 0, or the width of a or more */
  EXT_SHIFT_RIGHT, /* a / 2^b, rounded down; of such b, -1 where a is below 0, else 0 */
  EXT_FLOOR_DIV,   /* a / b, rounded down */
  EXT_FLOOR_MOD    /* what that leaves, with the sign of b */
} ext_binary_kind;

/* y[i] = f(a[i] op b[i]) over `shape`; stride 0 broadcasts; y is dense.  In place is allowed on an
 * operand whose strides equal y's.  Integers have all kinds but pow and prelu, and no activation:
 * they wrap around, and what is divided by 0 is 0, as is its remainder. */
typedef struct {
  ext_binary_kind kind;
  ext_activation activation;
  int32_t ndim; /* 1 .. EXT_MAX_DIMS */
  int64_t shape[EXT_MAX_DIMS], a_strides[EXT_MAX_DIMS], b_strides[EXT_MAX_DIMS];
  ext_dtype dtype; /* of a, b and y; not EXT_BOOL */
} ext_binary_params;
int ext_binary(const ext_binary_params* p, const void* a, const void* b, void* y);

/* y[i] = f(a[i] b[i] + c[i]) over `shape`, as ext_binary of the product and of the sum gives it. */
typedef struct {
  ext_activation activation;
  int32_t ndim; /* 1 .. EXT_MAX_DIMS */
  int64_t shape[EXT_MAX_DIMS], a_strides[EXT_MAX_DIMS], b_strides[EXT_MAX_DIMS];
  int64_t c_strides[EXT_MAX_DIMS];
} ext_multiply_add_params;
int ext_multiply_add(const ext_multiply_add_params* p, const float* a, const float* b,
                     const float* c, float* y);

typedef enum {
  EXT_EQUAL = 0,
  EXT_NOT_EQUAL,
  EXT_LESS,
  EXT_LESS_EQUAL,
  EXT_GREATER,
  EXT_GREATER_EQUAL,
  EXT_AND, /* truth values only, as are the next two */
  EXT_OR,
  EXT_XOR
} ext_compare_kind;

/* y[i] = a[i] op b[i], a truth value, over `shape`; stride 0 broadcasts; y is dense. */
typedef struct {
  ext_compare_kind kind;
  ext_dtype dtype; /* of a and b */
  int32_t ndim;    /* 1 .. EXT_MAX_DIMS */
  int64_t shape[EXT_MAX_DIMS];
  int64_t a_strides[EXT_MAX_DIMS];
  int64_t b_strides[EXT_MAX_DIMS];
} ext_compare_params;
int ext_compare(const ext_compare_params* p, const void* a, const void* b, uint8_t* y);

/* y[i] = c[i] ? a[i] : b[i] over `shape`; stride 0 broadcasts; y is dense. */
typedef struct {
  int32_t element_size; /* of a, b and y: 1, 2, 4 or 8 bytes */
  int32_t ndim;         /* 1 .. EXT_MAX_DIMS */
  int64_t shape[EXT_MAX_DIMS];
  int64_t c_strides[EXT_MAX_DIMS];
  int64_t a_strides[EXT_MAX_DIMS];
  int64_t b_strides[EXT_MAX_DIMS];
} ext_where_params;
int ext_where(const ext_where_params* p, const uint8_t* c, const void* a, const void* b, void* y);

/* y[i] = x[i] converted as C does, i < n; a number becomes the truth value of x != 0, or goes to 8
 * bits by way of 32.  EXT_FLOAT16 and EXT_BFLOAT16 go by way of float, and are rounded to nearest,
 * halves to even; beyond their range lies infinity.  What a NaN, or a number that does not fit into
 * 32 bits, becomes as an integer is up to the CPU. */
int ext_cast(ext_dtype from, ext_dtype to, int64_t n, const void* x, void* y);

/* Integers of 8 bits that stand for real numbers, (integer - zero) * scale; `zero` has the
 * integers' dtype. */
typedef struct {
  ext_dtype dtype; /* of the integers: EXT_INT8 or EXT_UINT8; ext_dequantize has EXT_INT32 too */
  int64_t outer, channels, inner;
  int64_t x_stride; /* between x[o] and x[o + 1]; channels * inner where there are no gaps */
} ext_quantise_params;

/* y[o][c][i] = round(x[o][c][i] / scale[c]) + zero[c], halves to the even integer, limited to what
 * the dtype holds; NaN becomes the least that it holds.  y is dense. */
int ext_quantize(const ext_quantise_params* p, const float* x, const float* scale, const void* zero,
                 void* y);

/* Quantises n numbers by their own range, with 0 in it: high = max(x, 0), low = min(x, 0),
 *   scale = (high - low) / 255, or 1 where high = low,
 *   zero = -low / scale, limited to 0 .. 255 and rounded,    y[i] as ext_quantize gives it.
 * The scale keeps a NaN of x; a zero point that is none is 0. */
int ext_dynamic_quantize(int64_t n, const float* x, uint8_t* y, float* scale, uint8_t* zero);

/* y[o][c][i] = (x[o][c][i] - zero[c]) * scale[c]; y is dense. */
int ext_dequantize(const ext_quantise_params* p, const void* x, const float* scale,
                   const void* zero, float* y);

/* y[i] = i, i < n; not for truth values and 8 bits. */
int ext_arange(ext_dtype dtype, int64_t n, void* y);

/* y[i] = sizes[i], i < count: extents that only the caller knows. */
typedef struct {
  int32_t count; /* 0 .. EXT_MAX_DIMS */
  int64_t sizes[EXT_MAX_DIMS];
} ext_sizes_params;
int ext_sizes(const ext_sizes_params* p, int64_t* y);

/* y[i] = x[i] over `shape` with any strides: reorder, permute, slice, concat, broadcast (stride 0
 * in x). */
typedef struct {
  int32_t ndim; /* 1 .. EXT_MAX_DIMS */
  int64_t shape[EXT_MAX_DIMS];
  int64_t x_strides[EXT_MAX_DIMS];
  int64_t y_strides[EXT_MAX_DIMS];
  int32_t element_size; /* 1, 2, 4 or 8 bytes; 0 means 4 */
} ext_copy_params;
int ext_copy(const ext_copy_params* p, const void* x, void* y);

/* y[o][j][i] = x[o][indices[j]][i]; x is dense [outer, extent, inner], y [outer, count, inner].  A
 * negative index counts from the end; EXT_ERR_INDEX, and y undefined, where one lies outside. */
typedef struct {
  int64_t outer, extent, inner;
  int64_t count;
  int32_t element_size;  /* of x and y: 1, 2, 4 or 8 bytes */
  ext_dtype index_dtype; /* EXT_INT32 or EXT_INT64 */
} ext_take_params;
int ext_take(const ext_take_params* p, const void* x, const void* indices, void* y);

/* Where item i of a tensor of indices points: at(i) = the sum over d of place(i)[d] strides[d] and
 * over j of indices[i][j] steps[j], in elements; place(i) is where the item lies in `shape`.  An
 * item is `coordinates` indices, which lie side by side, and moves `run` elements.  A negative
 * index counts from the end; EXT_ERR_INDEX, and y undefined, where one lies outside. */
typedef struct {
  int32_t ndim; /* 1 .. EXT_MAX_DIMS */
  int64_t shape[EXT_MAX_DIMS];
  int64_t strides[EXT_MAX_DIMS];
  int32_t coordinates;           /* 1 .. EXT_MAX_DIMS */
  int64_t extents[EXT_MAX_DIMS]; /* of the axes that the coordinates are of */
  int64_t steps[EXT_MAX_DIMS];   /* between elements along these */
  int64_t run;
  int64_t elements;      /* of a scatter's data */
  ext_dtype dtype;       /* of all but indices */
  ext_dtype index_dtype; /* EXT_INT32 or EXT_INT64 */
} ext_indexed_params;

/* y[i][r] = x[at(i) + r]; y is dense. */
int ext_gather(const ext_indexed_params* p, const void* x, const void* indices, void* y);

/* With what is there: nothing, a sum, a product, the greater and the smaller one; all but the first
 * of float, int32_t and int64_t. */
typedef enum {
  EXT_SCATTER_UPDATE = 0,
  EXT_SCATTER_ADD,
  EXT_SCATTER_MUL,
  EXT_SCATTER_MAX,
  EXT_SCATTER_MIN
} ext_scatter_kind;

/* y = data, then y[at(i) + r] = updates[i][r], or y combined with it, item after item; all of them
 * are dense.  y may be `data`. */
int ext_scatter(const ext_indexed_params* p, ext_scatter_kind kind, const void* data,
                const void* indices, const void* updates, void* y);

typedef enum { EXT_PAD_CONSTANT = 0, EXT_PAD_REFLECT, EXT_PAD_EDGE, EXT_PAD_WRAP } ext_pad_mode;

/* y = x with before[d] and after[d] elements more along axis d: `value`, or x mirrored at its first
 * and last element (a width is less than the extent then), those elements repeated, or x again and
 * again.  x is dense [shape..., inner], y dense [before + shape + after..., inner]. */
typedef struct {
  ext_pad_mode mode;
  float value;
  int32_t ndim; /* 1 .. EXT_MAX_DIMS */
  int64_t shape[EXT_MAX_DIMS];
  int64_t before[EXT_MAX_DIMS];
  int64_t after[EXT_MAX_DIMS];
  int64_t inner; /* elements of the axes that are not padded, innermost in memory */
} ext_pad_params;
int ext_pad(const ext_pad_params* p, const float* x, float* y);

/* ------------------------------------------------------------------ GEMM */

/* y[b][i][j] = epilogue(sum_p a[b][i][p] * b[b][p][j]), b over up to 4 batch axes (stride 0
 * broadcasts); a at a_row i + a_col p; b at b_row p + b_col j; y at y_row i + j. */
typedef struct {
  int64_t m, n, k;
  int64_t a_row, a_col;
  int64_t b_row, b_col; /* ignored where b is packed */
  int64_t y_row;
  int32_t batch_ndim; /* 0 .. 4; further fields describe the batch axes, outermost first */
  int64_t batch[4];
  int64_t a_batch[4], b_batch[4], y_batch[4], residual_batch[4];
} ext_matmul_params;

/* b is a plain strided matrix; it is packed on the fly, unless y has few rows or few columns. */
int ext_matmul(const ext_matmul_params* p, const float* a, const float* b, const ext_epilogue* e,
               float* y);
/* b is packed into panels (b_batch strides count packed elements). */
int ext_matmul_packed(const ext_matmul_params* p, const float* a, const float* b,
                      const ext_epilogue* e, float* y);

/* y[i][:] = a[i][:] b[group[i]] for i < m, or 0 where group[i] is not in [0, groups).  b: the
 * packed matrices, one after the other.  Fields of batch axes are 0. */
int ext_matmul_grouped(const ext_matmul_params* p, int64_t groups, const int64_t* group,
                       const float* a, const float* b, float* y);

/* ------------------------------------------------------------------ attention */

/* y[b][h][i][:] = sum_j p[i][j] v[b][h][j][:], where p[i][:] is the softmax over j < keys of
 * scale * (q[b][h][i] . k[b][h][j]) + mask[b][h][i][j].
 * q [batch, heads, queries, depth], k [.., keys, depth], v [.., keys, width], y [.., queries,
 * width]; strides are those of batch, head and row (0 broadcasts); the last axis is contiguous,
 * except that the mask may have stride 0 there.  k and v may have heads for groups of q's. */
typedef enum {
  EXT_GUARD_NONE = 0,
  EXT_GUARD_NAN = 1, /* rows of p[i] that have a NaN are 0, as those without a key are */
  EXT_GUARD_KEYS = 2 /* rows without a key are 0: those whose exponents are all -inf */
} ext_guard;
typedef struct {
  int64_t batch, heads, queries, keys, depth, width;
  float scale;
  int64_t q_strides[3], k_strides[3], v_strides[3], y_strides[3];
  int64_t mask_strides[4]; /* the last one is 0 or 1 */
  int64_t guarded;         /* an ext_guard */
  int64_t group;           /* heads that share one of k and v; 0 or 1: each has its own */
} ext_attention_params;
/* mask may be NULL. */
int ext_attention(const ext_attention_params* p, const float* q, const float* k, const float* v,
                  const float* mask, float* y);

/* ------------------------------------------------------------------ convolution */

/* y[n][oh][ow][o] = epilogue(sum_{kh,kw,c} x[n][oh sh + kh dh - top][ow sw + kw dw - left][c]
 *                                          * w[o][kh][kw][c]), x read as 0 outside the image. */
typedef struct {
  int64_t batch, in_h, in_w, in_c;
  int64_t out_h, out_w, out_c;
  int64_t kernel_h, kernel_w;
  int64_t stride_h, stride_w;
  int64_t pad_top, pad_left;
  int64_t dilation_h, dilation_w;
  int64_t groups;             /* divides in_c and out_c */
  int64_t x_stride, y_stride; /* between pixels; at least in_c, out_c */
  /* ext_conv2d with a window larger than 1 x 1: levels whose register tiles have so many rows, or
   * fewer, read the image in place; taller tiles pack their patches of it first.  EXT_TILE_ROWS:
   * all read in place; 0: all pack; ext_rows_in_place(stride_w * x_stride): what is fastest. */
  int64_t in_place_rows;
} ext_conv2d_params;

/* w: per group the panels of B[kernel_h * kernel_w * in_c/groups][out_c/groups], groups one after
 * the other.  The bias is [out_c], padded at its end only. */
int ext_conv2d(const ext_conv2d_params* p, const float* x, const float* w, const ext_epilogue* e,
               float* y);
/* ext_conv2d with a prologue; for 1 x 1 kernels with stride 1, no padding and one group. */
int ext_conv2d_prologue(const ext_conv2d_params* p, const ext_prologue* before, const float* x,
                        const float* w, const ext_epilogue* e, float* y);
/* ext_conv2d for 3 x 3 kernels with stride 1 and one group, by Winograd's F(m x m, 3 x 3) with tile
 * = m + 2 = 4, 6 or 8: fewer multiplications, rounding errors up to some 1e-6 of the result's
 * range. w: for each f = tile i + j the panels of (G g G^T)[i][j], an [in_c][out_c]. */
int ext_conv2d_winograd(const ext_conv2d_params* p, int32_t tile, const float* x, const float* w,
                        const ext_epilogue* e, float* y);
/* groups == in_c == out_c.  w is [kernel_h][kernel_w][channels padded to EXT_PANEL]. */
int ext_depthwise_conv2d(const ext_conv2d_params* p, const float* x, const float* w,
                         const ext_epilogue* e, float* y);

/* ext_conv2d for groups of O = out_c/groups outputs, a multiple of 16, or a divisor of it that is
 * at least in_c/groups; vectors of outputs are those of several groups where O is small.  w: the
 * panels of B[kernel_h * kernel_w * in_c/groups][out_c], where each output has its own group's. */
int ext_grouped_conv2d(const ext_conv2d_params* p, const float* x, const float* w,
                       const ext_epilogue* e, float* y);
/* ext_conv2d of one group for few outputs, EXT_PANEL at most; w is [out_c][kernel_h][kernel_w]
 * [in_c]. */
int ext_conv2d_few(const ext_conv2d_params* p, const float* x, const float* w,
                   const ext_epilogue* e, float* y);

/* y[n][oh][ow][o] = epilogue(sum x[n][ih][iw][c] * w[c][o][kh][kw]) over the c, kh, kw, ih, iw with
 * oh = ih sh + kh dh - top and ow = iw sw + kw dw - left: the transpose of ext_conv2d, in whose
 * parameters x is still the input.  w: per group the panels of B[in_c/groups][kernel_h * kernel_w *
 * out_c/groups].  y may not be the residual. */
int ext_conv2d_transpose(const ext_conv2d_params* p, const float* x, const float* w,
                         const ext_epilogue* e, float* y);

/* ------------------------------------------------------------------ resizing */

/* y[n][oh][ow][c] = sum_{i < taps_h, j < taps_w} row_weight[oh][i] * column_weight[ow][j]
 *                   * x[n][row[oh][i]][column[ow][j]][c]; x and y are dense. */
typedef struct {
  int64_t batch, in_h, in_w, out_h, out_w, channels;
  int64_t taps_h, taps_w;
} ext_resize2d_params;
/* row [out_h, taps_h], column [out_w, taps_w]; their entries lie inside the image. */
int ext_resize2d(const ext_resize2d_params* p, const int32_t* row, const float* row_weight,
                 const int32_t* column, const float* column_weight, const float* x, float* y);

typedef enum { EXT_RESIZE_NEAREST = 0, EXT_RESIZE_LINEAR, EXT_RESIZE_CUBIC } ext_resize_method;
typedef enum {
  EXT_RESIZE_HALF_PIXEL = 0,
  EXT_RESIZE_ALIGN_CORNERS,
  EXT_RESIZE_ASYMMETRIC,
  EXT_RESIZE_PYTORCH_HALF_PIXEL,
  EXT_RESIZE_TF_HALF_PIXEL_FOR_NN
} ext_resize_coordinates;
typedef enum {
  EXT_RESIZE_ROUND = 0,
  EXT_RESIZE_ROUND_PREFER_FLOOR,
  EXT_RESIZE_ROUND_PREFER_CEIL,
  EXT_RESIZE_FLOOR, /* of a position that rounded to just below a pixel, that pixel */
  EXT_RESIZE_CEIL,
  EXT_RESIZE_FLOOR_EXACT /* the floor itself, as in PyTorch */
} ext_resize_rounding;

/* The tables of ext_resize2d for an axis of extents known at the call only: from `extent` elements
 * (1 at least) to `count`.  at and weight: [count, taps]; 1 tap for nearest, 2 linear, 4 cubic. */
typedef struct {
  int64_t extent, count;
  ext_resize_method method;
  ext_resize_coordinates coordinates;
  ext_resize_rounding rounding;
  float cubic_alpha;
  int32_t cubic_exclude; /* taps outside of the image weigh nothing, instead of as its border */
  int32_t divided;       /* positions are divided by count / extent, as in ONNX Runtime */
} ext_resize_taps_params;
int ext_resize_taps(const ext_resize_taps_params* p, int32_t* at, float* weight);

/* ------------------------------------------------------------------ pooling, reductions */

typedef struct {
  int64_t batch, in_h, in_w, channels;
  int64_t out_h, out_w;
  int64_t kernel_h, kernel_w;
  int64_t stride_h, stride_w;
  int64_t pad_top, pad_left, pad_bottom, pad_right;
  int64_t dilation_h, dilation_w;
  int64_t x_stride, y_stride;
  int32_t count_include_pad; /* average only: divide by the window clipped to the padded image */
} ext_pool2d_params;

/* Padding never wins a maximum; a NaN in the window does.  The maximum of a window of padding
 * alone, or of -inf alone, is the least finite number. */
int ext_max_pool2d(const ext_pool2d_params* p, const float* x, float* y);
int ext_avg_pool2d(const ext_pool2d_params* p, const float* x, float* y);
/* Of EXT_INT8 or EXT_UINT8; the maximum of padding alone is the least that the dtype holds. */
int ext_max_pool2d_bytes(const ext_pool2d_params* p, ext_dtype dtype, const void* x, void* y);

/* y[n][oh][ow][c] = the mean of a window of x[n], whose rows are [oh in_h / out_h, (oh + 1) in_h /
 * out_h), the first rounded down, the second up, and its columns likewise; x and y are dense. */
typedef struct {
  int64_t batch, in_h, in_w, channels;
  int64_t out_h, out_w;
} ext_adaptive_pool_params;
int ext_adaptive_avg_pool2d(const ext_adaptive_pool_params* p, const float* x, float* y);

typedef enum {
  EXT_REDUCE_SUM = 0,
  EXT_REDUCE_MEAN,
  EXT_REDUCE_MAX,
  EXT_REDUCE_MIN,
  EXT_REDUCE_PROD,
  EXT_REDUCE_SUM_SQUARES,
  EXT_REDUCE_MEAN_SQUARES
} ext_reduce_kind;

/* y[o][i] = reduce over r of x[o][r][i], or of its squares; x is dense [outer, reduce, inner]. */
int ext_reduce(ext_reduce_kind kind, int64_t outer, int64_t reduce, int64_t inner, const float* x,
               float* y);

/* y[o][i] = the first r at which x[o][r][i] is greatest, or least; the first NaN where there is
 * one.  x is dense [outer, reduce, inner]; reduce > 0. */
int ext_argreduce(int32_t least, int64_t outer, int64_t reduce, int64_t inner, const float* x,
                  int64_t* y);

/* values[o][j][i] = the j-th greatest x[o][r][i] over r, or least, and indices[o][j][i] = its r, of
 * 0 <= j < k: equal values in the order of their indices, NaN above every number.  x is dense
 * [outer, extent, inner], a result [outer, k, inner], or NULL where nobody wants it.  k <= extent,
 * which an index and 32 bits can hold. */
typedef struct {
  int64_t outer, extent, inner;
  int64_t k;
  int32_t least;         /* 1 for the least ones */
  ext_dtype index_dtype; /* EXT_INT32 or EXT_INT64 */
} ext_topk_params;
int ext_topk(const ext_topk_params* p, const float* x, float* values, void* indices);

#ifdef __cplusplus
}
#endif

#include "ext_coupling.h"
#include "ext_distances.h"
#include "ext_fourier.h"
#include "ext_grid_sample.h"
#include "ext_norms.h"
#include "ext_roi_align.h"
#include "ext_rotary.h"
#include "ext_trees.h"

/* These have the blocks above as parameters. */
#include "ext_bfloat16.h"
#include "ext_integers.h"
#include "ext_quantised.h"
#include "ext_recurrent.h"
#include "ext_volumes.h"

#endif /* EXT_KERNELS_H_ */
