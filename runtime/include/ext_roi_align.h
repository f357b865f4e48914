/*
 * ext_roi_align.h - the C interface of regions of images that are pooled; part of ext_kernels.h,
 * which includes it.
 */
#ifndef EXT_ROI_ALIGN_H_
#define EXT_ROI_ALIGN_H_

#include "ext_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[r][oh][ow][c] = the mean of samples of bin (oh, ow) of region r, c < channels.
 *
 * A region is five floats: its image, and left, top, right and bottom, which `scale` makes places
 * in the image.  Without `aligned` it is at least one pixel wide and high.  It has out_h x out_w
 * bins of `samples` x `samples` samples each, or with 0 of as many as a bin has pixels.  A sample
 * is bilinear; up to one pixel outside it is on the border, farther off 0.  x and y are dense.
 * EXT_ERR_INDEX for an image that is not there. */
typedef struct {
  int64_t batch, in_h, in_w, channels, regions, out_h, out_w, samples;
  float scale;
  int32_t aligned;
} ext_roi_align_params;
int ext_roi_align(const ext_roi_align_params* p, const float* x, const float* regions, float* y);

/* y[r][oh][ow][c] = the greatest element of bin (oh, ow) of region r, c < channels; 0 of a bin
 * without pixels.
 *
 * A region is five floats as above.  Its sides, rounded, are pixels that belong to it; it has one
 * at least.  A bin has all pixels that it meets.  EXT_ERR_INDEX as above. */
typedef struct {
  int64_t batch, in_h, in_w, channels, regions, out_h, out_w;
  float scale;
} ext_roi_max_params;
int ext_roi_max(const ext_roi_max_params* p, const float* x, const float* regions, float* y);

#ifdef __cplusplus
}
#endif

#endif /* EXT_ROI_ALIGN_H_ */
