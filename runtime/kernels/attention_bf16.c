/*
 * y[b][h][i][:] = sum_j p[i][j] v[b][h][j][:] / sum_j p[i][j],
 * p[i][j] = exp(scale q[b][h][i] . k[b][h][j] + mask[b][h][i][j] - the greatest of these),
 * with q, k, v and p as bf16, and all sums in fp32.
 *
 * As in attention.c k and v are packed once for all heads that share them, as panels of bf16; then
 * as many rows of queries as a tile has pass: scores, exponentials, times v, and the division last.
 */
#include "../simd/math_bf16.h"
#include "attention.h"
#include "bgemm_tile.h"

/* Bytes of a head's operands at most that are fetched while the head before it is computed: more
 * would push each other out of L2. */
enum { FETCH_BYTES = 1 << 17 };

typedef struct {
  const ext_attention_params* p;
  const ext_attention_storage* s;
  const void *q, *k, *v;
  const float* mask;
  void* y;
  uint16_t* packed;       /* all groups' panels, or NULL: a task packs for itself */
  int64_t k_size, v_size; /* elements of one group's panels */
  int64_t blocks;         /* of rows in a head */
  int64_t q_row, p_row;   /* elements between packed rows */
  int64_t sums_row;       /* floats between rows of scores, and of results */
} attention_job;

/* What a task works with. */
typedef struct {
  uint16_t* panels;
  float* sums; /* [BR][sums_row] */
  ba *q, *p;   /* [BR][q_row], [BR][p_row] */
  /* What keys_seen found for each block of a head, whose mask begins there, or -1: heads that share
   * a mask ask once. */
  int64_t* found;
  int64_t mask_at;
} attention_memory;

/* Whole lines of elements of some size: an odd number, so that rows use different sets of L1. */
static int64_t whole_lines(int64_t count, int64_t size) {
  return (ceil_div(count * size, EXT_ALIGN) | 1) * EXT_ALIGN / size;
}

/* VL stored numbers as bf16, or the first `lanes` of them where `whole` is 0. */
EXT_INLINE vbf as_bf16(const int whole, ext_dtype dtype, const void* x, int64_t lanes) {
  if (dtype == EXT_BFLOAT16) return whole ? vbf_load(x) : vbf_load_n(x, lanes);
  return vbf_round(whole ? vf_load(x) : vf_load_n(x, lanes));
}

static void copy_as_bf16(ext_dtype dtype, const void* x, int64_t n, uint16_t* y) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) vbf_store(y + i, as_bf16(1, dtype, stored_at(x, dtype, i), VL));
  if (i < n) vbf_store_n(y + i, as_bf16(0, dtype, stored_at(x, dtype, i), n - i), n - i);
}

/* dst [ceil(depth / 2)][EXT_PANEL][2] = `keys` rows of k, further ones as zeros: pairs of numbers,
 * transposed. */
static void pack_keys(const attention_job* job, const void* k, int64_t keys, uint16_t* dst) {
  enum { CHUNK = 2 * VL }; /* elements of a row in one vector of pairs */
  const ext_dtype dtype = job->s->k;
  const int64_t depth = job->p->depth, row = job->p->k_strides[2];
  for (int64_t from = 0; from < depth; from += CHUNK) {
    const int64_t count = i64_min(CHUNK, depth - from);
    const int direct = dtype == EXT_BFLOAT16 && count == CHUNK;
    for (int64_t v = 0; v < EXT_PANEL; v += VL) {
      vf pairs[VL];
      EXT_UNROLL
      for (int c = 0; c < VL; c++) {
        const void* x = stored_at(k, dtype, (v + c) * row + from);
        pairs[c] = vf_zero();
        if (v + c >= keys) continue;
        if (direct) {
          memcpy(&pairs[c], x, sizeof(vf));
        } else {
          uint16_t rounded[CHUNK] = {0};
          copy_as_bf16(dtype, x, count, rounded);
          memcpy(&pairs[c], rounded, sizeof(vf));
        }
      }
      vf_transpose(pairs);
      for (int64_t c = 0; c < ceil_div(count, 2); c++)
        memcpy(dst + (from / 2 + c) * BPAIR + 2 * v, &pairs[c], sizeof(vf));
    }
  }
}

