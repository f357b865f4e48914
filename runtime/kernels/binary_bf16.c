/*
 * y[i] = f(a[i] op b[i]) over `shape`, strides 0 broadcast, y dense: sums and products of numbers
 * that are stored as bf16 or fp32, each.
 *
 * A run is computed in registers, the clamps among the activations too; others find their input in
 * L1.
 */
#include "../simd/bf16.h"
#include "activation.h"
#include "broadcast.h"
#include "halves.h"

enum { CHUNK = 1024 };

typedef struct {
  const ext_binary_params* p;
  int narrow[2], narrow_y; /* whether it is bf16 */
  int clamp;               /* the activation is min(max(v, low), high) */
  float low, high;
} stored_binary;

EXT_INLINE float one(int narrow, const void* p, int64_t index) {
  const void* x = stored_element(narrow, p, index);
  return narrow ? float_of_bfloat16(*(const uint16_t*)x) : *(const float*)x;
}

/* Runs of n elements; a and b are `a_row` and `b_row` elements from run to run. */
typedef struct {
  int64_t rows, n;
  const void *a, *b;
  int64_t a_row, b_row;
  int narrow_y;
  void* y;
} binary_rows;

/* a contiguous, b contiguous or (b_step 0) one value; what is not a pointer is a constant. */
EXT_INLINE void rows_of(const ext_binary_kind kind, const int narrow_a, const int narrow_b,
                        const int narrow_y, const int b_step, const stored_binary* s,
                        const binary_rows* r) {
  const vf low = vf_set1(s->low), high = vf_set1(s->high);
  const int64_t n = r->n;
  for (int64_t row = 0; row < r->rows; row++) {
    const void *a = stored_element(narrow_a, r->a, row * r->a_row),
               *b = stored_element(narrow_b, r->b, row * r->b_row);
    void* y = (void*)stored_element(narrow_y, r->y, row * n);
    const vf all = vf_set1(b_step ? 0.0f : one(narrow_b, b, 0));
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
      vf u = stored_load(narrow_a, 1, a, i, VL),
         v = b_step ? stored_load(narrow_b, 1, b, i, VL) : all;
      v = kind == EXT_ADD ? u + v : u * v;
      stored_store(narrow_y, 1, y, i, vf_min(high, vf_max(low, v)), VL);
    }
    if (i == n) continue;
    vf u = stored_load(narrow_a, 0, a, i, n - i),
       v = b_step ? stored_load(narrow_b, 0, b, i, n - i) : all;
    v = kind == EXT_ADD ? u + v : u * v;
    stored_store(narrow_y, 0, y, i, vf_min(high, vf_max(low, v)), n - i);
  }
}

EXT_INLINE void rows_kind(const ext_binary_kind kind, const int* narrow, int b_step,
                          const stored_binary* s, const binary_rows* r) {
#define EXT_CASE(narrow_a, narrow_b, step)                                      \
  if (narrow[0] == (narrow_a) && narrow[1] == (narrow_b) && b_step == (step)) { \
    if (r->narrow_y)                                                            \
      rows_of(kind, narrow_a, narrow_b, 1, step, s, r);                         \
    else                                                                        \
      rows_of(kind, narrow_a, narrow_b, 0, step, s, r);                         \
  }
  EXT_CASE(0, 0, 0)
  EXT_CASE(0, 0, 1)
  EXT_CASE(0, 1, 0)
  EXT_CASE(0, 1, 1)
  EXT_CASE(1, 0, 0)
  EXT_CASE(1, 0, 1)
  EXT_CASE(1, 1, 0)
  EXT_CASE(1, 1, 1)
#undef EXT_CASE
}

static void compute(const int* narrow, int b_step, const stored_binary* s, const binary_rows* r) {
  if (s->p->kind == EXT_ADD)
    rows_kind(EXT_ADD, narrow, b_step, s, r);
  else
    rows_kind(EXT_MUL, narrow, b_step, s, r);
}

/* An operand as fp32 in `chunk`. */
static void gather(int narrow, const void* p, int64_t step, int64_t n, float* chunk) {
  for (int64_t i = 0; i < n; i++) chunk[i] = one(narrow, p, i * step);
}

