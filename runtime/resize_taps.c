/*
 * The tables of ext_resize2d for one axis whose extents are only known at the call.
 *
 *   position = where an output element lies on the input's axis, by the coordinate transformation
 *   nearest: 1 tap, the rounded position;  linear: 2 taps around it;  cubic: 4 taps (Keys, 1981)
 *
 * codegen_cc/operators/resize2d.py makes the same tables when compiling, bit by bit, where
 * extents are known.  For that the operations stay as they are written: this file is compiled
 * without contraction of products and sums.  An axis has some thousand elements at most, so one
 * thread fills its table in microseconds.
 *
 * Engines round in different places, and where a position falls between two pixels that decides
 * which one is nearest: TVM multiplies by extent / count, and ONNX Runtime divides by
 * count / extent (`divided`).
 */
#include "kernels/public.h"

/* Added before a floor (taken away before a ceil), against a position that rounded to just below.
 */
static const float EPSILON = 1e-5f;
/* Positions this far from the middle between two pixels are in the middle. */
static const float TIE = 1e-6f;

/* Positions are far below 2^63, so that these need no library function. */
static float floor_of(float x) {
  float whole = (float)(int64_t)x;
  return whole > x ? whole - 1.0f : whole;
}
static float ceil_of(float x) {
  return -floor_of(-x);
}
/* To the nearest, halves to the even one. */
static float round_of(float x) {
  float low = floor_of(x), rest = x - low;
  if (rest != 0.5f) return rest < 0.5f ? low : low + 1.0f;
  return (int64_t)low % 2 == 0 ? low : low + 1.0f;
}

static int64_t at_least_1(int64_t x) {
  return x < 1 ? 1 : x;
}

static float divided_position_of(const ext_resize_taps_params* p, int64_t i) {
  float x = (float)i, scale = (float)p->count / (float)p->extent;
  switch (p->coordinates) {
    case EXT_RESIZE_ALIGN_CORNERS:
      return x * (float)(p->extent - 1) / (float)at_least_1(p->count - 1);
    case EXT_RESIZE_ASYMMETRIC: return x / scale;
    case EXT_RESIZE_TF_HALF_PIXEL_FOR_NN: return (x + 0.5f) / scale;
    case EXT_RESIZE_PYTORCH_HALF_PIXEL: return p->count <= 1 ? 0.0f : (x + 0.5f) / scale - 0.5f;
    default: return (x + 0.5f) / scale - 0.5f;
  }
}

static float position_of(const ext_resize_taps_params* p, int64_t i) {
  if (p->divided) return divided_position_of(p, i);
  float x = (float)i, scale = (float)p->extent / (float)at_least_1(p->count);
  switch (p->coordinates) {
    case EXT_RESIZE_ALIGN_CORNERS:
      return x * ((float)(p->extent - 1) / (float)at_least_1(p->count - 1));
    case EXT_RESIZE_ASYMMETRIC: return x * scale;
    case EXT_RESIZE_TF_HALF_PIXEL_FOR_NN: return (x + 0.5f) * scale;
    case EXT_RESIZE_PYTORCH_HALF_PIXEL: return p->count <= 1 ? 0.0f : (x + 0.5f) * scale - 0.5f;
    default: return (x + 0.5f) * scale - 0.5f;
  }
}

/* Whether every input element is repeated a whole number of times, which integers tell exactly. */
static int repeats(const ext_resize_taps_params* p) {
  if (p->coordinates != EXT_RESIZE_ASYMMETRIC || p->rounding != EXT_RESIZE_FLOOR) return 0;
  if (p->count % p->extent != 0) return 0;
  return (float)(p->count / p->extent) <= 1.0f / (EPSILON * (float)p->extent + EPSILON);
}

/* ONNX Runtime's roundings, which add nothing to a position; what is a tie it knows to TIE. */
static int64_t nearest_exactly(const ext_resize_taps_params* p, int64_t i) {
  float x = position_of(p, i), low = floor_of(x), past_half = x - low - 0.5f;
  switch (p->rounding) {
    case EXT_RESIZE_ROUND_PREFER_FLOOR: return (int64_t)low + (past_half > TIE);
    case EXT_RESIZE_ROUND_PREFER_CEIL: return (int64_t)low + (past_half >= -TIE);
    case EXT_RESIZE_FLOOR:
    case EXT_RESIZE_FLOOR_EXACT: return (int64_t)low;
    case EXT_RESIZE_CEIL: return (int64_t)ceil_of(x);
    default: return (int64_t)round_of(x);
  }
}

static int64_t nearest(const ext_resize_taps_params* p, int64_t i) {
  if (p->divided) return nearest_exactly(p, i);
  if (repeats(p)) return i / (p->count / p->extent);
  float x = position_of(p, i);
  switch (p->rounding) {
    case EXT_RESIZE_ROUND_PREFER_FLOOR: return (int64_t)ceil_of(x - 0.5f);
    case EXT_RESIZE_ROUND_PREFER_CEIL: return (int64_t)floor_of(x + 0.5f);
    case EXT_RESIZE_FLOOR: return (int64_t)floor_of(x + EPSILON);
    case EXT_RESIZE_FLOOR_EXACT: return (int64_t)floor_of(x);
    case EXT_RESIZE_CEIL: return (int64_t)ceil_of(x - EPSILON);
    default: return (int64_t)round_of(x);
  }
}

static void cubic(const ext_resize_taps_params* p, float t, int64_t first, float* weight) {
  float alpha = p->cubic_alpha, square = t * t, cube = t * t * t;
  weight[0] = alpha * (cube - 2.0f * square + t);
  weight[1] = (alpha + 2.0f) * cube - (3.0f + alpha) * square + 1.0f;
  weight[2] = -(alpha + 2.0f) * cube + (3.0f + 2.0f * alpha) * square - alpha * t;
  weight[3] = -alpha * cube + alpha * square;
  if (!p->cubic_exclude) return;
  float sum = 0.0f;
  for (int64_t j = 0; j < 4; j++) {
    if (first + j < 0 || first + j >= p->extent) weight[j] = 0.0f;
    sum += weight[j];
  }
  for (int64_t j = 0; j < 4; j++) weight[j] /= sum;
}

int ext_resize_taps(const ext_resize_taps_params* p, int32_t* at, float* weight) {
  int64_t taps = p->method == EXT_RESIZE_NEAREST ? 1 : p->method == EXT_RESIZE_LINEAR ? 2 : 4;
  if (p->count == 0) return EXT_OK;
  if (p->extent < 1 || p->count < 0) return EXT_ERR_ARGUMENT;
  for (int64_t i = 0; i < p->count; i++, at += taps, weight += taps) {
    int64_t first;
    if (p->method == EXT_RESIZE_NEAREST) {
      first = nearest(p, i);
      weight[0] = 1.0f;
    } else {
      float position = position_of(p, i), whole = floor_of(position), rest = position - whole;
      first = (int64_t)whole - (taps == 4);
      if (taps == 4) {
        cubic(p, rest, first, weight);
      } else {
        weight[0] = 1.0f - rest;
        weight[1] = rest;
      }
    }
    for (int64_t j = 0; j < taps; j++) {
      int64_t tap = first + j;
      at[j] = (int32_t)(tap < 0 ? 0 : tap >= p->extent ? p->extent - 1 : tap);
    }
  }
  return EXT_OK;
}