/* dst [ceil(keys / 2)][EXT_PANEL][2] = so many columns of v, further ones as zeros: two rows, one
 * number of each in turn. */
static void pack_values(const attention_job* job, const void* v, int64_t columns, uint16_t* dst) {
  const ext_dtype dtype = job->s->v;
  const int64_t keys = job->p->keys, row = job->p->v_strides[2];
  for (int64_t j = 0; j < keys; j += 2, dst += BPAIR) {
    for (int64_t c = 0; c < EXT_PANEL; c += VL) {
      const int64_t lanes = clamp_lanes(columns - c), whole = lanes == VL;
      const void *first = stored_at(v, dtype, j * row + c),
                 *second = stored_at(v, dtype, (j + 1) * row + c);
      vbits pairs = __builtin_convertvector(as_bf16(whole, dtype, first, lanes), vbits);
      if (j + 1 < keys)
        pairs |= __builtin_convertvector(as_bf16(whole, dtype, second, lanes), vbits) << 16;
      memcpy(dst + 2 * c, &pairs, sizeof pairs);
    }
  }
}

typedef struct {
  const void *q, *k, *v;
} attention_head;

static attention_head operands(const attention_job* job, int64_t head) {
  const ext_attention_params* p = job->p;
  const ext_attention_storage* s = job->s;
  return (attention_head){
      stored_at(job->q, s->q, head_offset(p, p->q_strides, head)),
      stored_at(job->k, s->k, group_offset(p, p->k_strides, head / heads_of_group(p))),
      stored_at(job->v, s->v, group_offset(p, p->v_strides, head / heads_of_group(p)))};
}

static void pack_group(const attention_job* job, int64_t group, uint16_t* dst) {
  const ext_attention_params* p = job->p;
  const ext_attention_storage* s = job->s;
  const attention_head from = operands(job, group * heads_of_group(p));
  for (int64_t j = 0; j < p->keys; j += EXT_PANEL, dst += ceil_div(p->depth, 2) * BPAIR)
    pack_keys(job, stored_at(from.k, s->k, j * p->k_strides[2]), i64_min(EXT_PANEL, p->keys - j),
              dst);
  for (int64_t j = 0; j < p->width; j += EXT_PANEL, dst += ceil_div(p->keys, 2) * BPAIR)
    pack_values(job, stored_at(from.v, s->v, j), p->width - j, dst);
}

/* sums[i][j] = sum_p a[i][p] b[p][j], i < rows, j < n, for b [2 pairs][n] in panels of that many
 * pairs, or more. */
static void product(int64_t rows, int64_t n, int64_t pairs, const ba* a, int64_t a_row,
                    const uint16_t* panels, int64_t panel_pairs, float* sums, int64_t sums_row) {
  bgemm_tile t = {.a = a, .a_row = a_row, .pairs = pairs, .rows = rows};
  t.panel = panel_pairs * BPAIR;
  t.sums_row = t.y_row = sums_row;
  t.s = (ext_storage){EXT_FLOAT32, EXT_FLOAT32, EXT_FLOAT32};
  for (int64_t j = 0, vectors; j < n; j += vectors * VL) {
    vectors = n - j > (BN - BHALF) * VL ? BN : BHALF;
    t.columns = i64_min(vectors * VL, n - j);
    t.b = t.next = panels + j / EXT_PANEL * t.panel + j % EXT_PANEL * 2;
    t.y = t.sums = sums + j;
    EXT_NAME(ext_bgemm_tile)(rows, vectors)(&t);
  }
}

