/*
 * bgemm_vectors.h - a tile of sums in vectors (see bgemm_tile.h): one function for each number of
 * rows and of vectors, made from one always-inlined body whose loops unroll completely.
 */
#ifndef EXT_BGEMM_VECTORS_H_
#define EXT_BGEMM_VECTORS_H_

#include "bgemm_lone.h"

/* Few rows wait for B, which they read once: each of its panels is fetched so many elements ahead,
 * 2 KB (m = 8 from memory: 30 GB/s instead of 23 on Zen 5).  More rows read it again from L2. */
enum { BFEW_ROWS = 8, BAHEAD = 1024 };

/* Lines that the end will touch come meanwhile, one row in each of the first steps: those of y,
 * then those of the residual. */
/* The next tile's B, whose panels begin at `b` and of which there are `panels`, is fetched by the
 * first micropanels, panel by panel. */
EXT_INLINE void btile_plan_fetch(bgemm_tile* t, const uint16_t* b, int64_t panels, int64_t index,
                                 int64_t count) {
  (void)count;
  t->next = index < i64_min(panels, ceil_div(BTILE_N, EXT_PANEL)) ? b + index * t->panel : t->b;
}

typedef struct {
  const char* at;
  int64_t row, left; /* bytes between rows; rows to come */
} btile_fetch;

EXT_INLINE btile_fetch btile_fetch_begin(const int rows, const bgemm_tile* t) {
  return (btile_fetch){t->y, t->y_row * (t->s.y == EXT_BFLOAT16 ? 2 : 4),
                       t->residual ? 2 * rows : rows};
}

EXT_INLINE void btile_fetch_step(const int rows, const int nv, const bgemm_tile* t,
                                 btile_fetch* f) {
  EXT_UNROLL
  for (int v = 0; v < nv; v++) __builtin_prefetch(f->at + v * VL * 4);
  f->left--;
  if (f->left == rows) {
    f->at = t->residual;
    f->row = t->residual_row * (t->s.residual == EXT_BFLOAT16 ? 2 : 4);
  } else if (f->left > 0) {
    f->at += f->row;
  }
}

/* Where vector v of columns of a pair of rows lies, from the first one on. */
EXT_INLINE int64_t btile_vector(int64_t panel, const int v) {
  enum { PER_PANEL = EXT_PANEL / VL };
  return v / PER_PANEL * panel + v % PER_PANEL * VL * 2;
}

/* All parameters but t are constants.  A pointer to every third row and the distance of rows, which
 * x86 adds once or twice in a load, take fewer registers than a pointer for each.  What is fewer
 * stays in registers for a step: vectors of B, or of a wide tile rows of A. */
EXT_INLINE void btile_body(const int rows, const int nv, const bgemm_tile* t) {
  enum { THIRDS = (BR + 2) / 3 };
  const int64_t panel = t->panel, a_row = t->a_row;
  const uint16_t *b = t->b, *next = t->next;
  const ba* a[THIRDS];
  vf acc[BR][BWIDE];
  EXT_UNROLL
  for (int i = 0; i < THIRDS; i++) a[i] = t->a + 3 * i * a_row;
  btile_begin(rows, nv, t, acc);
  btile_fetch fetch = btile_fetch_begin(rows, t);
  EXT_NO_UNROLL
  for (int64_t p = t->pairs; p > 0; p--) {
    btile_fetch_step(rows, nv > 2 ? 2 : nv, t, &fetch);
    if (nv <= BN) {
      vbb row[BN];
      EXT_UNROLL
      for (int v = 0; v < nv; v++) row[v] = vb_panel(b + btile_vector(panel, v));
      EXT_UNROLL
      for (int i = 0; i < rows; i++) {
        vba two = vb_row(a[i / 3] + i % 3 * a_row);
        EXT_UNROLL
        for (int v = 0; v < nv; v++) acc[i][v] = vb_dot(acc[i][v], two, row[v]);
      }
    } else {
      vba two[BWIDE_ROWS];
      EXT_UNROLL
      for (int i = 0; i < rows; i++) two[i] = vb_row(a[i / 3] + i % 3 * a_row);
      EXT_UNROLL
      for (int v = 0; v < nv; v++) {
        vbb row = vb_panel(b + btile_vector(panel, v));
        EXT_UNROLL
        for (int i = 0; i < rows; i++) acc[i][v] = vb_dot(acc[i][v], two[i], row);
      }
    }
    EXT_UNROLL
    for (int part = 0; part < EXT_PARTS; part++) {
      const int64_t line = part * 2 * EXT_PANEL;
      if (rows <= BFEW_ROWS) {
        EXT_UNROLL
        for (int v = 0; v < nv; v++) __builtin_prefetch(b + btile_vector(panel, v) + line + BAHEAD);
      } else {
        __builtin_prefetch(next + line, 0, 2);
      }
    }
    EXT_UNROLL
    for (int i = 0; i < THIRDS; i++) a[i] += 2;
    b += BPAIR;
    next += BPAIR;
  }
  /* What the end reads of *t is read anew: registers are for the loop. */
  __asm__("" : "+r"(t) : : "memory");
  btile_end(rows, nv, t, acc);
}

#define EXT_BTILE_1(rows, k, i)                     \
  static void btile_1_##rows(const bgemm_tile* t) { \
    btile_body(rows, 1, t);                         \
  }
#define EXT_BTILE_N(rows, k, i)                     \
  static void btile_n_##rows(const bgemm_tile* t) { \
    btile_body(rows, BN, t);                        \
  }
/* Rows past BWIDE_ROWS have no wide tile. */
#define EXT_BTILE_WIDE(rows, k, i)                                               \
  static void btile_wide_##rows(const bgemm_tile* t) {                           \
    if (rows <= BWIDE_ROWS) btile_body(rows <= BWIDE_ROWS ? rows : 1, BWIDE, t); \
  }
#define EXT_BTILE_ENTRY_1(rows, k, i) btile_1_##rows,
#define EXT_BTILE_ENTRY_N(rows, k, i) btile_n_##rows,
#define EXT_BTILE_ENTRY_WIDE(rows, k, i) btile_wide_##rows,
EXT_BROWS(EXT_BTILE_1, 0, 0)
EXT_BROWS(EXT_BTILE_N, 0, 0)
EXT_BROWS(EXT_BTILE_WIDE, 0, 0)

/* The function for a tile of so many rows and vectors: 1, BN, or of at most BWIDE_ROWS rows BWIDE.
 */
EXT_INLINE bgemm_tile_function btile_function(int64_t rows, int64_t vectors) {
  static const bgemm_tile_function table[3][BR] = {{EXT_BROWS(EXT_BTILE_ENTRY_1, 0, 0)},
                                                   {EXT_BROWS(EXT_BTILE_ENTRY_N, 0, 0)},
                                                   {EXT_BROWS(EXT_BTILE_ENTRY_WIDE, 0, 0)}};
  if (rows == 1 && vectors == LONE) return btile_lone_panel;
  return table[vectors == 1 ? 0 : vectors == BN ? 1 : 2][rows - 1];
}

#endif /* EXT_BGEMM_VECTORS_H_ */
