/*
 * y[i] = x[i] over `shape` with any strides of x and y.
 *
 * Axes are sorted by y's stride and merged where both sides walk them as one.  Then either the
 * innermost axis is contiguous on both sides (a copy of runs), or x is contiguous along another
 * axis (a transpose, in tiles of VL x VL in registers), or elements are copied one by one.  The
 * vector code moves 4 bytes, whatever they mean; elements of 1 and 2 bytes, which are masks and
 * what is stored short, have the loops that compilers find vectors in, and those of 8 bytes plain
 * ones.  Shorter elements in pairs are moved as longer ones.
 */
#include "axes.h"
#include "transpose.h"

/* Elements of one task at least: some ten microseconds of memory traffic. */
static const int64_t TASK_ELEMENTS = 1 << 15;

typedef struct {
  int64_t size, x, y; /* strides in x and y */
} axis;

typedef struct {
  ext_axes axes;   /* operands: x, y */
  int64_t element; /* bytes */
  const void* x;
  void* y;
} copy_job;

EXT_INLINE axis axis_at(const copy_job* job, int32_t d) {
  return (axis){job->axes.size[d], job->axes.stride[0][d], job->axes.stride[1][d]};
}

EXT_INLINE void set_axis(copy_job* job, int32_t d, axis a) {
  job->axes.size[d] = a.size;
  job->axes.stride[0][d] = a.x;
  job->axes.stride[1][d] = a.y;
}

/* Inserts an axis so that y's strides fall (x's, where they are equal). */
static void insert_axis(axis* axes, int32_t count, axis a) {
  int32_t at = count;
  for (; at > 0; at--) {
    const axis* before = &axes[at - 1];
    if (before->y > a.y || (before->y == a.y && before->x >= a.x)) break;
    axes[at] = *before;
  }
  axes[at] = a;
}

/* The axes of the parameters, sorted and merged. */
static ext_axes axes_of(const ext_copy_params* p) {
  axis sorted[EXT_MAX_DIMS];
  ext_axes axes = {0};
  for (int32_t d = 0; d < p->ndim; d++)
    insert_axis(sorted, d, (axis){p->shape[d], p->x_strides[d], p->y_strides[d]});
  for (int32_t d = 0; d < p->ndim; d++)
    axes_add(&axes, 2, sorted[d].size, (const int64_t[]){sorted[d].x, sorted[d].y});
  return axes;
}

/* Whether all runs are contiguous on both sides, and pairs of elements that lie as one would. */
static int has_pairs(const copy_job* job) {
  const int32_t last = job->axes.ndim - 1;
  axis a = axis_at(job, last);
  if (a.x != 1 || a.y != 1 || a.size % 2) return 0;
  if (((uintptr_t)job->x | (uintptr_t)job->y) % (uintptr_t)(2 * job->element)) return 0;
  for (int32_t d = 0; d < last; d++) {
    a = axis_at(job, d);
    if (a.x % 2 || a.y % 2) return 0;
  }
  return 1;
}

/* Takes two elements for one: to 4 bytes, which vectors move, and to 8 where a run is one pair. */
static void join_pairs(copy_job* job) {
  for (; job->axes.ndim > 1 && job->element < 8 && has_pairs(job); job->element *= 2) {
    const int32_t last = job->axes.ndim - 1;
    if (job->element == 4 && job->axes.size[last] > 2) return;
    for (int32_t d = 0; d < last; d++) {
      axis a = axis_at(job, d);
      set_axis(job, d, (axis){a.size, a.x / 2, a.y / 2});
    }
    job->axes.size[last] /= 2;
    if (job->axes.size[last] == 1) job->axes.ndim--;
  }
}

/* The item's place over the first `outer` axes. */
EXT_INLINE void locate(const copy_job* job, int32_t outer, int64_t item, const void** x, void** y) {
  int64_t at[2] = {0, 0};
  axes_locate(&job->axes, 2, outer, item, at);
  *x = (const char*)job->x + at[0] * job->element;
  *y = (char*)job->y + at[1] * job->element;
}

