/*
 * v = before(sum scale[c] + bias[c]),  v = after(v + (residual - residual_zero) residual_scale),
 * y = v or round(v / y_scale) + y_zero, for a tile of sums in L1.
 *
 * Activations that are clamps run in registers, between sums and y; others run over the tile.
 */
#include "requantise.h"

#include "activation.h"

static float limited(float v, float low, float high) {
  v = v > low ? v : low;
  return v < high ? v : high;
}

/* What only bytes need. */
static void plan_bytes(requantise_plan* plan) {
  const ext_requantise* e = &plan->e;
  const float scale = e->y_scale;
  if (!plan->clamps) return;
  plan->direct = !e->residual;
  float low = limited(plan->low[0], plan->low[1], plan->high[1]);
  float high = limited(plan->high[0], plan->low[1], plan->high[1]);
  plan->low_steps = limited(low / scale, plan->least, plan->most);
  plan->high_steps = limited(high / scale, plan->least, plan->most);
}

int EXT_NAME(ext_plan_requantise)(const ext_requantise* e, requantise_plan* plan) {
  if (!quantised_size(e->y_dtype)) return EXT_ERR_ARGUMENT;
  if (e->y_dtype != EXT_FLOAT32 && !holds_zero(e->y_dtype, e->y_zero)) return EXT_ERR_ARGUMENT;
  if (e->residual) {
    if (!quantised_size(e->residual_dtype)) return EXT_ERR_ARGUMENT;
    if (e->residual_dtype != EXT_FLOAT32 && !holds_zero(e->residual_dtype, e->residual_zero))
      return EXT_ERR_ARGUMENT;
  }
  *plan = (requantise_plan){.e = *e};
  const float least = e->y_dtype == EXT_INT8 ? -128.0f : 0.0f;
  plan->least = least - (float)e->y_zero;
  plan->most = least + 255.0f - (float)e->y_zero;
  plan->clamps = ext_clamp_bounds(&e->before, &plan->low[0], &plan->high[0]);
  plan->clamps &= ext_clamp_bounds(&e->after, &plan->low[1], &plan->high[1]);
  if (e->y_dtype != EXT_FLOAT32) plan_bytes(plan);
  return EXT_OK;
}

EXT_INLINE vf clamp(vf v, vf low, vf high) {
  return vf_min(high, vf_max(low, v));
}

EXT_INLINE vf load_residual(const int full, const ext_requantise* e, const uint8_t* p,
                            int64_t lanes) {
  if (e->residual_dtype == EXT_FLOAT32)
    return full ? vf_load((const float*)p) : vf_load_n((const float*)p, lanes);
  vi x;
  if (e->residual_dtype == EXT_UINT8)
    x = full ? vi_load_u8(p) : vi_load_u8_n(p, lanes);
  else
    x = full ? vi_load_s8(p) : vi_load_s8_n(p, lanes);
  return vi_to_vf(x - vi_set1(e->residual_zero)) * vf_set1(e->residual_scale);
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
  for (int i = 0; i < 2; i++) {
    own.low[i] = -__builtin_inff();
    own.high[i] = __builtin_inff();
  }
  return own;
}

void EXT_NAME(ext_requantise_tile)(const requantise_plan* plan, tile_content content,
                                   const requantise_tile* at) {
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
  if (at->residual) {
    values.residual = at->residual;
    finish_clamps(TILE_VALUES, &own, &values);
  }
  EXT_NAME(ext_activate)(&plan->e.after, at->rows * at->width, at->content, at->content);
  last.e.y_dtype = plan->e.y_dtype;
  t.residual = NULL;
  finish_clamps(TILE_VALUES, &last, &t);
}
