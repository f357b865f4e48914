/*
 * y[i] = f(a[i] op b[i]) over `shape`, strides 0 broadcast, y dense.
 *
 * Runs of floats, and the activation: float_runs.h.
 */
#include <float.h>
#include <math.h>

#include "float_runs.h"

EXT_INLINE vf apply(const ext_binary_kind kind, vf a, vf b) {
  switch (kind) {
    case EXT_ADD: return a + b;
    case EXT_SUB: return a - b;
    case EXT_MUL: return a * b;
    case EXT_DIV: return a / b;
    case EXT_MAX: return vf_max_nan(a, b);
    case EXT_MIN: return vf_min_nan(a, b);
    case EXT_PRELU: return vf_select(vm_lt(a, vf_zero()), a * b, a);
    default: break; /* pow and mod have their own loops */
  }
  return a;
}

/* a_step, b_step: 1 (contiguous) or 0 (one value), constants like `kind`. */
EXT_INLINE void run_of(const ext_binary_kind kind, const int a_step, const int b_step, int64_t n,
                       const float* a, const float* b, float* y) {
  vf a_all = a_step ? vf_zero() : vf_set1(*a), b_all = b_step ? vf_zero() : vf_set1(*b);
  int64_t i = 0;
  for (; i + VL <= n; i += VL)
    vf_store(y + i, apply(kind, a_step ? vf_load(a + i) : a_all, b_step ? vf_load(b + i) : b_all));
  if (i < n) {
    vf u = a_step ? vf_load_n(a + i, n - i) : a_all, v = b_step ? vf_load_n(b + i, n - i) : b_all;
    vf_store_n(y + i, apply(kind, u, v), n - i);
  }
}

EXT_INLINE void run_steps(const ext_binary_kind kind, int64_t n, const float* a, int64_t a_step,
                          const float* b, int64_t b_step, float* y) {
  if (a_step && b_step)
    run_of(kind, 1, 1, n, a, b, y);
  else if (a_step)
    run_of(kind, 1, 0, n, a, b, y);
  else if (b_step)
    run_of(kind, 0, 1, n, a, b, y);
  else
    run_of(kind, 0, 0, n, a, b, y);
}

/* Powers of one exponent that have a shorter form; 0 where `exponent` is none of them. */
static int run_power(float exponent, int64_t n, const float* a, float* y) {
  const vf one = vf_set1(1.0f), three = vf_set1(3.0f);
  if (exponent != 2.0f && exponent != 3.0f && exponent != -1.0f) return 0;
  for (int64_t i = 0; i < n; i += VL) {
    int64_t lanes = i64_min(VL, n - i);
    vf v = vf_load_n(a + i, lanes);
    vf e = vf_set1(exponent);
    vf power =
        vf_select(vm_lt(e, vf_zero()), one / v, vf_select(vm_lt(e, three), v * v, v * v * v));
    vf_store_n(y + i, power, lanes);
  }
  return 1;
}

/* Whether a quotient, which has 53 bits, is cut off as the exact one would be, and its product with
 * b exact: b has 24 bits, so that a quotient that is no integer is 2^-24 away from one at least. */
EXT_INLINE int has_short_quotient(float a, float b) {
  return fabs((double)a / (double)b) < 0x1p28 && fabsf(b) <= FLT_MAX;
}
/* What is left of a, with its sign. */
EXT_INLINE float rest_of(float a, float b) {
  const double q = (double)(int32_t)((double)a / (double)b);
  return copysignf((float)((double)a - q * (double)b), a);
}

static void run_mod(int64_t n, const float* a, int64_t a_step, const float* b, int64_t b_step,
                    float* y) {
  const int64_t step[] = {a_step, b_step};
  int rare = 0;
  EXT_LOOP2(step, rare |= !has_short_quotient(a[ia], b[ib]));
  if (rare)
    EXT_LOOP2(step, y[i] = fmodf(a[ia], b[ib]));
  else
    EXT_LOOP2(step, y[i] = rest_of(a[ia], b[ib]));
}

