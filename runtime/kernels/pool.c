/*
 * y[n][oh][ow][c] = max or mean over the window of x[n][oh sh + kh dh - top][ow sw + kw dw -
 * left][c]
 *
 * Of bytes one vector of channels at a time, of all else as pool_window.h has it; a window that
 * reaches past the image is clipped once for each pixel.  Memory speed decides.
 */
#include "pool_window.h"

/* Columns of a window from which its maximum is taken of columns' maxima, where they are vectors.
 */
enum { LEAST_TAPS = 4 };

/* What is computed, of which elements. */
typedef enum { MEAN, GREATEST, MEAN_BF16, GREATEST_BF16, GREATEST_INT8, GREATEST_UINT8 } pool_kind;

typedef struct {
  const ext_pool2d_params* p;
  int64_t size; /* bytes of an element */
  const char* x;
  char* y;
} pool_job;

/* The taps [first, past) of one axis whose position start + i dilation lies in [low, high). */
static void clip_axis(int64_t start, int64_t kernel, int64_t dilation, int64_t low, int64_t high,
                      int64_t* first, int64_t* past) {
  *first = start < low ? i64_min(kernel, ceil_div(low - start, dilation)) : 0;
  *past = start < high ? i64_min(kernel, ceil_div(high - start, dilation)) : 0;
  if (*past < *first) *past = *first;
}

/* The greatest of 2 VL channels stored as bf16, by integers in the same order, `vectors` (a
 * constant) vectors at a time. */
EXT_INLINE void greatest_pairs(const int vectors, const uint16_t* x, int64_t rows, int64_t row_step,
                               int64_t taps, int64_t tap_step, uint16_t* y) {
  const vkeys lowest = vbits_key((vbits){0} + 0xff7fff7f);
  vkeys most[2];
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) most[v] = lowest;
  for (int64_t i = 0; i < rows; i++) {
    const uint16_t* tap = x + i * row_step;
    for (int64_t j = 0; j < taps; j++, tap += tap_step) {
      EXT_UNROLL
      for (int v = 0; v < vectors; v++)
        most[v] = vbits_most(most[v], vbits_key(vbits_load(tap + v * 2 * VL)));
    }
  }
  EXT_UNROLL
  for (int v = 0; v < vectors; v++) {
    const vbits result = vbits_of_key(most[v]);
    memcpy(y + v * 2 * VL, &result, sizeof result);
  }
}

/* The last vector begins early, so that it is full. */
static void greatest_bf16(int64_t channels, const uint16_t* x, int64_t rows, int64_t row_step,
                          int64_t taps, int64_t tap_step, uint16_t* y) {
  int64_t c = 0;
  for (; c + 4 * VL <= channels; c += 4 * VL)
    greatest_pairs(2, x + c, rows, row_step, taps, tap_step, y + c);
  for (; c < channels; c += 2 * VL) {
    const int64_t from = i64_min(c, channels - 2 * VL);
    greatest_pairs(1, x + from, rows, row_step, taps, tap_step, y + from);
  }
}

/* The greatest of bytes, of fewer channels than a vector has; the result stays in L1 while the taps
 * pass. */
#define EXT_GREATEST(name, type, least)                                                    \
  static void name(int64_t channels, const uint8_t* image, int64_t rows, int64_t row_step, \
                   int64_t taps, int64_t tap_step, uint8_t* result) {                      \
    type* restrict y = (type*)result;                                                      \
    for (int64_t c = 0; c < channels; c++) y[c] = (least);                                 \
    for (int64_t i = 0; i < rows; i++)                                                     \
      for (int64_t j = 0; j < taps; j++) {                                                 \
        const type* restrict x = (const type*)(image + i * row_step + j * tap_step);       \
        for (int64_t c = 0; c < channels; c++) y[c] = x[c] > y[c] ? x[c] : y[c];           \
      }                                                                                    \
  }
EXT_GREATEST(few_int8, int8_t, INT8_MIN)
EXT_GREATEST(few_uint8, uint8_t, 0)

/* A vector of them; bytes are flipped to unsigned ones and back. */
EXT_INLINE void greatest_vector(vx flip, const uint8_t* x, int64_t rows, int64_t row_step,
                                int64_t taps, int64_t tap_step, uint8_t* y) {
  vx most = {0};
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < taps; j++)
      most = vx_max(most, vx_load(x + i * row_step + j * tap_step) ^ flip);
  vx_store(y, most ^ flip);
}

EXT_INLINE void greatest_bytes(const int is_signed, int64_t channels, const void* x, int64_t rows,
                               int64_t row_step, int64_t taps, int64_t tap_step, void* y) {
  enum { BYTES = sizeof(vx) };
  const vx flip = (vx){0} + (uint8_t)(is_signed ? 0x80 : 0);
  if (channels < BYTES) {
    (is_signed ? few_int8 : few_uint8)(channels, x, rows, row_step, taps, tap_step, y);
    return;
  }
  for (int64_t c = 0; c < channels; c += BYTES) {
    const int64_t at = i64_min(c, channels - BYTES); /* some once more */
    greatest_vector(flip, (const uint8_t*)x + at, rows, row_step, taps, tap_step, (uint8_t*)y + at);
  }
}

