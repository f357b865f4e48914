/* Internal: which taps of a transposed convolution lie on an output, and what its gathers share. */
#ifndef EXT_TRANSPOSED_TAPS_H_
#define EXT_TRANSPOSED_TAPS_H_

#include "../simd/simd.h"
#include "public.h"

/* The taps of an axis on output position o, with (o + pad) = stride q + phase: first[phase], where
 * it is not past the kernel, and each `step` further, with inputs q + at[phase], and `back` less
 * each time. */
typedef struct {
  int64_t *first, *at, step, back;
} axis_taps;

/* Where planes of patches (transposed_planes.h) lie, and the rows that are made of them. */
typedef struct {
  int64_t left, width;     /* zeros before a line of a plane; floats of it */
  int64_t first_q, number; /* of an output row: (ow + pad) / stride */
  int64_t line;            /* floats of a line of sums, at least `number` */
} plane_sizes;

typedef struct {
  ext_conv2d_params p; /* with axes changed where images are one row */
  ext_epilogue e;
  const float *x, *w;
  float* y;
  int64_t patch;       /* floats of one input pixel's patches: groups x taps x channels */
  int64_t channels;    /* outputs of one group */
  int64_t block, ring; /* output rows of a block; input rows whose patches are kept */
  int64_t row_floats;  /* of an input row's patches */
  axis_taps vertical, along;
  int is_line;            /* of one pixel a row, written by runs */
  const float* line_bias; /* of a line: the bias for each phase of the stride, or NULL */
  int has_planes;
  plane_sizes planes;
} transpose_job;

/* Where the taps of one output row or pixel are: kernel positions first, first + step ... past, and
 * the inputs at, at - back ... */
typedef struct {
  int64_t first, past, at;
} taps_on;

/* Fills `memory`, twice as many numbers as the stride. */
static axis_taps taps_of_axis(int64_t stride, int64_t kernel, int64_t dilation, int64_t* memory) {
  axis_taps t = {.first = memory, .at = memory + stride, .step = 1};
  while (t.step * dilation % stride) t.step++;
  t.back = t.step * dilation / stride;
  for (int64_t phase = 0; phase < stride; phase++) {
    int64_t k = 0;
    while (k < t.step && (phase - k * dilation) % stride) k++;
    t.first[phase] = k < t.step ? k : kernel;
    t.at[phase] = (phase - k * dilation) / stride;
  }
  return t;
}

/* The taps on output position o + pad = stride q + phase that lie in an input of `size`. */
EXT_INLINE taps_on taps_inside(const axis_taps* t, int64_t q, int64_t phase, int64_t kernel,
                               int64_t size) {
  taps_on on = {t->first[phase], kernel, q + t->at[phase]};
  for (; on.first < kernel && on.at >= size; on.first += t->step) on.at -= t->back;
  if (on.first >= kernel || on.at < 0) return (taps_on){0, 0, 0};
  on.past = i64_min(kernel, on.first + (on.at / t->back + 1) * t->step);
  return on;
}

/* The taps on the output row `oh` of an image. */
EXT_INLINE taps_on taps_of_row(const transpose_job* job, int64_t oh) {
  const ext_conv2d_params* p = &job->p;
  const int64_t at = oh + p->pad_top;
  return taps_inside(&job->vertical, at / p->stride_h, at % p->stride_h, p->kernel_h, p->in_h);
}

#endif /* EXT_TRANSPOSED_TAPS_H_ */