/* p[j] = exp(s[j] scale + mask[j] - most), j < n, where most is the greatest exponent; returns the
 * sum.  After n, s has room up to a multiple of VL, and p gets zeros; `past` is what to add to the
 * last vector, -inf from n on.  A NaN, or a greatest exponent of -inf or +inf, makes the sum NaN.
 * `masked`, a constant, tells of a mask with a number for each key; else `mask` is one for all.
 * Exponents are computed twice: keeping them takes as many stores as the results do. */
EXT_INLINE float exponentials(const int masked, int64_t n, vf scale, vf past, const float* mask,
                              const float* restrict s, ba* restrict p) {
  /* The greatest is taken off first: the lowest float, which masks have, times this is no float. */
  const float per_nat = 1.44269504f;
  const vf all = vf_set1(masked || !mask || n <= 0 ? 0.0f : *mask);
  vf most[] = {vf_set1(-__builtin_inff()), vf_set1(-__builtin_inff())};
  int64_t j = 0;
  for (; j + 2 * VL <= n; j += 2 * VL) {
    EXT_UNROLL
    for (int v = 0; v < 2; v++) {
      const int64_t at = j + v * VL;
      const vf added = masked ? vf_load(mask + at) : all;
      most[v] = vf_max(most[v], vf_fma(vf_load(s + at), scale, added));
    }
  }
  for (; j + VL <= n; j += VL)
    most[0] = vf_max(most[0], vf_fma(vf_load(s + j), scale, masked ? vf_load(mask + j) : all));
  vf last = vf_zero();
  if (j < n) {
    const vf added = masked ? vf_load_n(mask + j, n - j) : all;
    last = vf_fma(vf_load(s + j), scale, added) + past;
    most[1] = vf_max(most[1], last);
  }
  const int64_t whole = j;
  const vf factor = vf_set1(per_nat), shift = vf_set1(vf_most(vf_max(most[0], most[1])));
  vf sums[] = {vf_zero(), vf_zero()};
  for (j = 0; j < whole; j += VL) {
    const vf x = vf_fma(vf_load(s + j), scale, masked ? vf_load(mask + j) : all);
    const vf u = vf_exp2_rough((x - shift) * factor);
    sums[0] += u;
    ba_store_n(p + j, u, VL);
  }
  if (j < n) {
    sums[1] = vf_exp2_rough((last - shift) * factor);
    ba_store_n(p + j, sums[1], VL);
  }
  return vf_sum(sums[0] + sums[1]);
}

/* y[j] = x[j] factor, j < n. */
EXT_INLINE void scale_run(const int narrow, int64_t n, float factor, const float* x, void* y) {
  const vf f = vf_set1(factor);
  int64_t j = 0;
  for (; j + VL <= n; j += VL) stored_store(narrow, 1, y, j, vf_load(x + j) * f, VL);
  if (j < n) stored_store(narrow, 0, y, j, vf_load_n(x + j, n - j) * f, n - j);
}

EXT_INLINE void fetch_run(ext_dtype dtype, const void* x, int64_t at, int64_t n) {
  const char *from = stored_at(x, dtype, at), *to = stored_at(x, dtype, at + n);
  for (; from < to; from += EXT_ALIGN) __builtin_prefetch(from);
}

/* Fetches row i of a head's operands. */
EXT_INLINE void fetch_row(const attention_job* job, const attention_head* head, int64_t i) {
  const ext_attention_params* p = job->p;
  const ext_attention_storage* s = job->s;
  fetch_run(s->q, head->q, i * p->q_strides[2], p->depth);
  if (i >= p->keys) return;
  fetch_run(s->k, head->k, i * p->k_strides[2], p->depth);
  fetch_run(s->v, head->v, i * p->v_strides[2], p->width);
}

/* Queries [i0, i1) of one head, whose panels are there, and what keys_seen found for them; fetches
 * rows of the next one, if any. */
