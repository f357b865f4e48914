/* y[i] = a[i] op b[i], a truth value, over `shape`; stride 0 broadcasts.  A comparison with a NaN
 * is false, except that a NaN is not equal to anything. */
#include "broadcast.h"

#define EXT_RUN(name, type, op)                                                               \
  static void name(const void* context, int64_t n, const void* const* x, const int64_t* step, \
                   void* result) {                                                            \
    const type* restrict a = x[0], * restrict b = x[1];                                       \
    uint8_t* restrict y = result;                                                             \
    (void)context;                                                                            \
    EXT_LOOP2(step, y[i] = (uint8_t)(a[ia] op b[ib]));                                        \
  }

#define EXT_RUNS(type, suffix)           \
  EXT_RUN(equal_##suffix, type, ==)      \
  EXT_RUN(not_equal_##suffix, type, !=)  \
  EXT_RUN(less_##suffix, type, <)        \
  EXT_RUN(less_equal_##suffix, type, <=) \
  EXT_RUN(greater_##suffix, type, >)     \
  EXT_RUN(greater_equal_##suffix, type, >=)
EXT_RUNS(float, float32)
EXT_RUNS(int32_t, int32)
EXT_RUNS(int64_t, int64)
EXT_RUNS(int8_t, int8)
EXT_RUNS(uint8_t, uint8)
EXT_RUN(and_bool, uint8_t, &)
EXT_RUN(or_bool, uint8_t, |)
EXT_RUN(xor_bool, uint8_t, ^)

enum { KINDS = EXT_GREATER_EQUAL + 1 };
#define EXT_NAMES(suffix)                                  \
  {equal_##suffix,      not_equal_##suffix, less_##suffix, \
   less_equal_##suffix, greater_##suffix,   greater_equal_##suffix}
static const broadcast_run comparisons[][KINDS] = {EXT_NAMES(float32), EXT_NAMES(int32),
                                                   EXT_NAMES(int64),   EXT_NAMES(uint8),
                                                   EXT_NAMES(int8),    EXT_NAMES(uint8)};
static const broadcast_run connectives[] = {and_bool, or_bool, xor_bool};
static const int64_t sizes[] = {4, 4, 8, 1, 1, 1};

int EXT_NAME(ext_compare)(const ext_compare_params* p, const void* a, const void* b, uint8_t* y) {
  int64_t kind = p->kind, dtype = p->dtype;
  if (dtype < 0 || dtype > EXT_UINT8 || kind < 0 || kind > EXT_XOR) return EXT_ERR_ARGUMENT;
  if (kind >= EXT_AND && dtype != EXT_BOOL) return EXT_ERR_ARGUMENT;
  broadcast_job job = {
      .run = kind < EXT_AND ? comparisons[dtype][kind] : connectives[kind - EXT_AND],
      .operands = 2,
      .sizes = {sizes[dtype], sizes[dtype]},
      .y_size = 1,
      .x = {a, b},
      .y = y};
  const int64_t* strides[] = {p->a_strides, p->b_strides};
  return broadcast(&job, p->ndim, p->shape, strides);
}

EXT_DISPATCH(ext_compare, (const ext_compare_params* p, const void* a, const void* b, uint8_t* y),
             (p, a, b, y))
