/*
 * y[r] = sum, least or greatest over all trees t of the values of the leaf of t that row r reaches:
 * x [rows, features], y [rows, outputs].
 *
 * A step down a tree waits for the node and for the number that it asks about; so LANES walks go
 * side by side: those of LANES rows through one tree, or of one row through LANES trees.
 */
#include "../simd/simd.h"

enum { LANES = 8 };

/* Steps after which it is looked whether all walks of a deep tree have ended. */
enum { STEPS = 4 };

/* Rows of one item, for which the nodes of a tree stay in L1. */
enum { ITEM_ROWS = 64 };

/* Trees that one task walks through for its rows at least: some ten microseconds. */
static const int64_t TASK_WALKS = 1 << 10;

typedef struct {
  const ext_trees_params* p;
  const float* x;
  const ext_tree_node* nodes;
  const int32_t *roots, *depths;
  const float* values;
  const int32_t* targets;
  float* y;
} trees_job;

/* Whether a row goes on at the first child.  With `plain` (a constant) NaN and a leaf, whose
 * threshold is NaN, go to the second. */
EXT_INLINE int is_first(const int plain, const ext_tree_node* node, float value) {
  const int reached = value <= node->threshold;
  if (plain) return reached;
  const int equals = node->tag >> 1;
  return (reached & ~((value < node->threshold) & equals)) | ((value != value) & node->tag);
}

/* Leaves that LANES walks end at, after `depth` steps at most; x of lane l begins at x + l apart.
 * A leaf stays where it is. */
EXT_INLINE void walk(const int plain, const ext_tree_node* nodes, const float* x, int64_t apart,
                     int32_t depth, int32_t at[LANES]) {
  for (int inside = 1; inside && depth > 0; depth -= STEPS) {
    for (int32_t step = depth < STEPS ? depth : STEPS; step > 0; step--) {
      EXT_UNROLL
      for (int l = 0; l < LANES; l++) {
        const ext_tree_node* node = nodes + at[l];
        at[l] = node->child + 1 - is_first(plain, node, x[l * apart + node->feature]);
      }
    }
    if (depth <= STEPS) break;
    inside = 0;
    EXT_UNROLL
    for (int l = 0; l < LANES; l++) inside |= nodes[at[l]].child > at[l];
  }
}

/* Lets the values of a leaf be part of a row of y; `single` (a constant): a sum for one output. */
EXT_INLINE void take(const int single, const trees_job* job, int32_t leaf, int64_t tree, float* y) {
  const ext_trees_params* p = job->p;
  const int64_t row = job->nodes[leaf].tag >> 2;
  const float* values = job->values + row * (single ? 1 : p->width);
  if (single) {
    *y += *values;
  } else if (p->kind == EXT_TREES_SUM) {
    y += job->targets[row];
    for (int64_t w = 0; w < p->width; w++) y[w] += values[w];
  } else if (tree == 0) {
    memcpy(y, values, (size_t)p->width * sizeof *y);
  } else if (p->kind == EXT_TREES_LEAST) {
    for (int64_t w = 0; w < p->width; w++) y[w] = values[w] < y[w] ? values[w] : y[w];
  } else {
    for (int64_t w = 0; w < p->width; w++) y[w] = values[w] > y[w] ? values[w] : y[w];
  }
}

/* Rows [begin, end), whole LANES of them, through all trees, one after another. */
EXT_INLINE void several_rows(const int plain, const int single, const trees_job* job, int64_t begin,
                             int64_t end) {
  const ext_trees_params* p = job->p;
  const int64_t features = p->features, outputs = single ? 1 : p->outputs;
  for (int64_t t = 0; t < p->trees; t++) {
    for (int64_t row = begin; row < end; row += LANES) {
      int32_t at[LANES];
      for (int l = 0; l < LANES; l++) at[l] = job->roots[t];
      walk(plain, job->nodes, job->x + row * features, features, job->depths[t], at);
      for (int l = 0; l < LANES; l++) take(single, job, at[l], t, job->y + (row + l) * outputs);
    }
  }
}

/* One row through LANES trees at a time; behind the last tree the lanes repeat it. */
EXT_INLINE void one_row(const int plain, const int single, const trees_job* job, int64_t row) {
  const ext_trees_params* p = job->p;
  for (int64_t t = 0; t < p->trees; t += LANES) {
    const int64_t count = i64_min(LANES, p->trees - t);
    int32_t at[LANES], depth = 0;
    for (int64_t l = 0; l < LANES; l++) at[l] = job->roots[t + i64_min(l, count - 1)];
    for (int64_t l = 0; l < count; l++)
      depth = job->depths[t + l] > depth ? job->depths[t + l] : depth;
    walk(plain, job->nodes, job->x + row * p->features, 0, depth, at);
    for (int64_t l = 0; l < count; l++) take(single, job, at[l], t + l, job->y + row * p->outputs);
  }
}

EXT_INLINE void rows_of_item(const int plain, const int single, const trees_job* job, int64_t first,
                             int64_t past) {
  const int64_t whole = past - (past - first) % LANES;
  several_rows(plain, single, job, first, whole);
  for (int64_t row = whole; row < past; row++) one_row(plain, single, job, row);
}

static int items(void* context, int64_t begin, int64_t end) {
  const trees_job* job = context;
  const ext_trees_params* p = job->p;
  const int single = p->kind == EXT_TREES_SUM && p->outputs == 1;
  for (int64_t item = begin; item < end; item++) {
    const int64_t first = item * ITEM_ROWS, past = i64_min(p->rows, first + ITEM_ROWS);
    if (p->plain && single)
      rows_of_item(1, 1, job, first, past);
    else if (p->plain)
      rows_of_item(1, 0, job, first, past);
    else
      rows_of_item(0, 0, job, first, past);
  }
  return EXT_OK;
}

int EXT_NAME(ext_trees)(const ext_trees_params* p, const float* x, const void* nodes,
                        const int32_t* roots, const int32_t* depths, const float* values,
                        const int32_t* targets, float* y) {
  if (p->features < 1 || p->trees < 0 || p->width < 1 || p->outputs < p->width)
    return EXT_ERR_ARGUMENT;
  if (p->kind != EXT_TREES_SUM && p->width != p->outputs) return EXT_ERR_ARGUMENT;
  if (p->rows <= 0) return EXT_OK;
  memset(y, 0, (size_t)(p->rows * p->outputs) * sizeof *y);
  trees_job job = {p, x, nodes, roots, depths, values, targets, y};
  const int64_t of_item = i64_max(1, i64_min(p->rows, ITEM_ROWS) * p->trees);
  return ext_parallel_for(ceil_div(p->rows, ITEM_ROWS), ceil_div(TASK_WALKS, of_item), items, &job);
}

EXT_DISPATCH(ext_trees,
             (const ext_trees_params* p, const float* x, const void* nodes, const int32_t* roots,
              const int32_t* depths, const float* values, const int32_t* targets, float* y),
             (p, x, nodes, roots, depths, values, targets, y))
