/*
 * ext_grid_sample.h - the C interface of images read at places that a grid names; part of
 * ext_kernels.h, which includes it.
 */
#ifndef EXT_GRID_SAMPLE_H_
#define EXT_GRID_SAMPLE_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { EXT_GRID_NEAREST = 0, EXT_GRID_BILINEAR, EXT_GRID_BICUBIC } ext_grid_method;

/* What is outside of an image: zeros, its border's pixels, or the image reflected at its border. */
typedef enum { EXT_GRID_ZEROS = 0, EXT_GRID_BORDER, EXT_GRID_REFLECTION } ext_grid_padding;

/* y[n][oh][ow][c] = x[n] at (row, column), c < channels, where
 *
 *   column = grid[n grid_n + oh grid_h + ow grid_w], row = the number `grid_xy` further
 *
 * and -1 and 1 are the outermost pixels' centres with `align_corners`, else their outer borders.
 * x and y are dense.  With `volumes`, y[n][od][oh][ow][c] = x[n] at (plane, row, column), where the
 * place in the grid has od grid_d more, and the plane is the number twice `grid_xy` further; never
 * bicubic. */
typedef struct {
  int64_t batch, in_h, in_w, out_h, out_w, channels;
  int64_t grid_n, grid_xy, grid_h, grid_w;
  int32_t volumes;
  int64_t in_d, out_d, grid_d; /* with `volumes` alone */
  ext_grid_method method;
  ext_grid_padding padding;
  int32_t align_corners;
} ext_grid_sample_params;
int ext_grid_sample(const ext_grid_sample_params* p, const float* x, const float* grid, float* y);

#ifdef __cplusplus
}
#endif

#endif /* EXT_GRID_SAMPLE_H_ */