static void run_kind(ext_binary_kind kind, int64_t n, const float* a, int64_t a_step,
                     const float* b, int64_t b_step, float* y) {
  switch (kind) {
    case EXT_ADD: run_steps(EXT_ADD, n, a, a_step, b, b_step, y); return;
    case EXT_SUB: run_steps(EXT_SUB, n, a, a_step, b, b_step, y); return;
    case EXT_MUL: run_steps(EXT_MUL, n, a, a_step, b, b_step, y); return;
    case EXT_DIV: run_steps(EXT_DIV, n, a, a_step, b, b_step, y); return;
    case EXT_MAX: run_steps(EXT_MAX, n, a, a_step, b, b_step, y); return;
    case EXT_MIN: run_steps(EXT_MIN, n, a, a_step, b, b_step, y); return;
    case EXT_PRELU: run_steps(EXT_PRELU, n, a, a_step, b, b_step, y); return;
    case EXT_POW:
      if (b_step == 0 && a_step == 1 && run_power(*b, n, a, y)) return;
      for (int64_t i = 0; i < n; i++) y[i] = powf(a[i * a_step], b[i * b_step]);
      return;
    case EXT_MOD: run_mod(n, a, a_step, b, b_step, y); return;
    default: return;
  }
}

static void float_span(const void* context, int64_t n, const float* const* x, const int64_t* step,
                       float* y) {
  run_kind(((const ext_binary_params*)context)->kind, n, x[0], step[0], x[1], step[1], y);
}

/* Quotients are cut off, as ONNX has them.  What is divided by 0 is 0, and the lowest number by -1
 * is itself: at both a CPU's division would stop the program.  Those of up to 32 bits, or 8, are
 * exact as quotients of floats with 53 bits, or 24, of which there are vectors. */
