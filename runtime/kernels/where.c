/* y[i] = c[i] ? a[i] : b[i] over `shape`; stride 0 broadcasts.  Elements are moved, whatever they
 * mean: one loop per size. */
#include <string.h>

#include "broadcast.h"

/* Loops of constant steps, which the compiler turns into vector code. */
#define EXT_SELECT_OF(type, c_at, a_at, b_at) \
  for (int64_t i = 0; i < n; i++) {           \
    type u = a[a_at], v = b[b_at];            \
    y[i] = c[c_at] ? u : v;                   \
  }
#define EXT_SELECT(name, type)                                                                \
  static void name(const void* context, int64_t n, const void* const* x, const int64_t* step, \
                   void* result) {                                                            \
    const uint8_t* restrict c = x[0];                                                         \
    const type* restrict a = x[1], * restrict b = x[2];                                       \
    type* restrict y = result;                                                                \
    int64_t c_step = step[0], a_step = step[1], b_step = step[2];                             \
    (void)context;                                                                            \
    if (c_step == 0) { /* one choice for all */                                               \
      a = c[0] ? a : b;                                                                       \
      a_step = c[0] ? a_step : b_step;                                                        \
      if (a_step == 1)                                                                        \
        memcpy(y, a, (size_t)n * sizeof(type));                                               \
      else                                                                                    \
        for (int64_t i = 0; i < n; i++) y[i] = a[i * a_step];                                 \
    } else if (c_step == 1 && a_step == 1 && b_step == 1)                                     \
      EXT_SELECT_OF(type, i, i, i)                                                            \
    else if (c_step == 1 && a_step == 1 && b_step == 0)                                       \
      EXT_SELECT_OF(type, i, i, 0)                                                            \
    else if (c_step == 1 && a_step == 0 && b_step == 1)                                       \
      EXT_SELECT_OF(type, i, 0, i)                                                            \
    else if (c_step == 1 && a_step == 0 && b_step == 0)                                       \
      EXT_SELECT_OF(type, i, 0, 0)                                                            \
    else                                                                                      \
      EXT_SELECT_OF(type, i * c_step, i * a_step, i * b_step)                                 \
  }
EXT_SELECT(select_1, uint8_t)
EXT_SELECT(select_2, uint16_t)
EXT_SELECT(select_4, uint32_t)
EXT_SELECT(select_8, uint64_t)

int EXT_NAME(ext_where)(const ext_where_params* p, const uint8_t* c, const void* a, const void* b,
                        void* y) {
  int64_t size = p->element_size;
  if (size != 1 && size != 2 && size != 4 && size != 8) return EXT_ERR_ARGUMENT;
  broadcast_job job = {.run = size == 1   ? select_1
                              : size == 2 ? select_2
                              : size == 4 ? select_4
                                          : select_8,
                       .operands = 3,
                       .sizes = {1, size, size},
                       .y_size = size,
                       .x = {c, a, b},
                       .y = y};
  const int64_t* strides[] = {p->c_strides, p->a_strides, p->b_strides};
  return broadcast(&job, p->ndim, p->shape, strides);
}

EXT_DISPATCH(ext_where,
             (const ext_where_params* p, const uint8_t* c, const void* a, const void* b, void* y),
             (p, c, a, b, y))
