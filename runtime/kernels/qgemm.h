/* Internal: the blocked product of 8-bit integers under qmatmul and qconv2d. */
#ifndef EXT_QGEMM_H_
#define EXT_QGEMM_H_

#include "requantise.h"

enum { K_GROUP = 4 }; /* rows of B that are neighbours in a panel */

/* A tile of sums has QR rows and QN vectors of columns, or QHALF for the last columns.  K is read
 * by QK_STEP, where A has room for it, and rows of A by QROWS_STEP. */
#if defined(EXT_TILES)
enum { QR = 32, QN = 32 / VL, QHALF = 16 / VL, QK_STEP = 64, QROWS_STEP = 16 };
#else
enum { QR = QVR, QN = QVN, QHALF = 1, QK_STEP = K_GROUP, QROWS_STEP = 1 };
#endif

/* Whether m rows of sums of so many terms take less time on tiles than in vectors: tiles read whole
 * steps of K and of rows, and store sums before they become results.  (Emerald Rapids, vectors and
 * tiles: 112 x 112 pixels of 16 channels to 96 0.18 and 0.24 ms, 28 x 28 of 32 to 192 0.028 and
 * 0.029, 14 x 14 of 64 to 384 0.021 and 0.014; 1, 4 and 8 rows of 1280 to 1000 43 and 59, 56 and
 * 59, 62 and 46 us; 8 of 96 to 576 9 and 11, of 256 to 256 9 and 9.) */
EXT_INLINE int tiles_pay(int64_t m, int64_t terms) {
  return terms >= 32 && m > 4 && m * terms >= 2048;
}

enum {
  QTILE_N = QN * VL, /* columns of a full tile */
  QHALF_N = QHALF * VL
};

_Static_assert(EXT_PANEL % QTILE_N == 0 || QTILE_N % EXT_PANEL == 0, "tiles and panels do not fit");

typedef struct ext_qgemm ext_qgemm;

/* Rows of A are divided into lines, and tiles do not cross from one to the next: lines of the
 * output of a convolution, or else parts of m rows, even ones where QROWS_STEP is 1.  A row of A is
 * taps[0] times taps[1] runs of `run` elements, a multiple of K_GROUP, which lie tap_step[0] and
 * tap_step[1] apart. */
struct ext_qgemm {
  int64_t m, n;
  int64_t terms;       /* of a sum, as EXT_QUANTISED_TERMS counts them */
  int64_t lines;       /* of all images */
  int64_t width;       /* rows in a line; 0: about m / lines */
  int64_t image_lines; /* lines in an image, of which blocks take one at a time */
  int64_t run, taps[2], tap_step[2];
  /* Between rows, lines and images of A, in elements of qa.  Where `width` is 0 the lines of an A
   * that is read in place follow one another. */
  int64_t a_row, a_line, a_image;
  /* Writes the rows of lines [first, past) of one image to dst, a_row and a_line apart; `offset` is
   * the batch item's place in A.  NULL where A is read in place. */
  void (*pack)(const ext_qgemm* g, int64_t offset, int64_t first, int64_t past, qa* dst);
  const void* source;
  int64_t packed_more; /* elements that are packed beyond a_line for each line */
  /* Lines, from the first on, that can be read in place all the same: what their last step of K
   * reads too much belongs to later rows. */
  int64_t lines_in_place;
  const uint8_t* a;  /* A itself, where pack is NULL */
  ext_dtype x_dtype; /* EXT_UINT8 or EXT_INT8 */
  const int8_t* panels;
  void* y;
  int64_t y_row;
  requantise_plan plan;
  int32_t batch_ndim;
  int64_t batch[4], a_batch[4], b_batch[4], y_batch[4], residual_batch[4], column_batch[4];
};

/* A plain A [m][k] with any strides. */
typedef struct {
  const uint8_t* a;
  int64_t k, row, column;
} qgemm_matrix;

/* Makes a plain matrix the rows of A; `g` keeps a pointer to it. */
void EXT_NAME(ext_qgemm_rows)(ext_qgemm* g, const qgemm_matrix* a, ext_dtype x_dtype);
/* Fills in what x and what follows ask for.  EXT_ERR_ARGUMENT: see ext_quantised.h. */
int EXT_NAME(ext_qgemm_plan)(ext_qgemm* g, ext_dtype x_dtype, int32_t x_zero,
                             const ext_requantise* e);
/* y = requantise(A B) for every batch item, on all threads. */
int EXT_NAME(ext_qgemm_run)(const ext_qgemm* g);

/* The first row of a line. */
EXT_INLINE int64_t qgemm_first_row(const ext_qgemm* g, int64_t line) {
  if (g->width) return line * g->width;
  return QROWS_STEP > 1 ? i64_min(line * QR, g->m) : line * g->m / g->lines;
}

/* What a level adds to an x that it packs: units multiply bytes of one sign only. */
EXT_INLINE int32_t qa_shift(ext_dtype x_dtype) {
#if defined(EXT_DOT_WIDE) || defined(EXT_TILES)
  (void)x_dtype;
  return 0;
#elif defined(EXT_DOT_SIGNED)
  return x_dtype == EXT_UINT8 ? -128 : 0;
#else
  return x_dtype == EXT_INT8 ? 128 : 0;
#endif
}

/* Whether x can be multiplied where it lies: as the bytes that it is, in whole steps, `row` bytes
 * from one row of A to the next, of which a line has `rows`.  A step that reads whole lines of L1
 * need not find them there again. */
EXT_INLINE int qa_in_place(ext_dtype x_dtype, int64_t run, int64_t row, int64_t rows) {
  int64_t floats = (row < 0 ? -row : row) / (int64_t)sizeof(float);
  int spread = QROWS_STEP > 1 || row % (int64_t)sizeof(float) || QR <= ext_rows_in_place(floats);
  if (run % QK_STEP || rows % QROWS_STEP) return 0;
  return sizeof(qa) == 1 && qa_shift(x_dtype) == 0 && spread;
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