static void block(const attention_job* job, int64_t head, int64_t i0, int64_t i1, int64_t found,
                  const attention_head* next, const attention_memory* m) {
  const ext_attention_params* p = job->p;
  const ext_dtype q_dtype = job->s->q, y_dtype = job->s->y;
  const int64_t rows = i1 - i0;
  const float* masks = NULL;
  if (job->mask)
    masks = job->mask + head_offset(p, p->mask_strides, head) + i0 * p->mask_strides[2];
  /* Whole vectors, and whole steps. */
  const int64_t seen = i64_min(p->keys, ceil_div(found, EXT_PANEL) * EXT_PANEL);
  const int64_t keys = ceil_div(seen, BK_STEP) * BK_STEP;
  const int64_t q_at = head_offset(p, p->q_strides, head) + i0 * p->q_strides[2];
  const ba* q = m->q;
  int64_t q_row = job->q_row;
  if (BROWS_STEP == 1 && sizeof(ba) == 2 && q_dtype == EXT_BFLOAT16 && p->depth % BK_STEP == 0) {
    q = stored_at(job->q, q_dtype, q_at);
    q_row = p->q_strides[2];
  } else {
    for (int64_t i = 0; i < rows; i++) {
      const void* x = stored_at(job->q, q_dtype, q_at + i * p->q_strides[2]);
      ba_run(q_dtype, m->q + i * q_row, x, p->depth);
      ba_zeros(m->q + i * q_row + p->depth, ceil_div(p->depth, BK_STEP) * BK_STEP - p->depth);
    }
  }
  product(rows, seen, ceil_div(p->depth, 2), q, q_row, m->panels, ceil_div(p->depth, 2), m->sums,
          job->sums_row);
  float totals[BR], past[VL];
  for (int i = 0; i < VL; i++) past[i] = i < seen % VL ? 0.0f : -__builtin_inff();
  const vf scale = vf_set1(p->scale), after = vf_load(past);
  for (int64_t i = 0; i < rows; i++) {
    float* s = m->sums + i * job->sums_row;
    ba* to = m->p + i * job->p_row;
    if (next) fetch_row(job, next, i0 + i);
    const float* mask = masks ? masks + i * p->mask_strides[2] : NULL;
    totals[i] = mask && p->mask_strides[3] ? exponentials(1, seen, scale, after, mask, s, to)
                                           : exponentials(0, seen, scale, after, mask, s, to);
    const int64_t written = ceil_div(seen, VL) * VL;
    if (written < keys) ba_zeros(to + written, keys - written);
    if (p->guarded && totals[i] != totals[i] &&
        (p->guarded == EXT_GUARD_NAN || is_without_key(p, mask, s, seen))) {
      ba_zeros(to, keys);
      totals[i] = 1.0f;
    }
  }
  product(rows, p->width, ceil_div(seen, 2), m->p, job->p_row, m->panels + job->k_size,
          ceil_div(p->keys, 2), m->sums, job->sums_row);
  const int64_t y_at = head_offset(p, p->y_strides, head) + i0 * p->y_strides[2];
  for (int64_t i = 0; i < rows; i++) {
    void* y = (void*)stored_at(job->y, y_dtype, y_at + i * p->y_strides[2]);
    const float* x = m->sums + i * job->sums_row;
    if (y_dtype == EXT_BFLOAT16)
      scale_run(1, p->width, 1.0f / totals[i], x, y);
    else
      scale_run(0, p->width, 1.0f / totals[i], x, y);
  }
}

/* keys_seen for a block of a head: queries [i0, i1). */
static int64_t keys_of_block(const attention_job* job, int64_t head, int64_t part, int64_t i0,
                             int64_t i1, attention_memory* m) {
  const ext_attention_params* p = job->p;
  if (!job->mask) return p->keys;
  const int64_t at = head_offset(p, p->mask_strides, head);
  if (at != m->mask_at)
    for (int64_t i = 0; i < job->blocks; i++) m->found[i] = -1;
  m->mask_at = at;
  if (m->found[part] < 0)
    m->found[part] = keys_seen(p, job->mask + at + i0 * p->mask_strides[2], i0, i1);
  return m->found[part];
}

