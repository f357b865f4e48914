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

/* Whether a plan with inner integers has no number on its way that is not far from infinity. */
static int is_tame(const ext_requantise* e) {
  const float sum = 256.0f * (e->inner_scale + (e->residual ? e->residual_scale : 0.0f));
  const float reciprocal = 1.0f / e->y_scale;
  return e->inner_scale > 0 && (!e->residual || e->residual_scale > 0) && e->y_scale > 0 &&
         __builtin_isfinite(reciprocal) && sum > 1e-30f && sum * reciprocal < 1e30f && sum < 1e30f;
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
typedef enum { STEPS_OF_SUMS, STEPS_OF_INTEGERS, STEPS_WITH_RESIDUAL } step_kind;

/* What the columns of a vector have in common. */
typedef struct {
  vf factor, shift, low, high, inner_scale, y_scale, reciprocal;
} step_constants;

/* A vector of results in steps of y, zero point and limits aside. */
EXT_INLINE vf step_value(const step_kind kind, const int full, const requantise_plan* plan,
                         const requantise_tile* t, const step_constants* k, int64_t i, int64_t c,
                         int64_t lanes) {
  const vf magic = vf_set1(12582912.0f); /* 1.5 2^23: adding and subtracting it rounds */
  vf u =
      vf_fma(vi_to_vf(vi_load((const int32_t*)t->content + i * t->width + c)), k->factor, k->shift);
  if (kind == STEPS_OF_SUMS) return u;
  u = (vf_min(vf_at_least(u, k->low), k->high) + magic) - magic;
  vf v = vf_keep(u * k->inner_scale);
  if (kind == STEPS_WITH_RESIDUAL)
    v += load_bytes(full, &plan->e, t->residual + i * plan->e.residual_stride + c, lanes);
  return vf_quotient(v, k->y_scale, k->reciprocal);
}

/* One vector of columns from column c on; as finish_columns. */
EXT_INLINE void step_columns(const step_kind kind, const int full, const requantise_plan plan,
                             const requantise_tile t, int64_t c) {
  enum { AT_ONCE = 4 };
  const int64_t lanes = i64_min(VL, t.columns - c);
  const vf first = vf_set1(first_scale(&plan)), y_scale = vf_set1(plan.e.y_scale);
  step_constants k = {.low = vf_set1(plan.inner_low),
                      .high = vf_set1(plan.inner_high),
                      .inner_scale = first,
                      .y_scale = y_scale,
                      .reciprocal = vf_set1(1.0f) / y_scale};
  if (t.factor) {
    k.factor = vf_load(t.factor + c);
    k.shift = vf_load(t.shift + c);
  } else {
    k.factor = vf_load_n(t.scale + c, lanes) / first;
    k.shift = t.bias ? vf_load_n(t.bias + c, lanes) / first : vf_zero();
  }
  const vx_steps steps = requantise_steps(&plan);
  uint8_t* y = t.y + c;
  int64_t i = 0;
  for (; full && i + AT_ONCE <= t.rows; i += AT_ONCE) {
    vf v[AT_ONCE];
    EXT_UNROLL
    for (int r = 0; r < AT_ONCE; r++) v[r] = step_value(kind, 1, &plan, &t, &k, i + r, c, VL);
    const vx bytes = vx_in_order(vx_of_steps(v[0], v[1], v[2], v[3], &steps));
    EXT_UNROLL
    for (int r = 0; r < AT_ONCE; r++) vx_store_piece(y + (i + r) * t.y_row, bytes, r, AT_ONCE);
  }
  for (; i < t.rows; i++) {
    vf v = step_value(kind, full, &plan, &t, &k, i, c, lanes);
    const vx bytes = vx_in_order(vx_of_steps(v, v, v, v, &steps));
    if (full)
      vx_store_piece(y + i * t.y_row, bytes, 0, AT_ONCE);
    else
      vx_store_n(y + i * t.y_row, bytes, lanes);
  }
}

EXT_INLINE void finish_steps_of(const step_kind kind, const requantise_plan* plan,
                                const requantise_tile* t) {
  int64_t c = 0;
  for (; c + VL <= t->columns; c += VL) step_columns(kind, 1, *plan, *t, c);
  if (c < t->columns) step_columns(kind, 0, *plan, *t, c);
}

static void finish_steps(const requantise_plan* plan, const requantise_tile* t) {
  if (plan->direct)
    finish_steps_of(STEPS_OF_SUMS, plan, t);
  else if (t->residual)
    finish_steps_of(STEPS_WITH_RESIDUAL, plan, t);
  else
    finish_steps_of(STEPS_OF_INTEGERS, plan, t);
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