/* y[j] = x[-j], j < n. */
static void reverse_run(int64_t n, const float* restrict x, float* restrict y) {
  for (int64_t j = 0; j < n; j++) y[j] = x[-j];
}

/* Rows of `n` elements, a constant. */
EXT_INLINE void short_rows(const int n, axis rows, const float* x, float* y) {
  for (int64_t i = 0; i < rows.size; i++, x += rows.x, y += rows.y) memcpy(y, x, n * sizeof *y);
}

/* Rows of elements that adjoin on both sides. */
static void dense_rows(axis rows, int64_t n, const float* x, float* y) {
  switch (n) {
    case 2: short_rows(2, rows, x, y); return;
    case 3: short_rows(3, rows, x, y); return;
    case 4: short_rows(4, rows, x, y); return;
    case 5: short_rows(5, rows, x, y); return;
    case 6: short_rows(6, rows, x, y); return;
    case 7: short_rows(7, rows, x, y); return;
    case 8: short_rows(8, rows, x, y); return;
    default: break;
  }
  for (int64_t i = 0; i < rows.size; i++, x += rows.x, y += rows.y) {
    if (n <= 16 * VL)
      copy_run(y, x, n);
    else
      memcpy(y, x, (size_t)n * sizeof *y);
  }
}

/* Whether rows are each element some times, as where an image is resized: a transpose of columns
 * that are the same. */
EXT_INLINE int is_repeated(axis rows, axis run) {
  return run.x == 0 && run.y == 1 && rows.x == 1 && rows.y == run.size;
}

/* The two innermost axes, `rows` outside, `run` inside. */
static void plane(axis rows, axis run, const float* x, float* y) {
  if (is_repeated(rows, run) && transpose_few(rows.size, run.size, x, 0, y, run.size)) return;
  if (run.x == 1 && run.y == 1) {
    dense_rows(rows, run.size, x, y);
    return;
  }
  for (int64_t i = 0; i < rows.size; i++, x += rows.x, y += rows.y) {
    if (run.x == 0 && run.y == 1) {
      int64_t j = 0;
      for (; j + VL <= run.size; j += VL) vf_store(y + j, vf_set1(*x));
      for (; j < run.size; j++) y[j] = *x;
    } else if (run.x == -1 && run.y == 1) {
      reverse_run(run.size, x, y);
    } else {
      for (int64_t j = 0; j < run.size; j++) y[j * run.y] = x[j * run.x];
    }
  }
}

/* The same for elements of another size. */
#define EXT_PLANE(type, name)                                                                  \
  static void plane##name(axis rows, axis run, const type* x, type* y) {                       \
    if (is_repeated(rows, run) && transpose_few##name(rows.size, run.size, x, 0, y, run.size)) \
      return;                                                                                  \
    for (int64_t i = 0; i < rows.size; i++, x += rows.x, y += rows.y) {                        \
      const type first = *x;                                                                   \
      if (run.x == 1 && run.y == 1)                                                            \
        memcpy(y, x, (size_t)run.size * sizeof *y);                                            \
      else if (run.x == 0 && run.y == 1)                                                       \
        for (int64_t j = 0; j < run.size; j++) y[j] = first;                                   \
      else                                                                                     \
        for (int64_t j = 0; j < run.size; j++) y[j * run.y] = x[j * run.x];                    \
    }                                                                                          \
  }
EXT_PLANE(uint8_t, _bytes)
EXT_PLANE(uint16_t, _halves)
EXT_PLANE(uint64_t, _words)

static void any_plane(int64_t element, axis rows, axis run, const void* x, void* y) {
  if (element == 4)
    plane(rows, run, x, y);
  else if (element == 2)
    plane_halves(rows, run, x, y);
  else if (element == 8)
    plane_words(rows, run, x, y);
  else
    plane_bytes(rows, run, x, y);
}

static int planes(void* context, int64_t begin, int64_t end) {
  const copy_job* job = context;
  const int32_t ndim = job->axes.ndim, outer = ndim - 2;
  const axis rows = axis_at(job, ndim - 2), run = axis_at(job, ndim - 1);
  axes_place place = axes_begin(&job->axes, 2, outer, begin);
  for (; begin < end; begin++) {
    any_plane(job->element, rows, run, (const char*)job->x + place.at[0] * job->element,
              (char*)job->y + place.at[1] * job->element);
    axes_advance(&job->axes, 2, outer, 1, &place);
  }
  return EXT_OK;
}