/* Taps of one window, or of many side by side. */
typedef struct {
  int64_t channels, rows, row_step, taps, tap_step;
  float divisor;
} pool_window;

EXT_INLINE int is_greatest(const pool_kind kind) {
  return kind != MEAN && kind != MEAN_BF16;
}

EXT_INLINE void pool_window_of(const pool_kind kind, const pool_window* w, const void* x, void* y) {
  const int is_max = kind == GREATEST || kind == GREATEST_BF16;
  if (kind == GREATEST_INT8 || kind == GREATEST_UINT8)
    greatest_bytes(kind == GREATEST_INT8, w->channels, x, w->rows, w->row_step, w->taps,
                   w->tap_step, y);
  else if (kind == GREATEST_BF16 && w->channels >= 2 * VL)
    greatest_bf16(w->channels, x, w->rows, w->row_step, w->taps, w->tap_step, y);
  else
    channels_of(is_max, kind == MEAN_BF16 || kind == GREATEST_BF16, w->channels, x, w->rows,
                w->row_step, w->taps, w->tap_step, w->divisor, y);
}

/* Windows of one row, `step` apart, of `channels`, fewer than a vector has lanes; all but the last
 * two are constants where it pays. */
EXT_INLINE void windows_of_few(const int is_max, int64_t channels, int64_t step, int64_t taps,
                               int64_t tap_step, float divisor, int64_t count,
                               const float* restrict x, float* restrict y) {
  for (int64_t i = 0; i < count; i++, x += step, y += channels)
    for (int64_t c = 0; c < channels; c++) {
      float sum = x[c];
      for (int64_t j = 1; j < taps; j++) {
        const float v = x[j * tap_step + c];
        if (is_max)
          sum = sum != sum ? sum : v <= sum ? sum : v; /* a NaN stays */
        else
          sum += v;
      }
      y[c] = is_max ? sum : sum / divisor;
    }
}

static void windows_of_columns(const int is_max, const pool_window* w, int64_t channels,
                               int64_t step, const void* x, void* y) {
  const int64_t count = w->channels / channels;
  if (is_max && channels == 1 && step == 2 && w->taps == 2 && w->tap_step == 1)
    windows_of_few(1, 1, 2, 2, 1, 1.0f, count, x, y);
  else if (is_max && channels == 1 && step == 2 && w->taps == 3 && w->tap_step == 1)
    windows_of_few(1, 1, 2, 3, 1, 1.0f, count, x, y);
  else if (is_max)
    windows_of_few(1, channels, step, w->taps, w->tap_step, 1.0f, count, x, y);
  else if (channels == 1 && step == 2 && w->taps == 2 && w->tap_step == 1)
    windows_of_few(0, 1, 2, 2, 1, w->divisor, count, x, y);
  else
    windows_of_few(0, channels, step, w->taps, w->tap_step, w->divisor, count, x, y);
}

/* What all windows of an output row have for each column of the image, or NULL where that does not
 * pay: where a window has few columns, or, of fp32, images few channels. */
EXT_INLINE char* column_values(const pool_kind kind, const pool_job* job, int dense,
                               const pool_window* column, const char* line) {
  const ext_pool2d_params* p = job->p;
  const int of_few = p->channels < VL && (kind == MEAN || kind == GREATEST);
  const int of_many = is_greatest(kind) && p->stride_w == 1 && p->kernel_w >= LEAST_TAPS;
  if (!dense || column->rows < 1 || !(of_few || (of_many && column->rows > 1))) return NULL;
  char* values = ext_workspace_alloc((size_t)(column->channels * job->size));
  if (values) pool_window_of(kind, column, line, values);
  return values;
}

