/*
 * gemm_lanes.h - the microkernel's loops over K where a multiply-add takes one lane of a vector:
 * four values of each row of A are loaded at once and serve four steps.
 */
#ifndef EXT_GEMM_LANES_H_
#define EXT_GEMM_LANES_H_

/* acc[i][v] += a[i][lane] b[v VL ..], i < rows, v < nv; rows, nv and lane are constants. */
#define EXT_LANE_STEP(lane)                                                                \
  do {                                                                                     \
    vf row[NV];                                                                            \
    EXT_UNROLL                                                                             \
    for (int v = 0; v < nv; v++) row[v] = vf_load(b + (lane) * EXT_PANEL + v * VL);        \
    EXT_UNROLL                                                                             \
    for (int i = 0; i < rows; i++) {                                                       \
      EXT_UNROLL                                                                           \
      for (int v = 0; v < nv; v++) acc[i][v] = vf_fma_lane(row[v], a[i], lane, acc[i][v]); \
    }                                                                                      \
  } while (0)

EXT_INLINE void tile_four_steps(const int rows, const int nv, const vf a[MR], const float* b,
                                vf acc[MR][NV]) {
  EXT_LANE_STEP(0);
  EXT_LANE_STEP(1);
  EXT_LANE_STEP(2);
  EXT_LANE_STEP(3);
}

/* kc steps with rows of A that are a_row apart.  Each line of `next` and, if `more` (a constant),
 * two lines of `following` for every four steps come meanwhile. */
EXT_INLINE void tile_steps(const int rows, const int nv, const int more, int64_t kc, const float* a,
                           int64_t a_row, const float* b, const float* next, const float* following,
                           vf acc[MR][NV]) {
  int64_t p = 0;
  for (; p + VL <= kc; p += VL, b += VL * EXT_PANEL, next += VL * EXT_PANEL) {
    vf x[MR];
    EXT_UNROLL
    for (int i = 0; i < rows; i++) x[i] = vf_load(a + i * a_row + p);
    tile_four_steps(rows, nv, x, b, acc);
    EXT_UNROLL
    for (int i = 0; i < VL; i++) __builtin_prefetch(next + i * EXT_PANEL, 0, 2);
    if (more) {
      __builtin_prefetch(following, 0, 3);
      __builtin_prefetch(following + EXT_PANEL, 0, 3);
      following += 2 * EXT_PANEL;
    }
  }
  EXT_NO_UNROLL
  for (; p < kc; p++, b += EXT_PANEL) {
    vf row[NV];
    EXT_UNROLL
    for (int v = 0; v < nv; v++) row[v] = vf_load(b + v * VL);
    EXT_UNROLL
    for (int i = 0; i < rows; i++) { tile_step(nv, 0, a[i * a_row + p], row, acc[i]); }
  }
}

EXT_INLINE void tile_loop(const int rows, const int nv, const int half, const gemm_tile* t,
                          vf acc[MR][NV]) {
  (void)half;
  tile_steps(rows, nv, 0, t->kc, t->a, A_STRIDE, t->b, t->next, NULL, acc);
}

/* The same with A as it lies. */
EXT_INLINE void tile_unpacked_loop(const int rows, const int nv, const int half, const gemm_tile* t,
                                   vf acc[MR][NV]) {
  (void)half;
  const int64_t a_row = t->a_row, kc = t->kc;
  const float *b = t->b, *next = t->next, *line = t->a;
  for (int64_t h = t->taps_h; h > 0; h--, line += t->a_line, b += t->b_skip * EXT_PANEL) {
    const float* tap = line;
    for (int64_t w = t->taps_w; w > 0; w--, tap += t->a_tap) {
      /* The next tile's rows come next, most often. */
      tile_steps(rows, nv, 1, kc, tap, a_row, b, next, tap + rows * a_row, acc);
      b += kc * EXT_PANEL;
      next += kc * EXT_PANEL;
    }
  }
}

#endif /* EXT_GEMM_LANES_H_ */
