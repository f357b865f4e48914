/* Internal: the blocked product of 8-bit integers under qmatmul and qconv2d. */
#ifndef EXT_QGEMM_H_
#define EXT_QGEMM_H_

#include "requantise.h"

enum {
  QTILE_N = QN * VL, /* columns of a full tile */
  K_GROUP = 4        /* rows of B that are neighbours in a panel */
};

_Static_assert(EXT_PANEL % QTILE_N == 0 || QTILE_N % EXT_PANEL == 0, "tiles and panels do not fit");

typedef struct {
  int64_t m, n, k;
  /* Writes rows [row, row + rows) of A to dst, `stride` elements from row to row; `offset` is the
   * batch item's place in A.  NULL where A is the plain matrix a. */
  void (*pack)(const void* source, int64_t offset, int64_t row, int64_t rows, qa* dst,
               int64_t stride);
  const void* source;
  const uint8_t* a; /* where pack is NULL: A itself, rows a_row apart, columns adjacent */
  int64_t a_row;
  ext_dtype x_dtype; /* EXT_UINT8 or EXT_INT8 */
  const int8_t* panels;
  void* y;
  int64_t y_row;
  requantise_plan plan;
  int32_t batch_ndim;
  int64_t batch[4], a_batch[4], b_batch[4], y_batch[4], residual_batch[4], column_batch[4];
} ext_qgemm;

/* Fills in what x and what follows ask for.  EXT_ERR_ARGUMENT: see ext_quantised.h. */
int EXT_NAME(ext_qgemm_plan)(ext_qgemm* g, ext_dtype x_dtype, int32_t x_zero,
                             const ext_requantise* e);
/* y = requantise(A B) for every batch item, on all threads. */
int EXT_NAME(ext_qgemm_run)(const ext_qgemm* g);

/* What a level adds to an x that it packs: units multiply bytes of one sign only. */
EXT_INLINE int32_t qa_shift(ext_dtype x_dtype) {
#if defined(EXT_DOT_WIDE)
  (void)x_dtype;
  return 0;
#elif defined(EXT_DOT_SIGNED)
  return x_dtype == EXT_UINT8 ? -128 : 0;
#else
  return x_dtype == EXT_INT8 ? 128 : 0;
#endif
}

/* dst[i] = x[i] as packed, i < n. */
EXT_INLINE void qa_run(ext_dtype x_dtype, qa* restrict dst, const uint8_t* restrict x, int64_t n) {
#if defined(EXT_DOT_WIDE)
  if (x_dtype == EXT_INT8)
    for (int64_t i = 0; i < n; i++) dst[i] = (int8_t)x[i];
  else
    for (int64_t i = 0; i < n; i++) dst[i] = x[i];
#else
  const uint8_t flip = qa_shift(x_dtype) ? 0x80 : 0;
  uint8_t* bytes = (uint8_t*)dst;
  for (int64_t i = 0; i < n; i++) bytes[i] = x[i] ^ flip;
#endif
}

/* dst[i] = one x as packed, i < n. */
EXT_INLINE void qa_fill(ext_dtype x_dtype, qa* dst, int32_t x, int64_t n) {
  const qa value = (qa)(x + qa_shift(x_dtype));
  for (int64_t i = 0; i < n; i++) dst[i] = value;
}

#endif /* EXT_QGEMM_H_ */
