/*
 * Matrix products and convolutions on sgemm.
 *
 * A call is cut into tasks: rows and columns of one product, of which there are several where a
 * matrix product has batches or a convolution groups.  A task gathers its windows if it has to,
 * calls sgemm, and applies the epilogue to what it computed, which is still in a cache.
 *
 * Which BLAS it is the command line says: EXT_CBLAS_PREFIX is what its names begin with (such as
 * scipy_), EXT_CBLAS_SET_THREADS and EXT_CBLAS_GET_THREADS are its functions for the number of
 * threads, which take and give EXT_CBLAS_COUNT.  The functions are declared here, because a BLAS
 * often comes without its header.
 */
#include "ext_cblas.h"

#include <limits.h>
#include <string.h>

#define JOINED(a, b) a##b
#define NAMED(prefix, name) JOINED(prefix, name)
#define cblas_sgemm NAMED(EXT_CBLAS_PREFIX, cblas_sgemm)

/* Values of the enumerations CBLAS_ORDER and CBLAS_TRANSPOSE. */
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

extern void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                        const float* a, int lda, const float* b, int ldb, float beta, float* c,
                        int ldc);

#ifdef EXT_CBLAS_SET_THREADS
extern void EXT_CBLAS_SET_THREADS(EXT_CBLAS_COUNT threads);
extern EXT_CBLAS_COUNT EXT_CBLAS_GET_THREADS(void);

int ext_cblas_get_threads(void) {
  return (int)EXT_CBLAS_GET_THREADS() * ext_num_threads();
}

void ext_cblas_set_threads(int threads) {
  (void)threads;
  if (EXT_CBLAS_GET_THREADS() != 1) EXT_CBLAS_SET_THREADS(1);
}

/* How many tasks can run at once. */
static int64_t parallel_tasks(void) {
  return ext_num_threads();
}
#else
/* It may have threads of its own: one task at a time. */
static int64_t parallel_tasks(void) {
  return 1;
}
#endif

/* ------------------------------------------------------------------ one call of sgemm */

/* A matrix as sgemm reads it; `copy` is the workspace that it was copied to, or NULL. */
typedef struct {
  const float* data;
  int form, leading;
  float* copy;
} operand;

/* Elements between the rows of a matrix of contiguous rows, or 0 where sgemm would not take them:
 * a stride too small repeats elements.  One row may have any stride. */
static int64_t leading_of(int64_t rows, int64_t columns, int64_t row_stride, int64_t stride) {
  const int64_t least = columns > 1 ? columns : 1;
  if (columns > 1 && stride != 1) return 0;
  return rows <= 1 ? least : row_stride >= least ? row_stride : 0;
}

/* Finds how sgemm can read a matrix; copies it if it cannot. */
static int read_matrix(operand* o, const float* data, int64_t rows, int64_t columns, int64_t row,
                       int64_t column) {
  int64_t leading = leading_of(rows, columns, row, column);
  *o = (operand){.data = data, .form = PLAIN};
  if (leading == 0) {
    leading = leading_of(columns, rows, column, row);
    o->form = TRANSPOSED;
  }
  if (leading == 0) {
    const ext_copy_params p = {
        .ndim = 2, .shape = {rows, columns}, .x_strides = {row, column}, .y_strides = {columns, 1}};
    o->copy = ext_workspace_alloc(sizeof(float) * (size_t)(rows * columns));
    if (o->copy == NULL) return EXT_ERR_MEMORY;
    o->data = o->copy;
    o->form = PLAIN;
    leading = columns;
    const int status = ext_copy(&p, data, o->copy);
    if (status != EXT_OK) return status;
  }
  if (leading > INT_MAX) return EXT_ERR_ARGUMENT;
  o->leading = (int)leading;
  return EXT_OK;
}

/* y = a b for one product; of p the batch axes do not count. */
static int multiply(const ext_matmul_params* p, const float* a, const float* b, float* y) {
  const int64_t y_row = p->m > 1 ? p->y_row : p->n;
  operand left = {0}, right = {0};
  if (p->m > INT_MAX || p->n > INT_MAX || p->k > INT_MAX || y_row > INT_MAX)
    return EXT_ERR_ARGUMENT;
  int status = read_matrix(&left, a, p->m, p->k, p->a_row, p->a_col);
  if (status == EXT_OK) status = read_matrix(&right, b, p->k, p->n, p->b_row, p->b_col);
  if (status == EXT_OK) {
    cblas_sgemm(ROW_MAJOR, left.form, right.form, (int)p->m, (int)p->n, (int)p->k, 1, left.data,
                left.leading, right.data, right.leading, 0, y, (int)y_row);
  }
  if (right.copy != NULL) ext_workspace_free(right.copy);
  if (left.copy != NULL) ext_workspace_free(left.copy);
  return status;
}

/* ------------------------------------------------------------------ epilogue */

/* About so many elements are finished at a time: they stay in the first-level cache. */
#define BLOCK 4096

