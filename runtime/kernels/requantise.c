/*
 * v = before(sum scale[c] + bias[c]),  v = (round(v / inner_scale)) inner_scale where there are
 * inner integers,  v = after(v + (residual - residual_zero) residual_scale),  y = v or
 * round(v / y_scale) + y_zero, for a tile of sums in L1.
 *
 * Activations that are clamps run in registers, between sums and y; others run over the tile.
 */
#include "requantise.h"

#include "activation.h"

static float limited(float v, float low, float high) {
  v = v > low ? v : low;
  return v < high ? v : high;
}

static int is_byte(ext_dtype dtype) {
  return dtype == EXT_INT8 || dtype == EXT_UINT8;
}

/* What the values of integers of dtype are in steps, their zero taken off. */
static void limits_of(ext_dtype dtype, int32_t zero, float* least, float* most) {
  *least = (dtype == EXT_INT8 ? -128.0f : 0.0f) - (float)zero;
  *most = *least + 255.0f;
}

/* Whether all numbers on the way of a plan with inner integers lie well within int32. */
static int is_tame(const ext_requantise* e) {
  const float sum = 256.0f * (e->inner_scale + (e->residual ? e->residual_scale : 0.0f));
  const float reciprocal = 1.0f / e->y_scale;
  return e->inner_scale > 0 && (!e->residual || e->residual_scale > 0) && e->y_scale > 0 &&
         __builtin_isfinite(reciprocal) && sum > 1e-30f && sum * reciprocal < 1e9f && sum < 1e30f;
}

/* What only bytes need. */
static void plan_bytes(requantise_plan* plan) {
  const ext_requantise* e = &plan->e;
  const float scale = e->y_scale;
  if (!plan->clamps) return;
  plan->direct = !e->residual && !plan->inner;
  plan->stepwise = plan->inner && (!e->residual || is_byte(e->residual_dtype)) && is_tame(e);
  float low = plan->low[1], high = plan->high[1];
  if (plan->direct) {
    low = limited(plan->low[0], plan->low[1], plan->high[1]);
    high = limited(plan->high[0], plan->low[1], plan->high[1]);
  }
  plan->low_steps = limited(low / scale, plan->least, plan->most);
  plan->high_steps = limited(high / scale, plan->least, plan->most);
  if (!plan->stepwise) return;
  plan->reciprocal = 1.0f / scale;
  plan->inner_low = limited(plan->low[0] / e->inner_scale, plan->inner_least, plan->inner_most);
  plan->inner_high = limited(plan->high[0] / e->inner_scale, plan->inner_least, plan->inner_most);
}

int EXT_NAME(ext_plan_requantise)(const ext_requantise* e, requantise_plan* plan) {
  if (!quantised_size(e->y_dtype) || !quantised_size(e->inner_dtype)) return EXT_ERR_ARGUMENT;
  if (is_byte(e->y_dtype) && !holds_zero(e->y_dtype, e->y_zero)) return EXT_ERR_ARGUMENT;
  if (is_byte(e->inner_dtype) && !holds_zero(e->inner_dtype, e->inner_zero))
    return EXT_ERR_ARGUMENT;
  if (e->residual) {
    if (!quantised_size(e->residual_dtype)) return EXT_ERR_ARGUMENT;
    if (is_byte(e->residual_dtype) && !holds_zero(e->residual_dtype, e->residual_zero))
      return EXT_ERR_ARGUMENT;
  }
  *plan = (requantise_plan){.e = *e};
  limits_of(e->y_dtype, e->y_zero, &plan->least, &plan->most);
  plan->inner = is_byte(e->inner_dtype);
  if (plan->inner) limits_of(e->inner_dtype, e->inner_zero, &plan->inner_least, &plan->inner_most);
  plan->clamps = ext_clamp_bounds(&e->before, &plan->low[0], &plan->high[0]);
  plan->clamps &= ext_clamp_bounds(&e->after, &plan->low[1], &plan->high[1]);
  if (is_byte(e->y_dtype)) plan_bytes(plan);
  return EXT_OK;
}

EXT_INLINE vf clamp(vf v, vf low, vf high) {
  return vf_min(high, vf_max(low, v));
}

