/* Internal: how the tasks of a matrix product divide it. */
#ifndef EXT_PRODUCT_SPLIT_H_
#define EXT_PRODUCT_SPLIT_H_

#include "../simd/simd.h"

/* A task keeps at least so many micropanels (rows share a B tile) and panels (columns share the
 * packing of A), while others can be split. */
enum { TASK_MIN_MICROPANELS = 2, TASK_MIN_PANELS = 4, TASKS_PER_THREAD = 4 };

typedef struct {
  int64_t m, n;
} product_parts;

/* Parts of m (at most `most`) for `threads`: the multiple of threads whose longest share, a whole
 * number of micropanels to a part, is shortest; the finest such, for a busy core. */
EXT_INLINE int64_t parts_of_rows(int64_t micropanels, int64_t threads, int64_t most) {
  int64_t best = most, shortest = INT64_MAX;
  for (int64_t parts = threads; parts <= most; parts += threads) {
    int64_t share = parts / threads * ceil_div(micropanels, parts);
    if (share > shortest) continue;
    shortest = share;
    best = parts;
  }
  return i64_max(1, best);
}

/* Divides so many micropanels of rows and panels of columns into about `wanted` tasks. */
EXT_INLINE product_parts split_product(int64_t micropanels, int64_t panels, int64_t threads,
                                       int64_t wanted) {
  product_parts parts;
  int64_t n_most = panels / TASK_MIN_PANELS;
  int64_t m_most = i64_min(wanted, micropanels / TASK_MIN_MICROPANELS);
  parts.m = parts_of_rows(micropanels, threads, m_most);
  int64_t n_parts = parts.m < threads ? ceil_div(wanted, parts.m) : 1;
  /* Few parts leave a busy core no choice; wide ones are worth packing A twice for it. */
  if (n_parts == 1 && 2 * parts.m <= wanted && n_most >= 2 * TASK_MIN_PANELS) n_parts = 2;
  parts.n = i64_max(1, i64_min(n_parts, n_most));
  return parts;
}

#endif /* EXT_PRODUCT_SPLIT_H_ */