EXT_INLINE void pool_row(const pool_kind kind, const pool_job* job, int64_t index) {
  const ext_pool2d_params* p = job->p;
  int64_t n = index / p->out_h, oh = index % p->out_h, ih0 = oh * p->stride_h - p->pad_top;
  int64_t kh0, kh1, kw0, kw1, all0, all1, padded_rows;
  const int64_t reach = (p->kernel_w - 1) * p->dilation_w;
  const int dense = p->x_stride == p->channels && p->y_stride == p->channels;
  clip_axis(ih0, p->kernel_h, p->dilation_h, 0, p->in_h, &kh0, &kh1);
  clip_axis(ih0, p->kernel_h, p->dilation_h, -p->pad_top, p->in_h + p->pad_bottom, &all0, &all1);
  padded_rows = all1 - all0;
  const int64_t inside = kh1 - kh0, row_step = p->dilation_h * p->in_w * p->x_stride;
  int64_t image = n * p->in_h * p->in_w * p->x_stride, pixels = 1;
  const int64_t first_row = (ih0 + kh0 * p->dilation_h) * p->in_w * p->x_stride;
  const char* line = job->x + (image + (inside > 0 ? first_row : 0)) * job->size;
  const pool_window column = {p->in_w * p->channels, inside, row_step, 1, 0, 1.0f};
  char* columns = column_values(kind, job, dense, &column, line);
  const int64_t rows = columns ? 1 : inside;
  if (columns) line = columns;
  for (int64_t ow = 0; ow < p->out_w; ow += pixels) {
    int64_t iw0 = ow * p->stride_w - p->pad_left;
    kw0 = all0 = 0;
    kw1 = all1 = p->kernel_w;
    pixels = 1;
    if (iw0 < 0 || iw0 + reach >= p->in_w) {
      clip_axis(iw0, p->kernel_w, p->dilation_w, 0, p->in_w, &kw0, &kw1);
      clip_axis(iw0, p->kernel_w, p->dilation_w, -p->pad_left, p->in_w + p->pad_right, &all0,
                &all1);
    } else if (dense && (columns || p->stride_w == 1)) {
      /* Windows of whole pixels that the image has whole are one run. */
      pixels = i64_min(p->out_w - ow, ceil_div(p->in_w - reach - iw0, p->stride_w));
    }
    int64_t taps = kw1 - kw0;
    float divisor = (float)(p->count_include_pad ? padded_rows * (all1 - all0) : inside * taps);
    const pool_window w = {pixels * p->channels,        rows,   row_step, taps,
                           p->dilation_w * p->x_stride, divisor};
    /* An empty window is not read; its corner may lie outside x, so it is not formed either. */
    int64_t corner = rows > 0 && taps > 0 ? (iw0 + kw0 * p->dilation_w) * p->x_stride : 0;
    char* y = job->y + (index * p->out_w + ow) * p->y_stride * job->size;
    if (pixels > 1 && p->stride_w > 1)
      windows_of_columns(kind == GREATEST, &w, p->channels, p->stride_w * p->channels,
                         line + corner * job->size, y);
    else
      pool_window_of(kind, &w, line + corner * job->size, y);
  }
  ext_workspace_free(columns);
}

#define POOL_ROWS(name, kind)                                         \
  static int name(void* context, int64_t begin, int64_t end) {        \
    for (int64_t i = begin; i < end; i++) pool_row(kind, context, i); \
    return EXT_OK;                                                    \
  }
POOL_ROWS(average_rows, MEAN)
POOL_ROWS(max_rows, GREATEST)
POOL_ROWS(average_rows_bf16, MEAN_BF16)
POOL_ROWS(max_rows_bf16, GREATEST_BF16)
POOL_ROWS(max_rows_int8, GREATEST_INT8)
POOL_ROWS(max_rows_uint8, GREATEST_UINT8)

static int run(const ext_pool2d_params* p, int64_t size, const void* x, void* y,
               ext_range_body body) {
  pool_job job = {p, size, x, y};
  int64_t reads = i64_max(1, p->out_w * p->channels * p->kernel_h * p->kernel_w);
  return ext_parallel_for(p->batch * p->out_h, i64_max(1, TASK_READS / reads), body, &job);
}

int EXT_NAME(ext_max_pool2d)(const ext_pool2d_params* p, const float* x, float* y) {
  return run(p, 4, x, y, max_rows);
}

int EXT_NAME(ext_avg_pool2d)(const ext_pool2d_params* p, const float* x, float* y) {
  return run(p, 4, x, y, average_rows);
}

int EXT_NAME(ext_max_pool2d_bytes)(const ext_pool2d_params* p, ext_dtype dtype, const void* x,
                                   void* y) {
  if (dtype != EXT_INT8 && dtype != EXT_UINT8) return EXT_ERR_ARGUMENT;
  return run(p, 1, x, y, dtype == EXT_INT8 ? max_rows_int8 : max_rows_uint8);
}

int EXT_NAME(ext_max_pool2d_bf16)(const ext_pool2d_params* p, const uint16_t* x, uint16_t* y) {
  return run(p, 2, x, y, max_rows_bf16);
}

int EXT_NAME(ext_avg_pool2d_bf16)(const ext_pool2d_params* p, const uint16_t* x, uint16_t* y) {
  return run(p, 2, x, y, average_rows_bf16);
}

EXT_DISPATCH(ext_max_pool2d, (const ext_pool2d_params* p, const float* x, float* y), (p, x, y))
EXT_DISPATCH(ext_avg_pool2d, (const ext_pool2d_params* p, const float* x, float* y), (p, x, y))
EXT_DISPATCH(ext_max_pool2d_bytes,
             (const ext_pool2d_params* p, ext_dtype dtype, const void* x, void* y),
             (p, dtype, x, y))
EXT_DISPATCH(ext_max_pool2d_bf16, (const ext_pool2d_params* p, const uint16_t* x, uint16_t* y),
             (p, x, y))
EXT_DISPATCH(ext_avg_pool2d_bf16, (const ext_pool2d_params* p, const uint16_t* x, uint16_t* y),
             (p, x, y))