/* Kept: a product that becomes part of a multiply-add decides halves otherwise. */
EXT_INLINE vf load_bytes(const int full, const ext_requantise* e, const uint8_t* p, int64_t lanes) {
  uint8_t some[sizeof(vx)];
  if (!full) {
    vx_store(some, vx_load_n(p, lanes));
    p = some;
  }
  vi x = e->residual_dtype == EXT_UINT8 ? vi_load_u8(p) : vi_load_s8(p);
  return vf_keep(vi_to_vf(x - vi_set1(e->residual_zero)) * vf_set1(e->residual_scale));
}

EXT_INLINE vf load_residual(const int full, const ext_requantise* e, const uint8_t* p,
                            int64_t lanes) {
  if (e->residual_dtype == EXT_FLOAT32)
    return full ? vf_load((const float*)p) : vf_load_n((const float*)p, lanes);
  return load_bytes(full, e, p, lanes);
}

/* What is left of v in the inner integers. */
EXT_INLINE vf through_integers(vf v, const requantise_plan* plan) {
  v = vf_at_least(v / vf_set1(plan->e.inner_scale), vf_set1(plan->inner_least));
  v = vi_to_vf(vf_to_vi(vf_min(v, vf_set1(plan->inner_most))));
  return vf_keep(v * vf_set1(plan->e.inner_scale));
}

/* One vector of columns from column c on, all rows.  `content`, `bytes` (y is 8-bit) and `full`
 * (all lanes are columns) are constants.  The plan and the tile are copies: stores of bytes may
 * alias whatever a pointer leads to. */
EXT_INLINE void finish_columns(const tile_content content, const int bytes, const int full,
                               const requantise_plan plan, const requantise_tile t, int64_t c) {
  const ext_requantise* e = &plan.e;
  const int64_t lanes = i64_min(VL, t.columns - c), y_size = bytes ? 1 : 4;
  const int64_t residual_size = quantised_size(e->residual_dtype);
  vf scale = vf_set1(1.0f), bias = vf_zero();
  if (content != TILE_VALUES) {
    scale = full ? vf_load(t.scale + c) : vf_load_n(t.scale + c, lanes);
    if (t.bias) bias = full ? vf_load(t.bias + c) : vf_load_n(t.bias + c, lanes);
  }
  for (int64_t i = 0; i < t.rows; i++) {
    vf v;
    if (content == TILE_INT32_SUMS) {
      v = vf_fma(vi_to_vf(vi_load((const int32_t*)t.content + i * t.width + c)), scale, bias);
    } else {
      v = vf_load((const float*)t.content + i * t.width + c);
      if (content == TILE_FLOAT_SUMS) v = vf_fma(v, scale, bias);
    }
    v = clamp(v, vf_set1(plan.low[0]), vf_set1(plan.high[0]));
    if (plan.inner) v = through_integers(v, &plan);
    if (t.residual) {
      const uint8_t* residual = t.residual + (i * e->residual_stride + c) * residual_size;
      v += load_residual(full, e, residual, lanes);
    }
    v = clamp(v, vf_set1(plan.low[1]), vf_set1(plan.high[1]));
    uint8_t* y = t.y + (i * t.y_row + c) * y_size;
    if (!bytes) {
      if (full)
        vf_store((float*)y, v);
      else
        vf_store_n((float*)y, v, lanes);
      continue;
    }
    v = vf_at_least(v / vf_set1(e->y_scale), vf_set1(plan.least));
    vi rounded = vf_to_vi(vf_min(v, vf_set1(plan.most))) + vi_set1(e->y_zero);
    if (full)
      vi_store_low(y, rounded);
    else
      vi_store_low_n(y, rounded, lanes);
  }
}

EXT_INLINE void finish(const tile_content content, const int bytes, const requantise_plan* plan,
                       const requantise_tile* t) {
  int64_t c = 0;
  for (; c + VL <= t->columns; c += VL) finish_columns(content, bytes, 1, *plan, *t, c);
  if (c < t->columns) finish_columns(content, bytes, 0, *plan, *t, c);
}

/* What follows the sums of a direct or a stepwise plan. */
typedef enum { STEPS_OF_SUMS, STEPS_OF_INTEGERS, STEPS_WITH_UINT8, STEPS_WITH_INT8 } step_kind;

/* Copies of what all vectors have in common: stores of bytes may alias whatever a pointer leads
 * to. */
typedef struct {
  vf low, high, inner_scale, y_scale, reciprocal, residual_scale;
  vi residual_zero;
  vx_steps steps;
} step_constants;