static inline int64_t quotient(int64_t a, int64_t b, size_t size) {
  if (b == 0) return 0;
  if (size == 1) return (int64_t)((float)a / (float)b);
  if (size == 4) return (int64_t)((double)a / (double)b);
  return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
static inline int64_t rest(int64_t a, int64_t b, size_t size) {
  return b == 0 ? 0 : (int64_t)((uint64_t)a - (uint64_t)quotient(a, b, size) * (uint64_t)b);
}
/* Where signs differ, what is left makes the quotient one less. */
static inline int64_t beyond(int64_t a, int64_t b, size_t size) {
  return (rest(a, b, size) != 0) & ((a < 0) != (b < 0));
}
static inline int64_t floor_quotient(int64_t a, int64_t b, size_t size) {
  return (int64_t)((uint64_t)quotient(a, b, size) - (uint64_t)beyond(a, b, size));
}
static inline int64_t floor_rest(int64_t a, int64_t b, size_t size) {
  return rest(a, b, size) + (beyond(a, b, size) ? b : 0);
}
static inline int64_t shift_left(int64_t a, int64_t b, int64_t width) {
  return b < 0 || b >= width ? 0 : (int64_t)((uint64_t)a << b);
}
static inline int64_t shift_right(int64_t a, int64_t b, int64_t width) {
  return a >> (b < 0 || b >= width ? 63 : b);
}

/* Integers: the compiler's own vectors will do.  Unsigned arithmetic wraps around. */
#define EXT_INTEGERS(name, type, unsigned_type)                                                \
  static void name(const void* context, int64_t n, const void* const* x, const int64_t* step,  \
                   void* result) {                                                             \
    const type *a = x[0], *b = x[1];                                                           \
    type* y = result;                                                                          \
    switch (((const ext_binary_params*)context)->kind) {                                       \
      case EXT_ADD:                                                                            \
        EXT_LOOP2(step, y[i] = (type)((unsigned_type)a[ia] + (unsigned_type)b[ib]));           \
        break;                                                                                 \
      case EXT_SUB:                                                                            \
        EXT_LOOP2(step, y[i] = (type)((unsigned_type)a[ia] - (unsigned_type)b[ib]));           \
        break;                                                                                 \
      case EXT_MUL:                                                                            \
        EXT_LOOP2(step, y[i] = (type)((unsigned_type)a[ia] * (unsigned_type)b[ib]));           \
        break;                                                                                 \
      case EXT_DIV: EXT_LOOP2(step, y[i] = (type)quotient(a[ia], b[ib], sizeof(type))); break; \
      case EXT_MOD: EXT_LOOP2(step, y[i] = (type)rest(a[ia], b[ib], sizeof(type))); break;     \
      case EXT_MAX: EXT_LOOP2(step, y[i] = a[ia] > b[ib] ? a[ia] : b[ib]); break;              \
      case EXT_MIN: EXT_LOOP2(step, y[i] = a[ia] < b[ib] ? a[ia] : b[ib]); break;              \
      case EXT_BIT_AND: EXT_LOOP2(step, y[i] = (type)(a[ia] & b[ib])); break;                  \
      case EXT_BIT_OR: EXT_LOOP2(step, y[i] = (type)(a[ia] | b[ib])); break;                   \
      case EXT_BIT_XOR: EXT_LOOP2(step, y[i] = (type)(a[ia] ^ b[ib])); break;                  \
      case EXT_SHIFT_LEFT:                                                                     \
        EXT_LOOP2(step, y[i] = (type)shift_left(a[ia], b[ib], 8 * (int)sizeof(type)));         \
        break;                                                                                 \
      case EXT_SHIFT_RIGHT:                                                                    \
        EXT_LOOP2(step, y[i] = (type)shift_right(a[ia], b[ib], 8 * (int)sizeof(type)));        \
        break;                                                                                 \
      case EXT_FLOOR_DIV:                                                                      \
        EXT_LOOP2(step, y[i] = (type)floor_quotient(a[ia], b[ib], sizeof(type)));              \
        break;                                                                                 \
      case EXT_FLOOR_MOD:                                                                      \
        EXT_LOOP2(step, y[i] = (type)floor_rest(a[ia], b[ib], sizeof(type)));                  \
        break;                                                                                 \
      default: break;                                                                          \
    }                                                                                          \
  }
EXT_INTEGERS(int32_run, int32_t, uint32_t)
EXT_INTEGERS(int64_run, int64_t, uint64_t)
EXT_INTEGERS(int8_run, int8_t, uint8_t)
EXT_INTEGERS(uint8_run, uint8_t, uint8_t)

/* By ext_dtype; there is none for truth values. */
static const broadcast_run runs[] = {float_run, int32_run, int64_run, NULL, int8_run, uint8_run};
static const int64_t sizes[] = {4, 4, 8, 1, 1, 1};

/* Whether the kernel has the operation for integers. */
static int fits_integers(const ext_binary_params* p) {
  int known = p->kind != EXT_POW && p->kind != EXT_PRELU;
  return known && runs[p->dtype] && p->activation.kind == EXT_IDENTITY;
}

int EXT_NAME(ext_binary)(const ext_binary_params* p, const void* a, const void* b, void* y) {
  if ((int)p->dtype < 0 || p->dtype > EXT_UINT8) return EXT_ERR_ARGUMENT;
  if ((int)p->kind < 0 || p->kind > EXT_FLOOR_MOD) return EXT_ERR_ARGUMENT;
  if (p->dtype == EXT_FLOAT32 ? p->kind > EXT_MOD : !fits_integers(p)) return EXT_ERR_ARGUMENT;
  const int64_t size = sizes[p->dtype], is_float = p->dtype == EXT_FLOAT32;
  const float_runs floats = {float_span, p, &p->activation, 2};
  broadcast_job job = {.run = runs[p->dtype],
                       .run_rows = is_float ? float_rows : NULL,
                       .context = is_float ? (const void*)&floats : p,
                       .operands = 2,
                       .sizes = {size, size},
                       .y_size = size,
                       .x = {a, b},
                       .y = y};
  const int64_t* strides[] = {p->a_strides, p->b_strides};
  return broadcast(&job, p->ndim, p->shape, strides);
}

EXT_DISPATCH(ext_binary, (const ext_binary_params* p, const void* a, const void* b, void* y),
             (p, a, b, y))