/* y[i][j] *= from[j], `from` moving on by `stride` at each row. */
static void scale(float* y, int64_t m, int64_t n, int64_t y_row, const float* from,
                  int64_t stride) {
  for (int64_t i = 0; i < m; ++i, y += y_row, from += stride) {
    for (int64_t j = 0; j < n; ++j) y[j] *= from[j];
  }
}

/* y[i][j] += from[j], `from` moving on by `stride` at each row. */
static void add(float* y, int64_t m, int64_t n, int64_t y_row, const float* from, int64_t stride) {
  for (int64_t i = 0; i < m; ++i, y += y_row, from += stride) {
    for (int64_t j = 0; j < n; ++j) y[j] += from[j];
  }
}

static int activate(const ext_activation* f, float* y, int64_t m, int64_t n, int64_t y_row) {
  int status = EXT_OK;
  if (f->kind == EXT_IDENTITY) return EXT_OK;
  if (y_row == n) return ext_unary(f, m * n, y, y);
  for (int64_t i = 0; i < m && status == EXT_OK; ++i, y += y_row) status = ext_unary(f, n, y, y);
  return status;
}

/* y = after(before(y + bias) + residual), or times it, on m rows of n; bias and residual begin
 * where y does. */
static int finish(const ext_epilogue* e, const float* bias, const float* residual, int64_t m,
                  int64_t n, int64_t y_row, float* y) {
  const int64_t step = n < BLOCK ? BLOCK / n : 1;
  int status = EXT_OK;
  for (int64_t i = 0; i < m && status == EXT_OK; i += step) {
    const int64_t rows = m - i < step ? m - i : step;
    float* to = y + i * y_row;
    if (bias != NULL) add(to, rows, n, y_row, bias, 0);
    status = activate(&e->before, to, rows, n, y_row);
    if (residual != NULL && status == EXT_OK) {
      const float* other = residual + i * e->residual_stride;
      (e->residual_is_factor ? scale : add)(to, rows, n, y_row, other, e->residual_stride);
    }
    if (status == EXT_OK) status = activate(&e->after, to, rows, n, y_row);
  }
  return status;
}

/* ------------------------------------------------------------------ tasks */

/* Products of fewer multiplications are not worth a launch, nor are tiles of fewer rows. */
#define LAUNCH (64 * 1024)
#define MIN_ROWS 32
#define MIN_COLUMNS 32
/* Bytes of gathered windows of one task, and rows that are worth packing a weight for. */
#define WINDOWS (1 << 20)
#define MIN_WINDOWS 192

typedef struct {
  const ext_matmul_params* p;    /* of each product, and the batch axes */
  const ext_conv2d_params* conv; /* or NULL: the rows of a are windows, or pixels */
  int gathers;
  const float *a, *b;
  const ext_epilogue* e;
  float* y;
  int64_t row_tiles, column_tiles;
} job;

/* Row i of columns holds the window of output pixel first + i, outside of the image zero. */
static void gather(const ext_conv2d_params* p, const float* x, int64_t first, int64_t count,
                   float* columns) {
  const int64_t channels = p->in_c / p->groups;
  const size_t bytes = sizeof(float) * (size_t)channels;
  for (int64_t pixel = first; pixel < first + count; ++pixel) {
    const int64_t ow = pixel % p->out_w, oh = pixel / p->out_w % p->out_h;
    const float* image = x + pixel / (p->out_w * p->out_h) * p->in_h * p->in_w * p->x_stride;
    for (int64_t kh = 0; kh < p->kernel_h; ++kh) {
      const int64_t h = oh * p->stride_h + kh * p->dilation_h - p->pad_top;
      for (int64_t kw = 0; kw < p->kernel_w; ++kw, columns += channels) {
        const int64_t w = ow * p->stride_w + kw * p->dilation_w - p->pad_left;
        if (h < 0 || h >= p->in_h || w < 0 || w >= p->in_w) {
          memset(columns, 0, bytes);
        } else {
          memcpy(columns, image + (h * p->in_w + w) * p->x_stride, bytes);
        }
      }
    }
  }
}

/* Offsets of a product in a, b, y, residual: index counts batches, the last axis fastest. */
static void offsets_of(const ext_matmul_params* p, int64_t index, int64_t offsets[4]) {
  memset(offsets, 0, 4 * sizeof(*offsets));
  for (int axis = p->batch_ndim - 1; axis >= 0; --axis) {
    const int64_t at = index % p->batch[axis];
    index /= p->batch[axis];
    offsets[0] += at * p->a_batch[axis];
    offsets[1] += at * p->b_batch[axis];
    offsets[2] += at * p->y_batch[axis];
    offsets[3] += at * p->residual_batch[axis];
  }
}

