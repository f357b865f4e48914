/* Internal: the blocked product of bf16 matrices under matmul_bf16 and conv2d_bf16, and that of
 * fp32 ones as sums of two bf16 (EXT_PARTS 2) under matmul_bf16x3 and conv2d_bf16x3. */
#ifndef EXT_BGEMM_H_
#define EXT_BGEMM_H_

#include "../simd/bf16.h"

/* A tile of sums has BR rows and BN vectors of columns, or BHALF for the last columns.  K is read
 * by BK_STEP; what is packed has zeros up to there.  Rows of A are read by BROWS_STEP. */
#if defined(EXT_TILES)
enum { BR = 32, BN = 32 / VL, BHALF = 16 / VL, BK_STEP = 32, BROWS_STEP = 16 };
enum { BFEW = 0, BLONE = 0 };
/* Steps along K between two looks at the sums: B's share of a tile is found in L1 by BSHARED
 * micropanels and more, which is 16 KB.  A passes L1 by, so that where BLONG micropanels and
 * columns share the work of bringing B, the double leaves room as well. */
enum { BK_PART = 256 / EXT_PARTS, BSHARED = 2, BLONG = 6, BLONG_COLUMNS = 128 };
enum { BMC_MOST = 32 }; /* micropanels in one block of A at most */
#else
enum { BR = BVR, BN = BVN, BHALF = 1, BK_STEP = 2, BROWS_STEP = 1 };
enum {
  BFEW = BWIDE_ROWS,
  BLONE = 1
}; /* rows of products whose tiles have BWIDE vectors, a panel */
enum { BMC_MOST = 16 };
#endif

/* Parts that a packed row of A has, one after the other. */
#if defined(EXT_TILES)
enum { BA_PARTS = EXT_PARTS };
#else
enum { BA_PARTS = 1 };
#endif

enum {
  BTILE_N = BN * VL,                         /* columns of a full tile */
  BWIDE_N = BFEW ? BWIDE * VL : BTILE_N,     /* of one with few rows */
  BPAIR = EXT_PARTS * 2 * EXT_PANEL,         /* elements of two rows of a panel */
  BKC = 8192 / (BA_PARTS * (int)sizeof(ba)), /* a block of K, even: as many bytes as in gemm.h */
  BA_STRIDE = BA_PARTS * BKC +
      EXT_ALIGN / (int)sizeof(ba), /* between packed rows at most: an odd number of lines */
  BMC_LEAST = 3                    /* micropanels in one block of A */
};
#if !defined(EXT_TILES)
enum { BK_PART = BKC, BSHARED = 0, BLONG = 0, BLONG_COLUMNS = 0 };
#endif

typedef struct {
  int64_t m, n, k;
  ext_storage s;
  /* Writes A[row .. row + rows)[k0 .. k0 + kc) to dst, `stride` elements from row to row, by
   * ba_run and ba_zeros; `offset` is the batch item's place in A.  NULL where A is the plain matrix
   * a. */
  void (*pack)(const void* source, int64_t offset, int64_t row, int64_t rows, int64_t k0,
               int64_t kc, ba* dst, int64_t stride);
  const void* source;
  const void* a; /* where pack is NULL: A itself, rows a_row apart, columns adjacent */
  int64_t a_row;
  const ext_prologue*
      prologue; /* NULL, or what to apply to the plain matrix; columns are channels; one part */
  int64_t image_rows; /* rows of an image, for the prologue's scale */
  const uint16_t* panels;
  void* y;
  int64_t y_row;
  ext_epilogue epilogue; /* its residual is stored as s tells */
  int32_t batch_ndim;
  int64_t batch[4], a_batch[4], b_batch[4], y_batch[4], residual_batch[4], bias_batch[4];
} ext_bgemm;

/* y = epilogue(A B) for every batch item, on all threads. */
#if EXT_PARTS == 2
#define EXT_BGEMM_RUN EXT_NAME(ext_bgemm_x3_run)
#else
#define EXT_BGEMM_RUN EXT_NAME(ext_bgemm_run)
#endif
int EXT_BGEMM_RUN(const ext_bgemm* g);

/* EXT_OK, or EXT_ERR_ARGUMENT where something is stored in another dtype. */
EXT_INLINE int check_storage(const ext_storage* s, const ext_epilogue* e) {
  const ext_dtype dtypes[] = {s->x, s->y, e && e->residual ? s->residual : s->y};
  for (int i = 0; i < 3; i++)
    if (dtypes[i] != EXT_FLOAT32 && dtypes[i] != EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  return EXT_OK;
}

/* The element `index` behind p; p may be NULL with an index of 0. */
EXT_INLINE const void* stored_at(const void* p, ext_dtype dtype, int64_t index) {
  return (const char*)p + index * (dtype == EXT_BFLOAT16 ? 2 : 4);
}

/* dst[i] = x[i] as packed, i < n.  What has two parts is fp32. */
EXT_INLINE void ba_run(ext_dtype dtype, ba* restrict dst, const void* restrict x, int64_t n) {
#if EXT_PARTS == 1
  if (dtype == EXT_BFLOAT16)
    ba_run_of_bf16(dst, x, n);
  else
    ba_run_of_float(dst, x, n);
#else
  (void)dtype;
#if defined(EXT_TILES)
  ba_parts_of_float(dst, dst + BKC, x, n);
#else
  const float* from = x;
  int64_t i = 0;
  for (; i + VL <= n; i += VL) vf_store(dst + i, vf_load(from + i));
  if (i < n) vf_store_n(dst + i, vf_load_n(from + i, n - i), n - i);
#endif
#endif
}

/* dst[i] = 0 as packed, i < n. */
EXT_INLINE void ba_zeros(ba* dst, int64_t n) {
  for (int part = 0; part < BA_PARTS; part++)
    for (int64_t i = 0; i < n; i++) dst[part * BKC + i] = 0;
}

#endif /* EXT_BGEMM_H_ */
