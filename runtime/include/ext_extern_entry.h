/*
 * ext_extern_entry.h - what the packed functions of `byoc extern` share.
 *
 * Such a function takes tensors (inputs), numbers (attributes) and again tensors (outputs).  It
 * reads extents from the inputs' shapes, checks every argument against them, and calls one function
 * of the user's library.
 */
#ifndef EXT_EXTERN_ENTRY_H_
#define EXT_EXTERN_ENTRY_H_

#include <limits.h>
#include <stdint.h>

#include "ext_tvm_entry.h"

/* A check that has raised an error ends the packed function. */
#define EXT_CHECK(call)         \
  do {                          \
    if ((call) != 0) return -1; \
  } while (0)

/* Any number of neighbouring axes of a tensor. */
typedef struct {
  int32_t count;
  const int64_t* extents;
} ext_run;

/* Checks the number of arguments, which `names` lists. */
static inline int ext_check_count(const char* function, int32_t n, int32_t expected,
                                  const char* names) {
  char message[640];
  if (n == expected) return 0;
  snprintf(message, sizeof(message), "%s: got %d arguments; expected %d: %s", function, (int)n,
           (int)expected, names);
  return ext_raise("TypeError", message);
}

/* Checks that an argument is a tensor whose rank lies in [least, EXT_MAX_DIMS]. */
static inline int ext_check_rank(const char* function, const char* name, const TVMFFIAny* arg,
                                 int32_t least) {
  char message[256];
  const DLTensor* t = ext_tensor_of(arg);
  if (t == NULL) {
    snprintf(message, sizeof(message), "%s: %s is not a tensor (FFI type %d); pass a tensor",
             function, name, (int)arg->type_index);
    return ext_raise("TypeError", message);
  }
  if (t->ndim >= least && t->ndim <= EXT_MAX_DIMS) return 0;
  snprintf(message, sizeof(message), "%s: %s has rank %d; expected %d to %d", function, name,
           (int)t->ndim, (int)least, EXT_MAX_DIMS);
  return ext_raise("ValueError", message);
}

/* A number outside of its range: raises ValueError. */
static inline int ext_check_range(const char* function, const char* name, int64_t value,
                                  int64_t low, int64_t high) {
  char message[320];
  if (value >= low && value <= high) return 0;
  snprintf(message, sizeof(message), "%s: %s is %lld; expected %lld to %lld", function, name,
           (long long)value, (long long)low, (long long)high);
  return ext_raise("ValueError", message);
}

/* Reads an integer or truth value in [low, high]. */
static inline int ext_read_int(const char* function, const char* name, const TVMFFIAny* arg,
                               int64_t low, int64_t high, int64_t* value) {
  char message[256];
  if (arg->type_index != kTVMFFIInt && arg->type_index != kTVMFFIBool) {
    snprintf(message, sizeof(message), "%s: %s has FFI type %d; pass an integer", function, name,
             (int)arg->type_index);
    return ext_raise("TypeError", message);
  }
  *value = arg->v_int64;
  return ext_check_range(function, name, *value, low, high);
}

/* Reads a number as a double. */
static inline int ext_read_float(const char* function, const char* name, const TVMFFIAny* arg,
                                 double* value) {
  char message[256];
  if (arg->type_index == kTVMFFIFloat) {
    *value = arg->v_float64;
    return 0;
  }
  if (arg->type_index == kTVMFFIInt) {
    *value = (double)arg->v_int64;
    return 0;
  }
  snprintf(message, sizeof(message), "%s: %s has FFI type %d; pass a number", function, name,
           (int)arg->type_index);
  return ext_raise("TypeError", message);
}

/* Extent of an axis of a tensor, from the end if negative; 0 where there is none. */
static inline int64_t ext_axis(const TVMFFIAny* arg, int64_t axis) {
  const DLTensor* t = ext_tensor_of(arg);
  if (t == NULL) return 0;
  if (axis < 0) axis += t->ndim;
  return axis >= 0 && axis < t->ndim ? t->shape[axis] : 0;
}

static inline int32_t ext_rank(const TVMFFIAny* arg) {
  const DLTensor* t = ext_tensor_of(arg);
  return t == NULL ? 0 : t->ndim;
}

/* The axes [first, ndim - after) of a tensor. */
static inline ext_run ext_run_of(const TVMFFIAny* arg, int64_t first, int64_t after) {
  const DLTensor* t = ext_tensor_of(arg);
  if (t == NULL || first < 0 || t->ndim - after < first) return (ext_run){0, NULL};
  return (ext_run){(int32_t)(t->ndim - after - first), t->shape + first};
}

/* Number of elements of a run. */
static inline int64_t ext_elements(ext_run run) {
  int64_t product = 1;
  for (int32_t i = 0; i < run.count; ++i) product *= run.extents[i];
  return product;
}

/* Adds axes to an expected shape.  Those beyond EXT_MAX_DIMS are counted and have no place;
 * ext_check_expected must follow. */
static inline void ext_expect(ext_tensor_spec* spec, int64_t extent) {
  if (spec->ndim < EXT_MAX_DIMS) spec->shape[spec->ndim] = extent;
  spec->ndim++;
}
static inline void ext_expect_run(ext_tensor_spec* spec, ext_run run) {
  for (int32_t i = 0; i < run.count; ++i) ext_expect(spec, run.extents[i]);
}

/* More axes than a tensor may have, of the shape that the inputs ask for: raises ValueError. */
static inline int ext_check_expected(const char* function, const ext_tensor_spec* spec) {
  char message[256];
  if (spec->ndim <= EXT_MAX_DIMS) return 0;
  snprintf(message, sizeof(message),
           "%s: %s would have rank %d for these inputs; at most %d is possible", function,
           spec->name, (int)spec->ndim, EXT_MAX_DIMS);
  return ext_raise("ValueError", message);
}

/* a / b rounded down, for b > 0. */
static inline int64_t ext_floor_div(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

/* What a status of a function means that has no texts of its own. */
static inline const char* ext_no_status_text(int status) {
  (void)status;
  return "its header says what that means";
}

/* The user's function returned a status: raises RuntimeError. */
static inline int ext_raise_returned(const char* function, long long status) {
  char message[256];
  snprintf(message, sizeof(message), "%s: the kernel failed with status %lld", function, status);
  return ext_raise("RuntimeError", message);
}

#endif /* EXT_EXTERN_ENTRY_H_ */