/* Rows [top, top + q.m) and columns [left, left + q.n) of one product. */
static int compute(const job* c, int64_t index, int64_t top, int64_t left, ext_matmul_params q) {
  int64_t offsets[4];
  offsets_of(c->p, index, offsets);
  const float* a = c->a + offsets[0];
  float* windows = NULL;
  if (c->gathers) {
    windows = ext_workspace_alloc(sizeof(float) * (size_t)(q.m * q.k));
    if (windows == NULL) return EXT_ERR_MEMORY;
    gather(c->conv, a, top, q.m, windows);
    a = windows;
  } else {
    a += top * q.a_row;
  }
  float* y = c->y + offsets[2] + top * q.y_row + left;
  int status = multiply(&q, a, c->b + offsets[1] + left * q.b_col, y);
  if (windows != NULL) ext_workspace_free(windows);
  if (c->e == NULL || status != EXT_OK) return status;
  const int64_t column = left + (c->conv != NULL ? offsets[2] : 0); /* groups are side by side */
  const ext_epilogue* e = c->e;
  const float* bias = e->bias == NULL ? NULL : e->bias + column;
  const float* residual = e->residual;
  if (residual != NULL) residual += offsets[3] + top * e->residual_stride + left;
  return finish(e, bias, residual, q.m, q.n, q.y_row, y);
}

/* The part of `extent` that tile `index` of `tiles` has: its first element and its size. */
static int64_t part(int64_t extent, int64_t tiles, int64_t index, int64_t* size) {
  const int64_t begin = extent * index / tiles;
  *size = extent * (index + 1) / tiles - begin;
  return begin;
}

static int run_tasks(void* context, int64_t begin, int64_t end) {
  const job* c = context;
  int status = EXT_OK;
  for (int64_t task = begin; task < end && status == EXT_OK; ++task) {
    ext_matmul_params q = *c->p;
    const int64_t tile = task / c->column_tiles;
    const int64_t left = part(c->p->n, c->column_tiles, task % c->column_tiles, &q.n);
    const int64_t top = part(c->p->m, c->row_tiles, tile % c->row_tiles, &q.m);
    status = compute(c, tile / c->row_tiles, top, left, q);
  }
  return status;
}

static int64_t at_most(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t at_least_1(int64_t a) {
  return a > 1 ? a : 1;
}

/* Cuts the job so that every thread has a task, and runs it. */
static int run(job* c) {
  const ext_matmul_params* p = c->p;
  if (p->batch_ndim < 0 || p->batch_ndim > 4) return EXT_ERR_ARGUMENT;
  int64_t products = 1;
  for (int axis = 0; axis < p->batch_ndim; ++axis) products *= p->batch[axis];
  if (products * p->m * p->n == 0) return EXT_OK;
  const int64_t threads = products * p->m * p->n * p->k < LAUNCH ? 1 : parallel_tasks();
  const int64_t wanted = (threads + products - 1) / products;
  c->row_tiles = c->column_tiles = 1;
  if (p->m >= p->n || p->m >= MIN_ROWS * wanted) {
    c->row_tiles = at_least_1(at_most(wanted, p->m / MIN_ROWS));
  } else {
    c->column_tiles = at_least_1(at_most(wanted, p->n / MIN_COLUMNS));
  }
  if (c->gathers) {
    const int64_t fit = WINDOWS / (int64_t)sizeof(float) / at_least_1(p->k);
    const int64_t rows = fit > MIN_WINDOWS ? fit : MIN_WINDOWS;
    const int64_t tiles = (p->m + rows - 1) / rows;
    if (tiles > c->row_tiles) c->row_tiles = tiles;
  }
  const int64_t tasks = products * c->row_tiles * c->column_tiles;
  return ext_parallel_for(tasks, threads == 1 ? tasks : 1, run_tasks, c);
}

int ext_cblas_matmul(const ext_matmul_params* p, const float* a, const float* b,
                     const ext_epilogue* e, float* y) {
  job c = {.p = p, .a = a, .b = b, .e = e, .y = y};
  return run(&c);
}

int ext_cblas_conv2d(const ext_conv2d_params* p, const float* x, const float* w,
                     const ext_epilogue* e, float* y) {
  const int64_t in_c = p->in_c / p->groups, out_c = p->out_c / p->groups;
  const int64_t k = p->kernel_h * p->kernel_w * in_c;
  const int plain = p->kernel_h == 1 && p->kernel_w == 1 && p->stride_h == 1 && p->stride_w == 1 &&
                    p->in_h == p->out_h && p->in_w == p->out_w;
  const ext_matmul_params product = {
      .m = p->batch * p->out_h * p->out_w,
      .n = out_c,
      .k = k,
      .a_row = plain ? p->x_stride : k,
      .a_col = 1,
      .b_row = out_c,
      .b_col = 1,
      .y_row = p->y_stride,
      .batch_ndim = 1,
      .batch = {p->groups},
      .a_batch = {in_c},
      .b_batch = {k * out_c},
      .y_batch = {out_c},
      .residual_batch = {out_c},
  };
  job c = {.p = &product, .conv = p, .gathers = !plain, .a = x, .b = w, .e = e, .y = y};
  return run(&c);
}