/* A part of the only axis there is. */
static int run_range(void* context, int64_t begin, int64_t end) {
  const copy_job* job = context;
  axis run = axis_at(job, job->axes.ndim - 1);
  run.size = end - begin;
  any_plane(job->element, (axis){1, 0, 0}, run, (const char*)job->x + begin * run.x * job->element,
            (char*)job->y + begin * run.y * job->element);
  return EXT_OK;
}

/* Lines in a block: a transpose takes as many as a task has elements for, between bounds, within
 * which lines of the near side stay in L2.  Few columns need no blocks but for threads. */
enum { LEAST_BLOCK = 64, MOST_BLOCK = 256, FEW_COLUMNS = 4, FEW_BLOCK = 4096 };
enum { SHORT_BLOCK = 1024, REPEATED_BLOCK = 64 };

/* One of the last two axes, `at`, is made of blocks, of which the last one may be shorter. */
typedef struct {
  copy_job job;
  int32_t at;
  int64_t block, blocks;
} block_job;

/* Item `item`: where it begins, and how long axis `at` is in it. */
EXT_INLINE int64_t locate_block(const block_job* b, int64_t item, const void** x, void** y) {
  const axis cut = axis_at(&b->job, b->at);
  const int64_t first = item % b->blocks * b->block;
  locate(&b->job, b->job.axes.ndim - 2, item / b->blocks, x, y);
  *x = (const char*)*x + first * cut.x * b->job.element;
  *y = (char*)*y + first * cut.y * b->job.element;
  return i64_min(b->block, cut.size - first);
}

/* Runs that are shorter than vectors. */
static int short_runs(void* context, int64_t begin, int64_t end) {
  const block_job* b = context;
  axis rows = axis_at(&b->job, b->job.axes.ndim - 2);
  const axis run = axis_at(&b->job, b->job.axes.ndim - 1);
  for (int64_t item = begin; item < end; item++) {
    const void* x;
    void* y;
    rows.size = locate_block(b, item, &x, &y);
    any_plane(b->job.element, rows, run, x, y);
  }
  return EXT_OK;
}

/* The last two axes are the transpose's: rows that are contiguous in x, columns in y. */
static int transposes(void* context, int64_t begin, int64_t end) {
  const block_job* b = context;
  const int32_t ndim = b->job.axes.ndim;
  axis rows = axis_at(&b->job, ndim - 2), columns = axis_at(&b->job, ndim - 1);
  for (int64_t item = begin; item < end; item++) {
    const void* x;
    void* y;
    const int64_t count = locate_block(b, item, &x, &y);
    *(b->at == ndim - 1 ? &columns.size : &rows.size) = count;
    if (b->job.element == 1)
      transpose_bytes(rows.size, columns.size, x, columns.x, y, rows.y);
    else if (b->job.element == 2)
      transpose_halves(rows.size, columns.size, x, columns.x, y, rows.y);
    else
      transpose(rows.size, columns.size, x, columns.x, y, rows.y);
  }
  return EXT_OK;
}

/* The same with each column some times side by side, as many as its stride in y: an image with its
 * channels inside is enlarged. Through a tile, from which rows are written. */
static int repeated_columns(void* context, int64_t begin, int64_t end) {
  const block_job* b = context;
  const int32_t ndim = b->job.axes.ndim;
  const axis rows = axis_at(&b->job, ndim - 2), columns = axis_at(&b->job, ndim - 1);
  float tile[REPEATED_BLOCK * REPEATED_BLOCK];
  for (int64_t item = begin; item < end; item++) {
    const void* from;
    void* to;
    const int64_t count = locate_block(b, item, &from, &to);
    for (int64_t j = 0; j < columns.size; j += REPEATED_BLOCK) {
      const int64_t n = i64_min(REPEATED_BLOCK, columns.size - j);
      transpose(count, n, (const float*)from + j * columns.x, columns.x, tile, REPEATED_BLOCK);
      for (int64_t i = 0; i < count; i++)
        transpose_few(n, columns.y, tile + i * REPEATED_BLOCK, 0,
                      (float*)to + i * rows.y + j * columns.y, columns.y);
    }
  }
  return EXT_OK;
}

