/*
 * qgemm_pairs.h - a tile of sums in pairs of rows (see qgemm_tile.h), for an instruction that
 * multiplies two rows of A by two columns of B, eight terms of each at once:
 *
 *   sum[2 i + r][j + c] += sum_p a[2 i + r][p] b[p][j + c],  r < 2, c < 2, p < 8
 *
 * A vector holds the four sums of a pair of rows and of columns, half of a vq of either row.  Where
 * a run ends in the middle of eight terms, or a tile with one row of a pair, the others are 0.
 */
#ifndef EXT_QGEMM_PAIRS_H_
#define EXT_QGEMM_PAIRS_H_

enum { QPAIRS = (QR + 1) / 2, K_GROUPS = 2 };

/* Adds `groups` of four terms, 1 or K_GROUPS; as `rows` and `nv`, a constant. */
EXT_INLINE void qpairs_step(const int groups, const int rows, const int nv, const qa* const* a,
                            const int8_t* b, int64_t b_step, vq_pair sum[QPAIRS][QN]) {
  vqa_pair row[QPAIRS];
  EXT_UNROLL
  for (int i = 0; i < (rows + 1) / 2; i++)
    row[i] = vq_rows(groups, a[2 * i], 2 * i + 1 < rows ? a[2 * i + 1] : NULL);
  EXT_UNROLL
  for (int v = 0; v < nv; v++) {
    const vqb_pair columns = vq_columns(groups, b + v * b_step, K_GROUP * EXT_PANEL);
    EXT_UNROLL
    for (int i = 0; i < (rows + 1) / 2; i++) sum[i][v] = vq_dot_pairs(sum[i][v], row[i], columns);
  }
}

/* All parameters but t are constants. */
EXT_INLINE void qtile_body(const int rows, const int nv, const qgemm_tile* t) {
  const qa* a[QR];
  const int8_t *b = t->b, *next = t->next;
  const int64_t b_group = K_GROUP * EXT_PANEL;
  vq_pair sum[QPAIRS][QN];
  EXT_UNROLL
  for (int i = 0; i < rows; i++) a[i] = t->a + i * t->a_row;
  EXT_UNROLL
  for (int v = 0; v < nv; v++) {
    const vq start = vq_start(vi_load(t->columns->start + v * VL));
    EXT_UNROLL
    for (int i = 0; i < (rows + 1) / 2; i++) sum[i][v] = vq_pair_of(start, start);
  }
  for (int64_t h = t->taps[0]; h > 0; h--) {
    for (int64_t w = t->taps[1]; w > 0; w--) {
      EXT_NO_UNROLL
      for (int64_t g = t->groups / K_GROUPS; g > 0; g--) {
        __builtin_prefetch(next, 0, 2);
        next += K_GROUPS * t->next_step;
        qpairs_step(K_GROUPS, rows, nv, a, b, t->b_step, sum);
        EXT_UNROLL
        for (int i = 0; i < rows; i++) a[i] += K_GROUPS * K_GROUP;
        b += K_GROUPS * b_group;
      }
      const int64_t rest = t->groups % K_GROUPS;
      if (rest) qpairs_step(1, rows, nv, a, b, t->b_step, sum);
      b += rest * b_group;
      EXT_UNROLL
      for (int i = 0; i < rows; i++) a[i] += rest * K_GROUP + t->skip[1];
    }
    EXT_UNROLL
    for (int i = 0; i < rows; i++) a[i] += t->skip[0];
  }
  vq acc[QR][QN];
  EXT_UNROLL
  for (int v = 0; v < nv; v++) EXT_UNROLL
  for (int i = 0; i < rows; i++) acc[i][v] = vq_of_pair(sum[i / 2][v], i % 2);
  if (t->finish)
    qtile_finish(rows, nv, t, acc);
  else
    qtile_store(rows, nv, t, acc);
}

#endif /* EXT_QGEMM_PAIRS_H_ */