/* Items are blocks of rows, those of a head side by side. */
static int blocks(void* context, int64_t begin, int64_t end) {
  const attention_job* job = context;
  const int64_t queries = job->p->queries, group_size = job->k_size + job->v_size;
  const int64_t panels = whole_lines(job->packed ? 0 : group_size, sizeof(uint16_t));
  const int64_t sums_bytes = BR * job->sums_row * (int64_t)sizeof(float);
  const int64_t ba_bytes = BR * (job->q_row + job->p_row) * (int64_t)sizeof(ba);
  const int64_t fixed = panels * (int64_t)sizeof(uint16_t) + sums_bytes + ba_bytes;
  char* memory = ext_workspace_alloc((size_t)fixed + (size_t)job->blocks * sizeof(int64_t));
  if (!memory) return EXT_ERR_MEMORY;
  attention_memory m = {.panels = (uint16_t*)memory, .mask_at = -1};
  m.found = (int64_t*)(memory + fixed);
  m.sums = (float*)(memory + panels * (int64_t)sizeof(uint16_t));
  m.q = (ba*)((char*)m.sums + sums_bytes);
  m.p = m.q + BR * job->q_row;
  const int64_t heads = job->p->batch * job->p->heads;
  const int fetch = (job->k_size + job->v_size) * 3 <= FETCH_BYTES;
  attention_head next;
  int64_t packed_group = -1;
  btile_session_begin(BR);
  for (int64_t item = begin; item < end; item++) {
    const int64_t head = item / job->blocks, part = item % job->blocks;
    const int64_t group = head / heads_of_group(job->p);
    const int follows = fetch && head + 1 < heads;
    if (follows) next = operands(job, head + 1);
    if (job->packed) {
      m.panels = job->packed + group * group_size;
    } else if (group != packed_group) {
      pack_group(job, group, m.panels);
      packed_group = group;
    }
    const int64_t i0 = part * queries / job->blocks, i1 = (part + 1) * queries / job->blocks;
    block(job, head, i0, i1, keys_of_block(job, head, part, i0, i1, &m), follows ? &next : NULL,
          &m);
  }
  btile_session_end();
  ext_workspace_free(memory);
  return EXT_OK;
}

static int pack_groups(void* context, int64_t begin, int64_t end) {
  const attention_job* job = context;
  for (int64_t group = begin; group < end; group++)
    pack_group(job, group, job->packed + group * (job->k_size + job->v_size));
  return EXT_OK;
}

/* x [batch][heads][rows][n] of a stored dtype, rows at these strides, to or from a plain array. */
static void copy_rows(const ext_attention_params* p, int64_t n, ext_dtype dtype, void* x,
                      const int64_t* strides, float* plain, const int back) {
  for (int64_t head = 0; head < p->batch * p->heads; head++)
    for (int64_t i = 0; i < p->queries; i++, plain += n) {
      void* row = (void*)stored_at(x, dtype, head_offset(p, strides, head) + i * strides[2]);
      for (int64_t j = 0; j < n; j += VL) {
        const int64_t lanes = i64_min(VL, n - j);
        if (back && dtype == EXT_BFLOAT16)
          stored_store(1, 0, row, j, vf_load_n(plain + j, lanes), lanes);
        else if (back)
          stored_store(0, 0, row, j, vf_load_n(plain + j, lanes), lanes);
        else if (dtype == EXT_BFLOAT16)
          vf_store_n(plain + j, stored_load(1, 0, row, j, lanes), lanes);
        else
          vf_store_n(plain + j, stored_load(0, 0, row, j, lanes), lanes);
      }
    }
}

