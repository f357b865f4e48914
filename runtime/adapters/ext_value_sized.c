/*
 * ext_value_sized.c - operators whose result is as large as the values say.
 *
 * TVM computes them by functions of its Python package, which nothing has where a model runs.  A
 * model that needs them is compiled with this file, and exports packed functions of those names;
 * TVM's virtual machine asks the library before it asks the process.
 *
 *   relax.run.nonzero(x) -> int64 [max(rank, 1), count]: coordinates of elements that are not 0
 *   relax.run.unique(x, sorted, index, inverse, counts, axis or None)
 *       -> the distinct elements, or slices along an axis; or an array of these and, as asked for,
 *          where each is first found, which of them each element is, and how often each is found
 *   relax.run.shape_to_tensor(shape) -> int64 [rank]
 *
 * NaN is not 0, comes last and equals itself, as in NumPy.
 */
#define _GNU_SOURCE
#include <math.h>

#include "ext_value_sized.h"

EXPORT(ext_run_nonzero) __asm__("__tvm_ffi_relax.run.nonzero");
EXPORT(ext_run_unique) __asm__("__tvm_ffi_relax.run.unique");
EXPORT(ext_run_shape_to_tensor) __asm__("__tvm_ffi_relax.run.shape_to_tensor");

/* Whether an element is neither 0 nor -0. */
static int is_set(const unsigned char* element, int bytes, int has_sign) {
  int set = 0;
  for (int i = 0; i < bytes - 1; ++i) set |= element[i];
  return (set | (element[bytes - 1] & (has_sign ? 0x7f : 0xff))) != 0; /* little-endian */
}

int ext_run_nonzero(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const DLTensor* x = taken_at("nonzero", args, n, 0);
  (void)self;
  if (x == NULL) return -1;
  const int bytes = x->dtype.bits / 8;
  const int has_sign =
      x->dtype.code != kDLInt && x->dtype.code != kDLUInt && x->dtype.code != kDLBool;
  const unsigned char* data = (const unsigned char*)data_of(x);
  const int64_t total = count_of(x);
  const int32_t rank = x->ndim > 0 ? x->ndim : 1;
  int64_t count = 0;
  for (int64_t i = 0; i < total; ++i) count += is_set(data + i * bytes, bytes, has_sign);
  int64_t *places, found = 0;
  if (new_int64(2, (const int64_t[]){rank, count}, result, &places) != 0) return -1;
  for (int64_t i = 0; i < total; ++i) {
    if (!is_set(data + i * bytes, bytes, has_sign)) continue;
    int64_t rest = i;
    for (int32_t axis = rank - 1; axis >= 0; --axis) {
      const int64_t extent = axis < x->ndim ? x->shape[axis] : 1;
      places[axis * count + found] = rest % extent;
      rest /= extent;
    }
    ++found;
  }
  return 0;
}

int ext_run_shape_to_tensor(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self;
  if (n != 1 || args[0].type_index != kTVMFFIShape)
    return ext_raise("TypeError", "shape_to_tensor: argument 0 is no shape; pass one");
  const TVMFFIShapeCell* cell = ext_shape_of(&args[0]);
  const int64_t rank = (int64_t)cell->size;
  int64_t* sizes;
  if (new_int64(1, &rank, result, &sizes) != 0) return -1;
  for (int64_t i = 0; i < rank; ++i) sizes[i] = cell->data[i];
  return 0;
}

/* What is compared: `extent` items, of which item i has the elements
 * ((o * extent + i) * inner + k) for o < outer, k < inner. */
typedef struct {
  const char* data;
  int64_t outer, extent, inner;
  int bytes;
  int (*compare)(const void* a, const void* b);
} items;

#define COMPARE(name, type)                              \
  static int name(const void* a, const void* b) {        \
    const type x = *(const type*)a, y = *(const type*)b; \
    return (x > y) - (x < y);                            \
  }
#define COMPARE_FLOAT(name, type)                             \
  static int name(const void* a, const void* b) {             \
    const type x = *(const type*)a, y = *(const type*)b;      \
    if (isnan(x) || isnan(y)) return !!isnan(x) - !!isnan(y); \
    return (x > y) - (x < y);                                 \
  }
COMPARE(compare_i8, int8_t)
COMPARE(compare_i16, int16_t)
COMPARE(compare_i32, int32_t)
COMPARE(compare_i64, int64_t)
COMPARE(compare_u8, uint8_t)
COMPARE(compare_u16, uint16_t)
COMPARE(compare_u32, uint32_t)
COMPARE(compare_u64, uint64_t)
COMPARE_FLOAT(compare_f32, float)
COMPARE_FLOAT(compare_f64, double)

/* NULL for a dtype whose values cannot be ordered here. */
static int (*comparison(DLDataType dtype))(const void*, const void*) {
  const int log = dtype.bits == 8 ? 0 : dtype.bits == 16 ? 1 : dtype.bits == 32 ? 2 : 3;
  static int (*const of_int[])(const void*, const void*) = {compare_i8, compare_i16, compare_i32,
                                                            compare_i64};
  static int (*const of_uint[])(const void*, const void*) = {compare_u8, compare_u16, compare_u32,
                                                             compare_u64};
  if (dtype.bits > 64) return NULL;
  if (dtype.code == kDLInt) return of_int[log];
  if (dtype.code == kDLUInt || dtype.code == kDLBool) return of_uint[log];
  if (dtype.code == kDLFloat && dtype.bits == 32) return compare_f32;
  return dtype.code == kDLFloat && dtype.bits == 64 ? compare_f64 : NULL;
}