static step_constants constants_of(const requantise_plan* plan) {
  const ext_requantise* e = &plan->e;
  return (step_constants){.low = vf_set1(plan->inner_low),
                          .high = vf_set1(plan->inner_high),
                          .inner_scale = vf_set1(e->inner_scale),
                          .y_scale = vf_set1(e->y_scale),
                          .reciprocal = vf_set1(plan->reciprocal),
                          .residual_scale = vf_set1(e->residual_scale),
                          .residual_zero = vi_set1(e->residual_zero),
                          .steps = requantise_steps(plan)};
}

/* A vector of results in steps of y, zero point and limits aside: of u, the sums in steps of the
 * first scale, and what is added to them.  Products are kept: one that becomes part of a
 * multiply-add decides halves otherwise. */
EXT_INLINE vf step_value(const step_kind kind, const step_constants* k, vf u,
                         const uint8_t* added) {
  if (kind == STEPS_OF_SUMS) return u;
  u = vf_rounded(vf_min(vf_at_least(u, k->low), k->high));
  vf v = vf_keep(u * k->inner_scale);
  if (kind != STEPS_OF_INTEGERS) {
    vi x = kind == STEPS_WITH_UINT8 ? vi_load_u8(added) : vi_load_s8(added);
    v += vf_keep(vi_to_vf(x - k->residual_zero) * k->residual_scale);
  }
  return vf_quotient(v, k->y_scale, k->reciprocal);
}

/* Four vectors of results as bytes.  With inner integers no number is near the limits of int32. */
EXT_INLINE vx step_bytes(const step_kind kind, const step_constants* k, const vf v[4]) {
  if (kind == STEPS_OF_SUMS) return vx_in_order(vx_of_steps(v[0], v[1], v[2], v[3], &k->steps));
  return vx_in_order(vx_of_tame_steps(v[0], v[1], v[2], v[3], &k->steps));
}

/* Where rows of a tile lie, from a column on. */
typedef struct {
  const int32_t* sums;
  const uint8_t* added;
  uint8_t* y;
  int64_t width, added_row, y_row;
} step_rows;

/* The next `rows` rows of nv vectors of columns; both are constants. */
EXT_INLINE void step_next(const step_kind kind, const int rows, const int nv,
                          const step_constants* k, const vf factor[], const vf shift[],
                          step_rows* at) {
  vf value[4];
  EXT_UNROLL
  for (int i = 0; i < 4; i++) {
    const int row = i / nv < rows ? i / nv : 0, v = i % nv;
    vf u = vi_to_vf(vi_load(at->sums + row * at->width + v * VL));
    value[i] = step_value(kind, k, vf_fma(u, factor[v], shift[v]),
                          at->added + row * at->added_row + v * VL);
  }
  const vx bytes = step_bytes(kind, k, value);
  EXT_UNROLL
  for (int r = 0; r < rows; r++) vx_store_piece(at->y + r * at->y_row, bytes, r, 4 / nv);
  at->sums += rows * at->width;
  at->added += rows * at->added_row;
  at->y += rows * at->y_row;
}

/* All rows of nv vectors of columns, a constant, from column c on: as many rows at once as fill a
 * vx. */
EXT_INLINE void step_columns(const step_kind kind, const int nv, const requantise_plan* plan,
                             const requantise_tile* t, int64_t c) {
  const int at_once = 4 / nv;
  const vf first = vf_set1(first_scale(plan));
  const step_constants k = constants_of(plan);
  vf factor[4], shift[4];
  EXT_UNROLL
  for (int v = 0; v < nv; v++) {
    const int64_t at = c + v * VL;
    factor[v] = t->factor ? vf_load(t->factor + at) : vf_load(t->scale + at) / first;
    shift[v] = t->factor ? vf_load(t->shift + at) : vf_zero();
    if (!t->factor && t->bias) shift[v] = vf_load(t->bias + at) / first;
  }
  step_rows at = {.sums = (const int32_t*)t->content + c, .y = t->y + c};
  if (kind >= STEPS_WITH_UINT8) at.added = t->residual + c;
  at.width = t->width;
  at.added_row = kind >= STEPS_WITH_UINT8 ? plan->e.residual_stride : 0;
  at.y_row = t->y_row;
  int64_t left = t->rows;
  for (; left >= at_once; left -= at_once) step_next(kind, at_once, nv, &k, factor, shift, &at);
  for (; left > 0; left--) step_next(kind, 1, nv, &k, factor, shift, &at);
}

