/* Internal: axes that several operands walk together, merged where they walk them as one. */
#ifndef EXT_AXES_H_
#define EXT_AXES_H_

#include "../simd/simd.h"

enum { AXES_OPERANDS = 3 };

typedef struct {
  int32_t ndim;
  int64_t size[EXT_MAX_DIMS + 1]; /* the innermost last; room for one more */
  int64_t stride[AXES_OPERANDS][EXT_MAX_DIMS + 1];
} ext_axes;

/* Adds an axis inside of the others, or makes the innermost one longer where all operands go from
 * one of its elements to the next as they go through the new axis; stride[k] is operand k's.  An
 * axis of one element adds nothing. */
EXT_INLINE void axes_add(ext_axes* axes, const int operands, int64_t size, const int64_t* stride) {
  int joins = axes->ndim > 0;
  if (size == 1) return;
  for (int k = 0; k < operands; k++)
    joins = joins && axes->stride[k][axes->ndim - 1] == stride[k] * size;
  if (joins)
    axes->size[axes->ndim - 1] *= size;
  else
    axes->size[axes->ndim++] = size;
  for (int k = 0; k < operands; k++) axes->stride[k][axes->ndim - 1] = stride[k];
}

/* Adds to at[k] where operand k has an item, as items over the first `outer` axes are counted. */
EXT_INLINE void axes_locate(const ext_axes* axes, const int operands, int32_t outer, int64_t item,
                            int64_t* at) {
  for (int32_t d = outer - 1; d >= 0; d--) {
    int64_t i = item % axes->size[d];
    item /= axes->size[d];
    for (int k = 0; k < operands; k++) at[k] += i * axes->stride[k][d];
  }
}

/* An item over the first axes: its index along each, and where the operands have it. */
typedef struct {
  int64_t index[EXT_MAX_DIMS + 1], at[AXES_OPERANDS];
} axes_place;

EXT_INLINE axes_place axes_begin(const ext_axes* axes, const int operands, int32_t outer,
                                 int64_t item) {
  axes_place place = {{0}, {0}};
  axes_locate(axes, operands, outer, item, place.at);
  for (int32_t d = outer - 1; d >= 0; item /= axes->size[d--])
    place.index[d] = item % axes->size[d];
  return place;
}

/* Goes on by so many items, at most to the end of the last of these axes: by steps, as a division
 * for each axis takes longer than a short run. */
EXT_INLINE void axes_advance(const ext_axes* axes, const int operands, int32_t outer, int64_t items,
                             axes_place* place) {
  for (int32_t d = outer - 1; d >= 0; d--, items = 1) {
    const int64_t back = (place->index[d] += items) == axes->size[d] ? axes->size[d] : 0;
    for (int k = 0; k < operands; k++) place->at[k] += (items - back) * axes->stride[k][d];
    place->index[d] -= back;
    if (!back) return;
  }
}

#endif /* EXT_AXES_H_ */
