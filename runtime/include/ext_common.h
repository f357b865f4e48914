/*
 * ext_common.h - what all kernels share: constants, statuses, dtypes, instruction sets, threads and
 * scratch memory, and what they apply to operands and results on the way.
 *
 * ext_kernels.h includes it, and is what generated code and libraries include.
 */
#ifndef EXT_COMMON_H_
#define EXT_COMMON_H_

#include <stddef.h>
#include <stdint.h>

#include "ext_isa.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EXT_ABI_VERSION 1
#define EXT_PANEL 16     /* columns in one panel of packed weights */
#define EXT_MAX_DIMS 8   /* rank limit of strided kernels */
#define EXT_ALIGN 64     /* bytes; alignment of packed weights, arenas and workspaces */
#define EXT_TILE_ROWS 14 /* of the tallest register tile of any level */

typedef enum {
  EXT_OK = 0,
  EXT_ERR_MEMORY = 1,   /* scratch memory could not be allocated */
  EXT_ERR_ARGUMENT = 2, /* a parameter block that this kernel does not support */
  EXT_ERR_THREADS = 3,  /* the thread pool reported a failure */
  EXT_ERR_INDEX = 4     /* an index lies outside of the axis that it indexes */
} ext_status;

/* One constant line of text for an ext_status. */
const char* ext_status_string(int status);

/* The two of 16 bits are stored, moved and converted; ext_bfloat16.h multiplies bf16. */
typedef enum {
  EXT_FLOAT32 = 0,
  EXT_INT32,
  EXT_INT64,
  EXT_BOOL,
  EXT_INT8,
  EXT_UINT8,
  EXT_FLOAT16, /* uint16_t in C, as is the next */
  EXT_BFLOAT16
} ext_dtype;

/* ------------------------------------------------------------------ instruction sets */

/* EXT_ISA_avx2 and so on: the rows of the table, whose order says nothing of which CPU has which.
 */
#define EXT_ISA_ENUMERATOR(name, architecture, families, fallback, test, unused) EXT_ISA_##name,
typedef enum { EXT_ISA_TABLE(EXT_ISA_ENUMERATOR, 0) } ext_isa;
#undef EXT_ISA_ENUMERATOR

/* The instruction sets that kernels may use, bit i for the ext_isa i: those that CPU and operating
 * system offer, or the one that the environment variable BYOC_ISA names with all that it falls back
 * on.  Decided once per process. */
uint32_t ext_isas(void);
/* Those that CPU and operating system offer, whatever BYOC_ISA says. */
uint32_t ext_isas_offered(void);
/* The first row in use that every kernel is compiled for, and its name. */
ext_isa ext_isa_level(void);
const char* ext_isa_name(void);
/* NULL, or why BYOC_ISA cannot be honoured (unknown name, not for this architecture, or the CPU
 * lacks it). */
const char* ext_isa_error(void);

/* ------------------------------------------------------------------ threads and scratch */

/* Runs body(ctx, begin, end) over disjoint ranges that cover [0, n), on as many threads as TVM is
 * told to use, where the process has it, else on the calling thread; in a standalone model on the
 * threads of the instance.  Ranges are claimed `grain` items at a time, so that a busy core takes
 * fewer.  Returns the first non-zero status of a body, or EXT_ERR_THREADS. */
typedef int (*ext_range_body)(void* ctx, int64_t begin, int64_t end);
int ext_parallel_for(int64_t n, int64_t grain, ext_range_body body, void* ctx);
/* Number of threads that ext_parallel_for can use from the calling thread (at least 1). */
int ext_num_threads(void);
/* The same for a library with threads of its own, which is told at each run: 1 in a forked child,
 * which has none of those that it began in the parent. */
int ext_threads_of_library(void);

/* Bytes of the caches, L1 (of data) and L2 those of one core, as the system tells them while the
 * library is loaded. */
typedef struct {
  int64_t l1, l2, l3;
} ext_caches;
const ext_caches* ext_cache_sizes(void);
/* How many rows that begin `row` floats apart a register tile can read where they lie, at most
 * EXT_TILE_ROWS: it touches a line of each in turn, and has to find them in L1 again.  Rows of
 * taller tiles are packed first. */
int64_t ext_rows_in_place(int64_t row);

/* 64-byte aligned memory from the calling thread's cache; NULL when there is none. Free on the
 * same thread, last allocated first. */
void* ext_workspace_alloc(size_t bytes);
void ext_workspace_free(void* memory);

/* ------------------------------------------------------------------ elementwise functions */

typedef enum {
  EXT_IDENTITY = 0,
  EXT_RELU,         /* max(x, 0) */
  EXT_CLIP,         /* min(max(x, alpha), beta) */
  EXT_SIGMOID,      /* 1 / (1 + exp(-x)) */
  EXT_SILU,         /* x * sigmoid(x) */
  EXT_HARD_SIGMOID, /* min(max(alpha x + beta, 0), 1) */
  EXT_HARD_SWISH,   /* x * min(max(x / 6 + 1/2, 0), 1) */
  EXT_GELU,         /* x / 2 * (1 + erf(x / sqrt(2))) */
  EXT_GELU_TANH,    /* x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
  EXT_TANH,
  EXT_LEAKY_RELU, /* x < 0 ? alpha x : x */
  EXT_EXP,
  EXT_LOG,
  EXT_ERF,
  EXT_SQRT,
  EXT_RSQRT,
  EXT_ABS,
  EXT_NEG,
  EXT_ELU,      /* x < 0 ? alpha (exp(x) - 1) : x */
  EXT_SELU,     /* 1.0507010 (x < 0 ? 1.6732632 (exp(x) - 1) : x) */
  EXT_MISH,     /* x * tanh(log(1 + exp(x))) */
  EXT_SOFTPLUS, /* log(1 + exp(x)) */
  EXT_FLOOR,
  EXT_CEIL,
  EXT_ROUND, /* to the nearest integer, halves to the even one */
  EXT_SIN,
  EXT_COS,
  EXT_TAN,
  EXT_ATAN,
  EXT_ASIN,
  EXT_ACOS,
  EXT_ASINH,
  EXT_ACOSH,
  EXT_ATANH,
  EXT_SIGN, /* -1, 0 or 1 */
  EXT_RECIPROCAL,
  EXT_EXPM1, /* exp(x) - 1 */
  EXT_LOG1P, /* log(1 + x) */
  EXT_TRUNC  /* towards 0 */
} ext_unary_kind;

typedef struct {
  ext_unary_kind kind;
  float alpha, beta;
} ext_activation;

/* y = after(before(acc + bias) + residual), applied to an [M, N] result in registers.
 * An absent part is NULL or EXT_IDENTITY; kernels take NULL for an epilogue without parts.
 * Products of matrices, ext_matmul and its kin, multiply by the residual where it is a factor. */
typedef struct {
  const float* bias; /* [N padded to EXT_PANEL] */
  ext_activation before;
  const float* residual;   /* [M, N]; may be y itself */
  int64_t residual_stride; /* between rows (pixels) of residual */
  ext_activation after;
  int residual_is_factor; /* y = after(before(acc + bias) * residual) */
} ext_epilogue;

/* What a kernel applies to its input as it reads it: activation(x[n][..][c] * scale[n scale_stride
 * + c] + shift[c]) for the images n.  An absent part is NULL or EXT_IDENTITY. */
typedef struct {
  const float *scale, *shift; /* [in_c], [in_c]; of each image where scale_stride is not 0 */
  int64_t scale_stride;
  ext_activation activation;
} ext_prologue;

#ifdef __cplusplus
}
#endif
#endif /* EXT_COMMON_H_ */