/* Columns [first, first + count) of a transpose whose columns are two axes, of which `near` is
 * short and both together are contiguous in y, as where an image's pixels come from channels. */
static void transpose_pairs(axis rows, axis far, axis near, int64_t first, int64_t count,
                            const float* x, float* y) {
  int64_t inside = first % near.size;
  x += first / near.size * far.x;
  y += first;
  for (int64_t j = 0; j < count; j += VL) {
    const int64_t columns = i64_min(VL, count - j);
    const float* lines[VL];
    for (int64_t k = 0; k < VL; k++) {
      lines[k] = k < columns ? x + inside * near.x : lines[k - 1];
      if (k < columns && ++inside == near.size) inside = 0, x += far.x;
    }
    for (int64_t i = 0; i < rows.size; i += VL)
      transpose_lines(i64_min(VL, rows.size - i), columns, lines, i, y + i * rows.y + j, rows.y);
  }
}

/* Items are blocks of columns; the last three axes are the transpose's. */
static int paired_columns(void* context, int64_t begin, int64_t end) {
  const block_job* b = context;
  const int32_t ndim = b->job.axes.ndim;
  const axis rows = axis_at(&b->job, ndim - 3), far = axis_at(&b->job, ndim - 2),
             near = axis_at(&b->job, ndim - 1);
  for (int64_t item = begin; item < end; item++) {
    const void* x;
    void* y;
    const int64_t first = item % b->blocks * b->block;
    locate(&b->job, ndim - 3, item / b->blocks, &x, &y);
    transpose_pairs(rows, far, near, first, i64_min(b->block, far.size * near.size - first), x, y);
  }
  return EXT_OK;
}

/* Calls `work` for blocks of axis `at`, one of the last two. */
static int run_blocks(const copy_job* job, int32_t at, int64_t block,
                      int (*work)(void* context, int64_t begin, int64_t end)) {
  const int32_t ndim = job->axes.ndim;
  const int64_t lines = job->axes.size[at], across = job->axes.size[2 * ndim - 3 - at];
  block_job b = {.job = *job, .at = at, .block = block, .blocks = ceil_div(lines, block)};
  int64_t items = b.blocks;
  for (int32_t d = 0; d < ndim - 2; d++) items *= job->axes.size[d];
  const int64_t elements = i64_min(block, lines) * across;
  return ext_parallel_for(items, i64_max(1, TASK_ELEMENTS / elements), work, &b);
}

/* Makes axis `d` the one at `to`, further inside. */
static void move_inside(copy_job* job, int32_t d, int32_t to) {
  const axis moved = axis_at(job, d);
  for (; d < to; d++) set_axis(job, d, axis_at(job, d + 1));
  set_axis(job, to, moved);
}

/* The last two axes are a transpose's; blocks of the one along which tiles follow one another. */
static int run_transposes(const copy_job* job) {
  const int32_t last = job->axes.ndim - 1;
  const axis rows = axis_at(job, last - 1), columns = axis_at(job, last);
  if (columns.size <= FEW_COLUMNS) return run_blocks(job, last - 1, FEW_BLOCK, transposes);
  const int32_t along = rows.y > columns.x ? last : last - 1;
  const int64_t fitting = TASK_ELEMENTS / job->axes.size[2 * last - 1 - along] / VL * VL;
  const int64_t block = i64_max(LEAST_BLOCK, i64_min(fitting, MOST_BLOCK));
  return run_blocks(job, along, block, transposes);
}

/* Whether the last two axes are contiguous in y, and the last one alone is shorter than a vector.
 */
static int has_paired_columns(const copy_job* job, int32_t rows) {
  const int32_t last = job->axes.ndim - 1;
  const axis near = axis_at(job, last);
  return job->element == 4 && rows < last - 1 && near.size < VL &&
         job->axes.stride[1][last - 1] == near.size;
}

