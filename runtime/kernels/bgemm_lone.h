/*
 * bgemm_lone.h - a lone row's sums in vectors (see bgemm_tile.h), and how sums in vectors begin and
 * end.
 */
#ifndef EXT_BGEMM_LONE_H_
#define EXT_BGEMM_LONE_H_

#include "bgemm_tile.h"

EXT_INLINE void btile_end(const int rows, const int nv, const bgemm_tile* t, vf acc[BR][BWIDE]) {
  if (t->sums) {
    EXT_UNROLL
    for (int i = 0; i < rows; i++) {
      EXT_UNROLL
      for (int v = 0; v < nv; v++) vf_store(t->sums + i * t->sums_row + v * VL, acc[i][v]);
    }
    return;
  }
  if (t->residual) {
    if (t->s.residual == EXT_BFLOAT16) {
      EXT_UNROLL
      for (int i = 0; i < rows; i++) { btile_join(nv, EXT_BFLOAT16, t, i, acc[i]); }
    } else {
      EXT_UNROLL
      for (int i = 0; i < rows; i++) { btile_join(nv, EXT_FLOAT32, t, i, acc[i]); }
    }
  }
  if (t->s.y == EXT_BFLOAT16) {
    EXT_UNROLL
    for (int i = 0; i < rows; i++) { btile_write(nv, EXT_BFLOAT16, t, i, acc[i]); }
  } else {
    EXT_UNROLL
    for (int i = 0; i < rows; i++) { btile_write(nv, EXT_FLOAT32, t, i, acc[i]); }
  }
}

/* The sums' first values: bias (or 0) plus c. */
EXT_INLINE void btile_begin(const int rows, const int nv, const bgemm_tile* t, vf acc[BR][BWIDE]) {
  EXT_UNROLL
  for (int v = 0; v < nv; v++) {
    vf first = vf_zero();
    if (t->bias) first = vf_load_n(t->bias + v * VL, clamp_lanes(t->columns - v * VL));
    EXT_UNROLL
    for (int i = 0; i < rows; i++) acc[i][v] = first;
  }
  if (!t->c) return;
  EXT_UNROLL
  for (int i = 0; i < rows; i++) {
    EXT_UNROLL
    for (int v = 0; v < nv; v++) acc[i][v] += vf_load(t->c + i * t->c_row + v * VL);
  }
}

/* Whether there are products of pairs in vectors: not beside tiles that are made of other vectors.
 */
#if defined(EXT_BF16_UNIT) || !defined(EXT_TILES)
#define EXT_BLONE_VECTORS 1

/* A lone row waits for B, which is fetched 8 KB ahead.  Of LONE_CHAINS sums none waits for the one
 * before.  One panel follows the other, a single run of memory: of more at once Zen 5 reads less (m
 * = 1 from memory: 0.95 of a plain read instead of 0.80 with four panels side by side).  Cores with
 * tiles read two panels: Emerald Rapids 0.88 to 0.91 of a plain read (k = 896 and 4864), and 0.83
 * to 0.86 in tiles. */
enum { LONE = EXT_PANEL / VL, LONE_CHAINS = 4, LONE_AHEAD = 4096 };

/* acc += the products of two rows of B; `vectors` is a constant. */
EXT_INLINE void btile_lone_step(const int vectors, const bgemm_tile* t, int64_t pair, vf* acc) {
  const vba two = vb_row(t->a + 2 * pair);
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    const uint16_t* b = t->b + pair * BPAIR + v / LONE * t->panel;
    if (v % LONE == 0) {
      EXT_UNROLL
      for (int part = 0; part < EXT_PARTS; part++)
        __builtin_prefetch(b + part * 2 * EXT_PANEL + LONE_AHEAD);
    }
    acc[v] = vb_dot(acc[v], two, vb_panel(b + 2 * VL * (v % LONE)));
  }
}

EXT_INLINE void btile_lone(const int vectors, const bgemm_tile* t) {
  vf acc[BR][BWIDE], more[LONE_CHAINS][BWIDE];
  btile_begin(1, vectors, t, acc);
  EXT_UNROLL
  for (int i = 0; i < LONE_CHAINS * vectors; i++) more[i / vectors][i % vectors] = vf_zero();
  int64_t p = 0;
  for (; p + LONE_CHAINS <= t->pairs; p += LONE_CHAINS) {
    EXT_UNROLL
    for (int i = 0; i < LONE_CHAINS; i++) btile_lone_step(vectors, t, p + i, more[i]);
  }
  for (; p < t->pairs; p++) btile_lone_step(vectors, t, p, more[0]);
  EXT_UNROLL
  for (int i = 0; i < LONE_CHAINS * vectors; i++)
    acc[0][i % vectors] += more[i / vectors][i % vectors];
  btile_end(1, vectors, t, acc);
}

static void btile_lone_panel(const bgemm_tile* t) {
  btile_lone(LONE, t);
}

#endif /* EXT_BLONE_VECTORS */
#endif /* EXT_BGEMM_LONE_H_ */
