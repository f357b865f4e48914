/* Internal: the blocked matrix product under matmul and conv2d. */
#ifndef EXT_GEMM_H_
#define EXT_GEMM_H_

#include "../simd/simd.h"

enum {
  TILE_N = NV * VL, /* columns of a full tile */
  KC = 2048,        /* a block of K: sums are seldom read and written again in between */
  /* Floats between packed rows: 129 lines, so that rows use different sets of L1. */
  A_STRIDE = KC + 16,
  MC_LEAST = 3, /* micropanels in one block of A */
  MC_MOST = 224 / MR,
  EXT_UNPACK_STEP = 8
};

_Static_assert(MR <= EXT_TILE_ROWS, "a tile taller than the header tells");

typedef struct {
  int64_t m, n, k;
  /* Copies A[row .. row + rows)[k0 .. k0 + kc) to dst, A_STRIDE floats from row to row; `offset` is
   * the batch item's place in A.  NULL where A is the plain matrix a. */
  void (*pack)(const void* source, int64_t offset, int64_t row, int64_t rows, int64_t k0,
               int64_t kc, float* dst);
  const void* source;
  const float* a; /* where pack is NULL: A itself, rows a_row apart, columns adjacent */
  int64_t a_row;
  const ext_prologue*
      prologue;       /* NULL, or what to apply to the plain matrix; columns are channels */
  int64_t image_rows; /* rows of an image, for the prologue's scale */
  const float* panels;
  int64_t panel_rows; /* that a panel has in memory; 0: k */
  /* Where it is not NULL, B is not in `panels`: it writes rows [k0, k0 + kc) of a panel of
   * `weight`, which has k rows, to dst [kc][EXT_PANEL], and whatever to what is left of the last
   * EXT_UNPACK_STEP rows.  k0 is a multiple of these. */
  void (*unpack)(const void* weight, int64_t k, int64_t panel, int64_t k0, int64_t kc, float* dst);
  const void* weight;
  float* y;
  int64_t y_row;
  ext_epilogue epilogue;
  int32_t batch_ndim;
  int64_t batch[4], a_batch[4], b_batch[4], y_batch[4], residual_batch[4], bias_batch[4];
} ext_gemm;

/* A of a matmul: columns may be apart. */
typedef struct {
  const float* a;
  int64_t a_row, a_col;
} ext_matmul_source;

/* Describes a matmul but for B; `source` has to stay as long as `g`. */
int EXT_NAME(ext_matmul_gemm)(const ext_matmul_params* p, ext_matmul_source* source, const float* a,
                              const ext_epilogue* e, float* y, ext_gemm* g);
/* y = epilogue(A B) for every batch item, on all threads. */
int EXT_NAME(ext_gemm_run)(const ext_gemm* g);
/* One batch item on the calling thread; operands already point at it. */
int EXT_NAME(ext_gemm_serial)(const ext_gemm* g, int64_t a_offset);

/* gemm_parts.c: whether tiles of bf16 take less time for the product than vectors, and rows
 * [row, row_end) times columns [j0, j1) on them; row counts from a multiple of GEMM_PARTS_ROWS, j0
 * is one of GEMM_PARTS_COLUMNS.  In whichever row of ext_isa.h the CPU has. */
enum { GEMM_PARTS_ROWS = 32, GEMM_PARTS_COLUMNS = 32 };
int ext_gemm_parts_fit(const ext_gemm* g);
int ext_gemm_parts_range(const ext_gemm* g, int64_t a_offset, int64_t row, int64_t row_end,
                         int64_t j0, int64_t j1);

/* dst[p][c] = b[p b_row + c b_col], p < k, c < columns <= EXT_PANEL, further columns as zero: one
 * panel of B. */
void EXT_NAME(ext_pack_panel)(int64_t k, int64_t columns, const float* b, int64_t b_row,
                              int64_t b_col, float* dst);

#endif /* EXT_GEMM_H_ */