/* At most CHUNK elements. */
static void chunk_run(const stored_binary* s, int64_t n, const void* const* x, const int64_t* step,
                      void* y) {
  float gathered[2][CHUNK], values[CHUNK];
  const void* operands[2];
  int narrow[2], first = step[0] == 0; /* what is one value comes last: both kinds commute */
  int64_t steps[2];
  for (int k = 0; k < 2; k++) {
    const int from = first ? 1 - k : k;
    operands[k] = x[from];
    narrow[k] = s->narrow[from];
    steps[k] = step[from];
    if (steps[k] == 1 || (steps[k] == 0 && k == 1)) continue;
    gather(narrow[k], operands[k], steps[k], n, gathered[k]);
    operands[k] = gathered[k];
    narrow[k] = 0;
    steps[k] = 1;
  }
  const binary_rows r = {.rows = 1,
                         .n = n,
                         .a = operands[0],
                         .b = operands[1],
                         .narrow_y = s->clamp && s->narrow_y,
                         .y = s->clamp ? y : values};
  compute(narrow, (int)steps[1], s, &r);
  if (s->clamp) return;
  EXT_NAME(ext_activate)(&s->p->activation, n, values, values);
  int64_t i = 0;
  for (; i + VL <= n; i += VL) stored_store(s->narrow_y, 1, y, i, vf_load(values + i), VL);
  if (i < n) stored_store(s->narrow_y, 0, y, i, vf_load_n(values + i, n - i), n - i);
}

static void stored_run(const void* context, int64_t n, const void* const* x, const int64_t* step,
                       void* y) {
  const stored_binary* s = context;
  for (int64_t i = 0; i < n; i += CHUNK) {
    const void* from[] = {stored_element(s->narrow[0], x[0], i * step[0]),
                          stored_element(s->narrow[1], x[1], i * step[1])};
    chunk_run(s, i64_min(CHUNK, n - i), from, step, (void*)stored_element(s->narrow_y, y, i));
  }
}

/* Short runs: in registers, without asking for each what it is, where nothing is to be gathered. */
static void stored_rows(const void* context, const broadcast_rows* r) {
  const stored_binary* s = context;
  const int first = r->step[0] == 0, other = 1 - first;
  if (s->clamp && r->step[first] == 1 && (r->step[other] == 0 || r->step[other] == 1)) {
    const int narrow[] = {s->narrow[first], s->narrow[other]};
    const binary_rows all = {
        r->rows,     r->n, r->x[first], r->x[other], r->row_step[first], r->row_step[other],
        s->narrow_y, r->y};
    compute(narrow, (int)r->step[other], s, &all);
    return;
  }
  for (int64_t i = 0; i < r->rows; i++) {
    const void* x[] = {stored_element(s->narrow[0], r->x[0], i * r->row_step[0]),
                       stored_element(s->narrow[1], r->x[1], i * r->row_step[1])};
    stored_run(s, r->n, x, r->step, (void*)stored_element(s->narrow_y, r->y, i * r->n));
  }
}

int EXT_NAME(ext_binary_bf16)(const ext_binary_params* p, const ext_storage* s, const void* a,
                              const void* b, void* y) {
  const ext_dtype dtypes[] = {s->x, s->residual, s->y};
  for (int i = 0; i < 3; i++)
    if (dtypes[i] != EXT_FLOAT32 && dtypes[i] != EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  if (p->kind != EXT_ADD && p->kind != EXT_MUL) return EXT_ERR_ARGUMENT;
  stored_binary stored = {
      p, {s->x == EXT_BFLOAT16, s->residual == EXT_BFLOAT16}, s->y == EXT_BFLOAT16, 0, 0, 0};
  stored.clamp = ext_clamp_bounds(&p->activation, &stored.low, &stored.high);
  broadcast_job job = {.run = stored_run,
                       .run_rows = stored_rows,
                       .context = &stored,
                       .operands = 2,
                       .sizes = {stored.narrow[0] ? 2 : 4, stored.narrow[1] ? 2 : 4},
                       .y_size = stored.narrow_y ? 2 : 4,
                       .x = {a, b},
                       .y = y};
  const int64_t* strides[] = {p->a_strides, p->b_strides};
  return broadcast(&job, p->ndim, p->shape, strides);
}

EXT_DISPATCH(ext_binary_bf16,
             (const ext_binary_params* p, const ext_storage* s, const void* a, const void* b,
              void* y),
             (p, s, a, b, y))