static int run_paired_columns(const copy_job* job) {
  const int32_t ndim = job->axes.ndim;
  const int64_t rows = job->axes.size[ndim - 3];
  const int64_t columns = job->axes.size[ndim - 2] * job->axes.size[ndim - 1];
  const int64_t fitting = i64_max(VL, TASK_ELEMENTS / rows / VL * VL);
  block_job b = {.job = *job, .block = fitting, .blocks = ceil_div(columns, fitting)};
  int64_t items = b.blocks;
  for (int32_t d = 0; d < ndim - 3; d++) items *= job->axes.size[d];
  const int64_t elements = i64_min(fitting, columns) * rows;
  return ext_parallel_for(items, i64_max(1, TASK_ELEMENTS / elements), paired_columns, &b);
}

/* The longest axis but the last. */
static int32_t longest_outside(const copy_job* job) {
  int32_t found = 0;
  for (int32_t d = 1; d < job->axes.ndim - 1; d++)
    if (job->axes.size[d] >= job->axes.size[found]) found = d;
  return found;
}

int EXT_NAME(ext_copy)(const ext_copy_params* p, const void* x, void* y) {
  int64_t element = p->element_size ? p->element_size : 4;
  if (p->ndim < 1 || p->ndim > EXT_MAX_DIMS) return EXT_ERR_ARGUMENT;
  if (element != 1 && element != 2 && element != 4 && element != 8) return EXT_ERR_ARGUMENT;
  int64_t total = 1;
  for (int32_t d = 0; d < p->ndim; d++) total *= p->shape[d];
  if (total <= 0) return EXT_OK;
  copy_job job = {.axes = axes_of(p), .element = element, .x = x, .y = y};
  join_pairs(&job);
  for (; element < job.element; element *= 2) total /= 2;
  int32_t ndim = job.axes.ndim;
  axis inner = ndim ? axis_at(&job, ndim - 1) : (axis){1, 1, 1};
  if (element != 8 && inner.y == 1 && inner.x != 1 && inner.x != 0) {
    for (int32_t d = ndim - 2; d >= 0; d--) {
      if (job.axes.stride[0][d] != 1) continue;
      if (has_paired_columns(&job, d)) {
        move_inside(&job, d, ndim - 3);
        return run_paired_columns(&job);
      }
      move_inside(&job, d, ndim - 2);
      return run_transposes(&job);
    }
  }
  if (element == 4 && ndim > 2 && inner.x == 0 && inner.y == 1 && inner.size <= FEW_COLUMNS &&
      job.axes.stride[1][ndim - 2] == inner.size && job.axes.stride[0][ndim - 2] > 1) {
    for (int32_t d = ndim - 3; d >= 0; d--) {
      if (job.axes.stride[0][d] != 1) continue;
      job.axes.ndim--;
      move_inside(&job, d, job.axes.ndim - 2);
      return run_blocks(&job, ndim - 3, REPEATED_BLOCK, repeated_columns);
    }
  }
  if (ndim > 1 && inner.x == 1 && inner.y == 1 && inner.size < VL) {
    move_inside(&job, longest_outside(&job), ndim - 2);
    return run_blocks(&job, ndim - 2, SHORT_BLOCK, short_runs);
  }
  if (ndim == 0) set_axis(&job, job.axes.ndim++, inner);
  if (job.axes.ndim == 1) return ext_parallel_for(total, TASK_ELEMENTS, run_range, &job);
  int64_t elements = job.axes.size[ndim - 2] * inner.size;
  if (elements > 2 * TASK_ELEMENTS && inner.size < VL)
    return run_blocks(&job, ndim - 2, SHORT_BLOCK, short_runs);
  if (elements > 2 * TASK_ELEMENTS) {
    /* A plane of one row, so that threads share the rows as well. */
    set_axis(&job, ndim - 1, (axis){1, 0, 0});
    set_axis(&job, job.axes.ndim++, inner);
    elements = inner.size;
  }
  return ext_parallel_for(total / elements, i64_max(1, TASK_ELEMENTS / elements), planes, &job);
}

EXT_DISPATCH(ext_copy, (const ext_copy_params* p, const void* x, void* y), (p, x, y))
