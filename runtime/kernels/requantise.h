/* Internal: what follows the sums of a quantised product (ext_requantise), for a tile of sums. */
#ifndef EXT_REQUANTISE_H_
#define EXT_REQUANTISE_H_

#include "../simd/simd.h"

/* An ext_requantise as tiles want it. */
typedef struct {
  ext_requantise e;
  int clamps; /* both activations are clamps, to [low, high]; [0] before the residual, [1] after */
  float low[2], high[2];
  float least, most;             /* of v / y_scale: what y_dtype holds, y_zero taken off */
  float inner_least, inner_most; /* the same of v / inner_scale; both 0 without inner integers */
  int inner;
  int32_t x_zero; /* of the x that were multiplied: sums are too large by it times w_sums */
  /* Bytes, clamps, no residual and no inner integers: y = round(limit((sum scale + bias) /
   * y_scale)) + y_zero, to [low_steps, high_steps]. */
  int direct;
  /* Bytes, clamps and inner integers: u = round(limit((sum scale + bias) / inner_scale)), to
   * [inner_low, inner_high], and y = round(limit((u inner_scale + residual) / y_scale)) + y_zero,
   * to [low_steps, high_steps]; a residual is of bytes as well. */
  int stepwise;
  float low_steps, high_steps, inner_low, inner_high;
  float reciprocal; /* 1 / y_scale, of a stepwise plan */
} requantise_plan;

/* What a tile holds: sums of (x - x_zero) * w, of which fp32 ones are whole numbers, or values. */
typedef enum { TILE_INT32_SUMS, TILE_FLOAT_SUMS, TILE_VALUES } tile_content;

typedef struct {
  int64_t rows, columns;
  void* content;             /* [rows][width], 64-byte aligned; overwritten */
  int64_t width;             /* a multiple of VL; at least columns */
  const float *scale, *bias; /* of the tile's columns */
  /* NULL, or what a direct or a stepwise plan makes of them, in steps of its first_scale; as long
   * as `width`. */
  const float *factor, *shift;
  const uint8_t* residual; /* NULL or the tile's corner */
  uint8_t* y;              /* the tile's corner */
  int64_t y_row;
} requantise_tile;

/* Bytes of an element; 0 for a dtype that a quantised product neither reads nor writes. */
EXT_INLINE int64_t quantised_size(ext_dtype dtype) {
  return dtype == EXT_FLOAT32 ? 4 : dtype == EXT_INT8 || dtype == EXT_UINT8;
}

/* Of the integers that sums are rounded to first. */
EXT_INLINE float first_scale(const requantise_plan* plan) {
  return plan->inner ? plan->e.inner_scale : plan->e.y_scale;
}

/* How numbers, counted in steps of y, become bytes. */
EXT_INLINE vx_steps requantise_steps(const requantise_plan* plan) {
  return vx_steps_of(plan->low_steps, plan->high_steps, plan->e.y_zero,
                     plan->e.y_dtype == EXT_INT8);
}

/* Whether an 8-bit dtype holds a zero point. */
EXT_INLINE int holds_zero(ext_dtype dtype, int32_t zero) {
  return dtype == EXT_INT8 ? zero >= -128 && zero <= 127 : zero >= 0 && zero <= 255;
}

/* EXT_ERR_ARGUMENT where a dtype or a zero point is none. */
int EXT_NAME(ext_plan_requantise)(const ext_requantise* e, requantise_plan* plan);

/* Finishes a tile and writes it to y. */
void EXT_NAME(ext_requantise_tile)(const requantise_plan* plan, tile_content content,
                                   const requantise_tile* t);

#endif /* EXT_REQUANTISE_H_ */