/* The last columns, from c on, which are no whole vector. */
EXT_INLINE void step_last_columns(const step_kind kind, const requantise_plan* plan,
                                  const requantise_tile* t, int64_t c) {
  const int64_t lanes = t->columns - c;
  const vf first = vf_set1(first_scale(plan));
  const step_constants k = constants_of(plan);
  const vf factor = t->factor ? vf_load(t->factor + c) : vf_load_n(t->scale + c, lanes) / first;
  vf shift = t->factor ? vf_load(t->shift + c) : vf_zero();
  if (!t->factor && t->bias) shift = vf_load_n(t->bias + c, lanes) / first;
  for (int64_t i = 0; i < t->rows; i++) {
    uint8_t added[sizeof(vx)];
    if (kind >= STEPS_WITH_UINT8)
      vx_store(added, vx_load_n(t->residual + i * plan->e.residual_stride + c, lanes));
    vf u = vf_fma(vi_to_vf(vi_load((const int32_t*)t->content + i * t->width + c)), factor, shift);
    u = step_value(kind, &k, u, added);
    const vf v[4] = {u, u, u, u};
    vx_store_n(t->y + c + i * t->y_row, step_bytes(kind, &k, v), lanes);
  }
}

EXT_INLINE void finish_steps_of(const step_kind kind, const requantise_plan* plan,
                                const requantise_tile* t) {
  int64_t c = 0;
  for (; c + 2 * VL <= t->columns; c += 2 * VL) step_columns(kind, 2, plan, t, c);
  for (; c + VL <= t->columns; c += VL) step_columns(kind, 1, plan, t, c);
  if (c < t->columns) step_last_columns(kind, plan, t, c);
}

static void finish_steps(const requantise_plan* plan, const requantise_tile* t) {
  if (plan->direct)
    finish_steps_of(STEPS_OF_SUMS, plan, t);
  else if (!t->residual)
    finish_steps_of(STEPS_OF_INTEGERS, plan, t);
  else if (plan->e.residual_dtype == EXT_UINT8)
    finish_steps_of(STEPS_WITH_UINT8, plan, t);
  else
    finish_steps_of(STEPS_WITH_INT8, plan, t);
}

static void finish_clamps(tile_content content, const requantise_plan* plan,
                          const requantise_tile* t) {
#define EXT_CASE(content)               \
  case content:                         \
    if (plan->e.y_dtype == EXT_FLOAT32) \
      finish(content, 0, plan, t);      \
    else                                \
      finish(content, 1, plan, t);      \
    return;
  switch (content) {
    EXT_CASE(TILE_INT32_SUMS)
    EXT_CASE(TILE_FLOAT_SUMS)
    EXT_CASE(TILE_VALUES)
  }
#undef EXT_CASE
}

/* A plan that writes values into the tile itself, and applies no activation. */
static requantise_plan into_tile(const requantise_plan* plan) {
  requantise_plan own = *plan;
  own.e.y_dtype = EXT_FLOAT32;
  own.inner = 0;
  for (int i = 0; i < 2; i++) {
    own.low[i] = -__builtin_inff();
    own.high[i] = __builtin_inff();
  }
  return own;
}

void EXT_NAME(ext_requantise_tile)(const requantise_plan* plan, tile_content content,
                                   const requantise_tile* at) {
  if ((plan->direct || plan->stepwise) && content == TILE_INT32_SUMS) {
    finish_steps(plan, at);
    return;
  }
  if (plan->clamps) {
    finish_clamps(content, plan, at);
    return;
  }
  requantise_plan own = into_tile(plan), last = own;
  requantise_tile values = *at, t = *at;
  values.y = values.content;
  values.y_row = values.width;
  values.residual = NULL;
  finish_clamps(content, &own, &values);
  EXT_NAME(ext_activate)(&plan->e.before, at->rows * at->width, at->content, at->content);
  if (at->residual || plan->inner) {
    values.residual = at->residual;
    own.inner = plan->inner;
    finish_clamps(TILE_VALUES, &own, &values);
  }
  EXT_NAME(ext_activate)(&plan->e.after, at->rows * at->width, at->content, at->content);
  last.e.y_dtype = plan->e.y_dtype;
  t.residual = NULL;
  finish_clamps(TILE_VALUES, &last, &t);
}
