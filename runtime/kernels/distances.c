/*
 * Sums of squared or absolute differences of all rows of a and all columns of b.
 *
 * A tile of rows and two vectors of columns is summed in registers, as a product's is; a vector of
 * b is read once for all rows of the tile.  What |a|^2 - 2 a b + |b|^2 would lose where rows are
 * near to one another stays exact.
 */
#include "../simd/simd.h"

/* Rows of a tile, and vectors of columns: 8 sums, 2 vectors of b and one of a. */
enum { TILE_ROWS = 4, TILE_VECTORS = 2, TILE_COLUMNS = TILE_VECTORS * VL };

/* Rows of one item, over which the columns of b stay in a cache. */
enum { ITEM_ROWS = 64 };

/* Differences of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 16;

typedef struct {
  const ext_distances_params* p;
  int64_t blocks; /* of columns */
  const float *a, *b;
  float* y;
} distances_job;

/* `rows` rows and `n` columns, which `whole` vectors hold; what is constant where it is called. */
EXT_INLINE void tile(int64_t rows, int absolute, int whole, int64_t n, const distances_job* job,
                     const float* a, const float* b, float* y) {
  const int64_t depth = job->p->depth, columns = job->p->columns;
  const int64_t first = i64_min(n, VL), second = n - first;
  vf sums[TILE_ROWS][TILE_VECTORS];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t v = 0; v < TILE_VECTORS; v++) sums[r][v] = vf_zero();
  for (int64_t k = 0; k < depth; k++, b += columns) {
    vf along[TILE_VECTORS];
    along[0] = whole ? vf_load(b) : vf_load_n(b, first);
    along[1] = whole ? vf_load(b + VL) : second ? vf_load_n(b + VL, second) : vf_zero();
    for (int64_t r = 0; r < rows; r++) {
      vf own = vf_set1(a[r * depth + k]);
      for (int64_t v = 0; v < TILE_VECTORS; v++) {
        vf apart = own - along[v];
        sums[r][v] =
            absolute ? sums[r][v] + vf_max_nan(apart, -apart) : vf_fma(apart, apart, sums[r][v]);
      }
    }
  }
  for (int64_t r = 0; r < rows; r++, y += columns) {
    vf_store_n(y, sums[r][0], first);
    if (second) vf_store_n(y + VL, sums[r][1], second);
  }
}

EXT_INLINE void tiles(int absolute, int whole, int64_t n, const distances_job* job, int64_t begin,
                      int64_t end, const float* b, float* y) {
  const int64_t depth = job->p->depth, columns = job->p->columns;
  int64_t r = begin;
  for (; r + TILE_ROWS <= end; r += TILE_ROWS)
    tile(TILE_ROWS, absolute, whole, n, job, job->a + r * depth, b, y + r * columns);
  for (; r < end; r++) tile(1, absolute, whole, n, job, job->a + r * depth, b, y + r * columns);
}

static int items(void* context, int64_t begin, int64_t end) {
  const distances_job* job = context;
  const ext_distances_params* p = job->p;
  for (int64_t item = begin; item < end; item++) {
    int64_t row = item / job->blocks * ITEM_ROWS, column = item % job->blocks * TILE_COLUMNS;
    int64_t last = i64_min(row + ITEM_ROWS, p->rows);
    int64_t n = i64_min(TILE_COLUMNS, p->columns - column);
    const float* b = job->b + column;
    float* y = job->y + column;
    if (n == TILE_COLUMNS && p->absolute)
      tiles(1, 1, TILE_COLUMNS, job, row, last, b, y);
    else if (n == TILE_COLUMNS)
      tiles(0, 1, TILE_COLUMNS, job, row, last, b, y);
    else
      tiles(p->absolute, 0, n, job, row, last, b, y);
  }
  return EXT_OK;
}

int EXT_NAME(ext_distances)(const ext_distances_params* p, const float* a, const float* b,
                            float* y) {
  if (p->rows <= 0 || p->columns <= 0) return EXT_OK;
  if (p->depth < 0) return EXT_ERR_ARGUMENT;
  distances_job job = {p, ceil_div(p->columns, TILE_COLUMNS), a, b, y};
  int64_t of_item = i64_max(1, i64_min(p->rows, ITEM_ROWS) * TILE_COLUMNS * p->depth);
  int64_t count = job.blocks * ceil_div(p->rows, ITEM_ROWS);
  return ext_parallel_for(count, ceil_div(TASK_ELEMENTS, of_item), items, &job);
}

EXT_DISPATCH(ext_distances,
             (const ext_distances_params* p, const float* a, const float* b, float* y),
             (p, a, b, y))