/* Few queries on keys and values in fp32, as a decoder's cache has them: read once, as they are. */
static int few(const ext_attention_params* p, const ext_attention_storage* s, const void* q,
               const float* k, const float* v, const float* mask, void* y) {
  const int64_t rows = p->batch * p->heads * p->queries;
  float* plain_q = ext_workspace_alloc((size_t)(rows * (p->depth + p->width)) * sizeof(float));
  if (!plain_q) return EXT_ERR_MEMORY;
  float* plain_y = plain_q + rows * p->depth;
  ext_attention_params own = *p;
  const int64_t widths[] = {p->depth, p->width};
  int64_t* strides[] = {own.q_strides, own.y_strides};
  for (int i = 0; i < 2; i++) {
    strides[i][2] = widths[i];
    strides[i][1] = p->queries * strides[i][2];
    strides[i][0] = p->heads * strides[i][1];
  }
  copy_rows(p, p->depth, s->q, (void*)q, p->q_strides, plain_q, 0);
  const int status = EXT_NAME(ext_attention_few)(&own, plain_q, k, v, mask, plain_y);
  if (!status) copy_rows(p, p->width, s->y, y, p->y_strides, plain_y, 1);
  ext_workspace_free(plain_q);
  return status;
}

int EXT_NAME(ext_attention_bf16)(const ext_attention_params* p, const ext_attention_storage* s,
                                 const void* q, const void* k, const void* v, const float* mask,
                                 void* y) {
  const int64_t heads = p->batch * p->heads;
  const ext_dtype dtypes[] = {s->q, s->k, s->v, s->y};
  for (int i = 0; i < 4; i++)
    if (dtypes[i] != EXT_FLOAT32 && dtypes[i] != EXT_BFLOAT16) return EXT_ERR_ARGUMENT;
  if (mask && p->mask_strides[3] != 0 && p->mask_strides[3] != 1) return EXT_ERR_ARGUMENT;
  if (heads % heads_of_group(p)) return EXT_ERR_ARGUMENT;
  if (heads <= 0 || p->queries <= 0 || p->width <= 0) return EXT_OK;
  if (is_few(p) && s->k == EXT_FLOAT32 && s->v == EXT_FLOAT32) return few(p, s, q, k, v, mask, y);
  attention_job job = {.p = p, .s = s, .q = q, .k = k, .v = v, .mask = mask, .y = y};
  job.k_size = ceil_div(p->keys, EXT_PANEL) * ceil_div(p->depth, 2) * BPAIR;
  job.v_size = ceil_div(p->width, EXT_PANEL) * ceil_div(p->keys, 2) * BPAIR;
  job.blocks = ceil_div(p->queries, BR);
  job.q_row = whole_lines(ceil_div(p->depth, BK_STEP) * BK_STEP, sizeof(ba));
  job.p_row = whole_lines(ceil_div(p->keys, EXT_ALIGN / 2) * (EXT_ALIGN / 2), sizeof(ba));
  job.sums_row = whole_lines(i64_max(p->keys, p->width), sizeof(float));
  const int64_t threads = ext_num_threads();
  if (threads == 1 || heads >= 2 * threads)
    return ext_parallel_for(heads * job.blocks, job.blocks, blocks, &job);
  const int64_t groups = heads / heads_of_group(p);
  job.packed = ext_workspace_alloc((size_t)(groups * (job.k_size + job.v_size)) * sizeof(uint16_t));
  if (!job.packed) return EXT_ERR_MEMORY;
  int status = ext_parallel_for(groups, 1, pack_groups, &job);
  if (!status) status = ext_parallel_for(heads * job.blocks, 1, blocks, &job);
  ext_workspace_free(job.packed);
  return status;
}

EXT_DISPATCH(ext_attention_bf16,
             (const ext_attention_params* p, const ext_attention_storage* s, const void* q,
              const void* k, const void* v, const float* mask, void* y),
             (p, s, q, k, v, mask, y))