static int compare_items(const void* a, const void* b, void* context) {
  const items* all = context;
  const int64_t i = *(const int64_t*)a, j = *(const int64_t*)b;
  for (int64_t o = 0; o < all->outer; ++o) {
    for (int64_t k = 0; k < all->inner; ++k) {
      const int found =
          all->compare(all->data + ((o * all->extent + i) * all->inner + k) * all->bytes,
                       all->data + ((o * all->extent + j) * all->inner + k) * all->bytes);
      if (found != 0) return found;
    }
  }
  return 0;
}

/* By value, equal ones by place: the first of a group is the one that is found first. */
static int compare_places(const void* a, const void* b, void* context) {
  const int64_t i = *(const int64_t*)a, j = *(const int64_t*)b;
  const int found = compare_items(a, b, context);
  return found != 0 ? found : (i > j) - (i < j);
}

/* Groups of equal items by where they are first found. */
typedef struct {
  int64_t first, begin, count;
} group;

static int compare_first(const void* a, const void* b) {
  const int64_t i = ((const group*)a)->first, j = ((const group*)b)->first;
  return (i > j) - (i < j);
}

static int64_t find_groups(const items* all, const int64_t* order, group* groups) {
  int64_t count = 0;
  for (int64_t i = 0; i < all->extent; ++i) {
    if (i == 0 || compare_items(&order[i - 1], &order[i], (void*)all) != 0)
      groups[count++] = (group){order[i], i, 0};
    groups[count - 1].count++;
  }
  return count;
}

/* Writes what was asked for into `results`; their number, -1 with an error raised. */
static int32_t write_unique(const DLTensor* x, const items* all, int32_t axis, const int64_t* order,
                            const group* groups, int64_t count, const int* wanted,
                            TVMFFIAny* results) {
  int64_t shape[EXT_MAX_DIMS], *numbers;
  int32_t made = 0, ndim = axis < 0 ? 1 : x->ndim;
  DLTensor* values = NULL;
  for (int32_t i = 0; i < ndim; ++i) shape[i] = axis < 0 || i == axis ? count : x->shape[i];
  if (new_tensor(x->dtype, ndim, shape, &results[made], &values) != 0) return -1;
  char* target = (char*)values->data + values->byte_offset;
  const int64_t row = all->inner * all->bytes;
  for (int64_t o = 0; o < all->outer; ++o)
    for (int64_t g = 0; g < count; ++g)
      memcpy(target + (o * count + g) * row, all->data + (o * all->extent + groups[g].first) * row,
             (size_t)row);
  ++made;
  for (int what = 0; what < 3; ++what) {
    if (!wanted[what]) continue;
    if (new_int64(1, what == 1 ? &all->extent : &count, &results[made], &numbers) != 0) {
      while (made > 0) TVMFFIObjectDecRef(results[--made].v_obj);
      return -1;
    }
    for (int64_t g = 0; g < count; ++g) {
      if (what == 0) numbers[g] = groups[g].first;
      if (what == 2) numbers[g] = groups[g].count;
      for (int64_t i = 0; what == 1 && i < groups[g].count; ++i)
        numbers[order[groups[g].begin + i]] = g;
    }
    ++made;
  }
  return made;
}

static int64_t number_at(const TVMFFIAny* args, int32_t n, int32_t index) {
  return index < n && args[index].type_index != kTVMFFINone ? args[index].v_int64 : 0;
}

int ext_run_unique(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const DLTensor* x = taken_at("unique", args, n, 0);
  (void)self;
  if (x == NULL) return -1;
  items all = {data_of(x), 1, count_of(x), 1, x->dtype.bits / 8, comparison(x->dtype)};
  if (all.compare == NULL)
    return ext_raise("TypeError", "unique: values of this dtype have no order here; cast them");
  int32_t axis = -1;
  if (n > 5 && args[5].type_index != kTVMFFINone) {
    axis = (int32_t)(args[5].v_int64 < 0 ? args[5].v_int64 + x->ndim : args[5].v_int64);
    if (axis < 0 || axis >= x->ndim) return ext_raise("ValueError", "unique: axis out of range");
    all.extent = x->shape[axis];
    for (int32_t i = 0; i < axis; ++i) all.outer *= x->shape[i];
    for (int32_t i = axis + 1; i < x->ndim; ++i) all.inner *= x->shape[i];
  }
  const size_t room = (size_t)(all.extent > 0 ? all.extent : 1);
  int64_t* order = malloc(room * sizeof(*order));
  group* groups = malloc(room * sizeof(*groups));
  int status = -1;
  if (order == NULL || groups == NULL) {
    out_of_memory("unique");
  } else {
    TVMFFIAny results[4];
    const int wanted[] = {number_at(args, n, 2) != 0, number_at(args, n, 3) != 0,
                          number_at(args, n, 4) != 0};
    for (int64_t i = 0; i < all.extent; ++i) order[i] = i;
    qsort_r(order, (size_t)all.extent, sizeof(*order), compare_places, &all);
    const int64_t count = find_groups(&all, order, groups);
    if (number_at(args, n, 1) == 0) qsort(groups, (size_t)count, sizeof(*groups), compare_first);
    const int32_t made = write_unique(x, &all, axis, order, groups, count, wanted, results);
    if (made == 1 && !wanted[0] && !wanted[1] && !wanted[2]) {
      *result = results[0];
      status = 0;
    } else if (made > 0) {
      status = call_global("ffi.Array", results, made, result);
      for (int32_t i = 0; i < made; ++i) TVMFFIObjectDecRef(results[i].v_obj);
    }
  }
  free(groups);
  free(order);
  return status;
}
