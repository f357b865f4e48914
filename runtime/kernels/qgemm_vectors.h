/*
 * qgemm_vectors.h - a tile of sums in vectors (see qgemm_tile.h): one function for each number of
 * rows, with QN vectors of columns and with one, made from one always-inlined body whose loops
 * unroll completely.
 */
#ifndef EXT_QGEMM_VECTORS_H_
#define EXT_QGEMM_VECTORS_H_

#include "qgemm_tile.h"

/* The sums of a tile, as they are. */
EXT_INLINE void qtile_store(const int rows, const int nv, const qgemm_tile* t,
                            const vq acc[QR][QN]) {
  const int64_t width = t->width;
  EXT_UNROLL
  for (int v = 0; v < nv; v++) {
    const vi start = vi_load(t->columns->start + v * VL);
    EXT_UNROLL
    for (int i = 0; i < rows; i++) vi_store(t->sums + i * width + v * VL, vq_sum(acc[i][v], start));
  }
}

/* The results of a tile, as many rows at once as fill a vx. */
EXT_INLINE void qtile_finish(const int rows, const int nv, const qgemm_tile* t,
                             const vq acc[QR][QN]) {
  enum { MOST = 4 };
  const int at_once = MOST / nv;
  const vx_steps steps = *t->steps;
  const int64_t y_row = t->y_row;
  vi start[QN];
  vf factor[QN], shift[QN];
  EXT_UNROLL
  for (int v = 0; v < nv; v++) {
    start[v] = vi_load(t->columns->start + v * VL);
    factor[v] = vf_load(t->columns->factor + v * VL);
    shift[v] = vf_load(t->columns->shift + v * VL);
  }
  EXT_UNROLL
  for (int i = 0; i < rows; i += at_once) {
    vf value[MOST];
    EXT_UNROLL
    for (int k = 0; k < MOST; k++) {
      const int row = i + k / nv < rows ? i + k / nv : i, v = k % nv;
      value[k] = vf_fma(vi_to_vf(vq_sum(acc[row][v], start[v])), factor[v], shift[v]);
    }
    const vx bytes = vx_in_order(vx_of_tame_steps(value[0], value[1], value[2], value[3], &steps));
    EXT_UNROLL
    for (int r = 0; r < at_once; r++)
      if (i + r < rows) vx_store_piece(t->y + (i + r) * y_row, bytes, r, at_once);
  }
}

#if defined(EXT_DOT_PAIRS)
#include "qgemm_pairs.h"
#else

/* All parameters but t are constants.  A pointer to every third row and the distance of rows, which
 * x86 adds once or twice in a load, take fewer registers than a pointer for each. */
EXT_INLINE void qtile_body(const int rows, const int nv, const qgemm_tile* t) {
  enum { THIRDS = (QR + 2) / 3 };
  const int64_t b_step = t->b_step, a_row = t->a_row;
  const int8_t *b = t->b, *next = t->next;
  const qa* a[THIRDS];
  vq acc[QR][QN];
  EXT_UNROLL
  for (int i = 0; i < THIRDS; i++) a[i] = t->a + 3 * i * a_row;
  EXT_UNROLL
  for (int v = 0; v < nv; v++) {
    const vq start = vq_start(vi_load(t->columns->start + v * VL));
    EXT_UNROLL
    for (int i = 0; i < rows; i++) acc[i][v] = start;
  }
  for (int64_t h = t->taps[0]; h > 0; h--) {
    for (int64_t w = t->taps[1]; w > 0; w--) {
      EXT_NO_UNROLL
      for (int64_t g = t->groups; g > 0; g--) {
        vqb row[QN];
        __builtin_prefetch(next, 0, 2);
        next += t->next_step;
        EXT_UNROLL
        for (int v = 0; v < nv; v++) row[v] = vq_panel(b + v * b_step);
        EXT_UNROLL
        for (int i = 0; i < rows; i++) {
          vqa four = vq_row(a[i / 3] + i % 3 * a_row);
          EXT_UNROLL
          for (int v = 0; v < nv; v++) acc[i][v] = vq_dot(acc[i][v], four, row[v]);
        }
        EXT_UNROLL
        for (int i = 0; i < THIRDS; i++) a[i] += K_GROUP;
        b += K_GROUP * EXT_PANEL;
      }
      EXT_UNROLL
      for (int i = 0; i < THIRDS; i++) a[i] += t->skip[1];
    }
    EXT_UNROLL
    for (int i = 0; i < THIRDS; i++) a[i] += t->skip[0];
  }
  if (t->finish)
    qtile_finish(rows, nv, t, acc);
  else
    qtile_store(rows, nv, t, acc);
}

#endif

#define EXT_QTILE_1(rows, k, i)                     \
  static void qtile_1_##rows(const qgemm_tile* t) { \
    qtile_body(rows, 1, t);                         \
  }
#define EXT_QTILE_N(rows, k, i)                     \
  static void qtile_n_##rows(const qgemm_tile* t) { \
    qtile_body(rows, QN, t);                        \
  }
#define EXT_QTILE_ENTRY_1(rows, k, i) qtile_1_##rows,
#define EXT_QTILE_ENTRY_N(rows, k, i) qtile_n_##rows,
EXT_QROWS(EXT_QTILE_1, 0, 0)
EXT_QROWS(EXT_QTILE_N, 0, 0)

/* Vectors have no tile of several lines. */
EXT_INLINE int64_t qtile_lines(int64_t rows, int64_t step) {
  (void)rows, (void)step;
  return 0;
}

/* Nor are ends of runs copied. */
EXT_INLINE int64_t qtile_ends_size(const ext_qgemm* g) {
  (void)g;
  return 0;
}
EXT_INLINE void qtile_copy_ends(const qgemm_tile* t, int wide, int8_t* ends) {
  (void)t, (void)wide, (void)ends;
}

/* The function for a tile of so many rows, and of all vectors of columns or of one. */
EXT_INLINE qgemm_tile_function qtile_function(int64_t rows, int all) {
  static const qgemm_tile_function table[2][QR] = {{EXT_QROWS(EXT_QTILE_ENTRY_1, 0, 0)},
                                                   {EXT_QROWS(EXT_QTILE_ENTRY_N, 0, 0)}};
  return table[all][rows - 1];
}

EXT_INLINE void qtile_session_begin(void) {}
EXT_INLINE void qtile_session_end(void) {}

#endif /* EXT_QGEMM_VECTORS_H_ */
