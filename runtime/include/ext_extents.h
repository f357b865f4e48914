/*
 * ext_extents.h - what expressions of extents call, where sizes are known at run time only.
 *
 * Included by generated code only.
 */
#ifndef EXT_EXTENTS_H_
#define EXT_EXTENTS_H_

#include "ext_common.h"

static inline int64_t ext_larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static inline int64_t ext_aligned(int64_t bytes) {
  return (bytes + EXT_ALIGN - 1) / EXT_ALIGN * EXT_ALIGN;
}

/* a / b, for b >= 0, and its remainder as Python has them, rounded down. An extent that is divided
 * by another is a share of a tensor without elements where that is 0: 0 as well. */
static inline int64_t ext_floordiv(int64_t a, int64_t b) {
  return b == 0 ? 0 : a / b - (a % b < 0);
}
static inline int64_t ext_floormod(int64_t a, int64_t b) {
  int64_t rest = b == 0 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

#endif /* EXT_EXTENTS_H_ */
