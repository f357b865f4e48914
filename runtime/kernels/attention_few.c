/*
 * y[b][h][i][:] = sum_j softmax_j(scale q[b][h][i] . k[b][h][j] + mask[b][h][i][j]) v[b][h][j][:]
 *
 * for few i, as when a decoder writes one token after another: what takes time is to read k and v,
 * which are read once, where they lie.  Blocks of keys pass that stay in L1: scores of all rows
 * that share the keys, exponentials, and the values times these, added up.  Where a block has a
 * greater score than those before it, their sums are scaled down (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018).
 *
 * Groups of heads are shared out among threads.  Where these are too few, their keys are as well
 * (Dao et al., "Flash-Decoding for long-context inference", 2023), and the parts are added up at
 * the end, each scaled down to the greatest score of all.
 */
#include "attention.h"

#include "../simd/math.h"

/* Keys of a block, and of a part at least. */
enum { BLOCK = 64, PART_KEYS = 256 };
/* Products below which threads cost more than they save. */
static const int64_t ALONE = 1 << 16;

typedef struct {
  const ext_attention_params* p;
  const float *q, *k, *v, *mask;
  float* y;
  int64_t heads, rows;   /* that share keys; rows: of all their queries */
  int64_t groups, parts; /* of all batch items; of the keys of each */
  int64_t wide;          /* floats of a row of sums, whole vectors */
  float* results;        /* of each part of each group; see result_floats */
} few_job;

/* A part's result: for each row the greatest exponent, the sum of exponentials, and the sums. */
static int64_t result_floats(const few_job* job) {
  return job->rows * (2 + job->wide);
}

EXT_INLINE vf load_upto(const float* p, int64_t n) {
  return n >= VL ? vf_load(p) : vf_load_n(p, n);
}

/* s[j] = q . k[j] for n keys that are `row` apart. */
static void dots(const float* q, const float* k, int64_t row, int64_t n, int64_t depth, float* s) {
  int64_t j = 0;
  for (; j + 4 <= n; j += 4, k += 4 * row) {
    vf a = vf_zero(), b = vf_zero(), c = vf_zero(), d = vf_zero();
    for (int64_t i = 0; i < depth; i += VL) {
      const int64_t lanes = depth - i;
      const vf x = load_upto(q + i, lanes);
      a = vf_fma(x, load_upto(k + i, lanes), a);
      b = vf_fma(x, load_upto(k + row + i, lanes), b);
      c = vf_fma(x, load_upto(k + 2 * row + i, lanes), c);
      d = vf_fma(x, load_upto(k + 3 * row + i, lanes), d);
    }
    s[j] = vf_sum(a);
    s[j + 1] = vf_sum(b);
    s[j + 2] = vf_sum(c);
    s[j + 3] = vf_sum(d);
  }
  for (; j < n; j++, k += row) {
    vf a = vf_zero();
    for (int64_t i = 0; i < depth; i += VL)
      a = vf_fma(load_upto(q + i, depth - i), load_upto(k + i, depth - i), a);
    s[j] = vf_sum(a);
  }
}

/* sums[c] = sums[c] by + sum_j s[j] v[j][c], for n values that are `row` apart. */
static void add_values(const float* s, const float* v, int64_t row, int64_t n, int64_t width,
                       float by, float* sums) {
  const vf scale = vf_set1(by);
  int64_t c = 0;
  for (; c + 4 * VL <= width; c += 4 * VL) {
    vf y[4], z[4];
    EXT_UNROLL
    for (int i = 0; i < 4; i++) {
      y[i] = vf_load(sums + c + i * VL) * scale;
      z[i] = vf_zero();
    }
    const float* at = v + c;
    int64_t j = 0;
    for (; j + 2 <= n; j += 2, at += 2 * row) {
      const vf one = vf_set1(s[j]), two = vf_set1(s[j + 1]);
      EXT_UNROLL
      for (int i = 0; i < 4; i++) {
        y[i] = vf_fma(one, vf_load(at + i * VL), y[i]);
        z[i] = vf_fma(two, vf_load(at + row + i * VL), z[i]);
      }
    }
    for (; j < n; j++, at += row) {
      EXT_UNROLL
      for (int i = 0; i < 4; i++) y[i] = vf_fma(vf_set1(s[j]), vf_load(at + i * VL), y[i]);
    }
    EXT_UNROLL
    for (int i = 0; i < 4; i++) vf_store(sums + c + i * VL, y[i] + z[i]);
  }
  for (; c < width; c += VL) {
    vf y = vf_load(sums + c) * scale;
    for (int64_t j = 0; j < n; j++)
      y = vf_fma(vf_set1(s[j]), load_upto(v + j * row + c, width - c), y);
    vf_store(sums + c, y);
  }
}

/* s[j] = s[j] scale + mask[j]; returns the greatest, -inf of none and of NaN alone. */
static float scaled(const few_job* job, int64_t head, int64_t query, int64_t j0, int64_t n,
                    float* s) {
  const ext_attention_params* p = job->p;
  const float* mask = NULL;
  if (job->mask)
    mask = job->mask + head_offset(p, p->mask_strides, head) + query * p->mask_strides[2] +
           j0 * p->mask_strides[3];
  float most = -__builtin_inff();
  for (int64_t j = 0; j < n; j++) {
    s[j] = mask ? s[j] * p->scale + mask[j * p->mask_strides[3]] : s[j] * p->scale;
    most = s[j] > most ? s[j] : most;
  }
  return most;
}

/* s[j] = exp(s[j] - most), whole vectors of s; returns the sum of the first n. */
static float exponentials(float* s, int64_t n, float most) {
  const vf shift = vf_set1(most);
  vf sum = vf_zero();
  int64_t j = 0;
  for (; j + VL <= n; j += VL) {
    const vf e = vf_exp(vf_load(s + j) - shift);
    vf_store(s + j, e);
    sum += e;
  }
  float total = vf_sum(sum);
  if (j < n) {
    vf_store(s + j, vf_exp(vf_load_n(s + j, n - j) - shift));
    for (; j < n; j++) total += s[j];
  }
  return total;
}

/* The keys [j0, j1) of one group, for all rows that share them. */
static void keys_of_group(const few_job* job, int64_t group, int64_t j0, int64_t j1, float* out) {
  const ext_attention_params* p = job->p;
  const float* k = job->k + group_offset(p, p->k_strides, group);
  const float* v = job->v + group_offset(p, p->v_strides, group);
  float s[BLOCK];
  for (int64_t r = 0; r < job->rows; r++) {
    float* row = out + r * (2 + job->wide);
    row[0] = -__builtin_inff();
    memset(row + 1, 0, (size_t)(1 + job->wide) * sizeof *row);
  }
  for (int64_t j = j0; j < j1; j += BLOCK) {
    const int64_t n = i64_min(BLOCK, j1 - j);
    for (int64_t r = 0; r < job->rows; r++) {
      const int64_t head = group * job->heads + r / p->queries, query = r % p->queries;
      const float* q = job->q + head_offset(p, p->q_strides, head) + query * p->q_strides[2];
      float* row = out + r * (2 + job->wide);
      dots(q, k + j * p->k_strides[2], p->k_strides[2], n, p->depth, s);
      const float found = scaled(job, head, query, j, n, s);
      const float most = found > row[0] ? found : row[0];
      const float shift = most == -__builtin_inff() ? 0.0f : most;
      const float by = expf(row[0] - shift);
      row[0] = most;
      row[1] = row[1] * by + exponentials(s, n, shift);
      add_values(s, v + j * p->v_strides[2], p->v_strides[2], n, p->width, by, row + 2);
    }
  }
}

/* y of one row from the parts of its keys; `first` is the first part's result for it. */
static void finish_row(const few_job* job, int64_t group, int64_t r, float* first) {
  const ext_attention_params* p = job->p;
  const int64_t head = group * job->heads + r / p->queries, query = r % p->queries;
  const int64_t step = result_floats(job);
  float* y = job->y + head_offset(p, p->y_strides, head) + query * p->y_strides[2];
  float most = -__builtin_inff(), sum = 0.0f, plain = 0.0f;
  for (int64_t i = 0; i < job->parts; i++) {
    most = first[i * step] > most ? first[i * step] : most;
    plain += first[i * step + 1];
  }
  /* Exponents that are all -inf have been taken as they are: their sums are 0, not NaN. */
  const int without_key = most == -__builtin_inff() && plain == 0.0f;
  float* sums = first + 2;
  for (int64_t i = 0; i < job->parts; i++) {
    const float* part = first + i * step;
    const float by = expf(part[0] - most); /* NaN where no key counts, or one is infinite */
    sum += part[1] * by;
    for (int64_t c = 0; c < job->wide; c++)
      sums[c] = i ? sums[c] + part[2 + c] * by : part[2 + c] * by;
  }
  const int is_guarded = p->guarded == EXT_GUARD_NAN ? sum != sum : p->guarded && without_key;
  if (is_guarded) { /* weights of 0, through which what is no number shows */
    const float* v = job->v + group_offset(p, p->v_strides, group);
    const float none[1] = {0.0f};
    memset(sums, 0, (size_t)job->wide * sizeof *sums);
    for (int64_t j = 0; j < p->keys; j++)
      add_values(none, v + j * p->v_strides[2], p->v_strides[2], 1, p->width, 1.0f, sums);
    sum = 1.0f;
  }
  const vf factor = vf_set1(1.0f / sum);
  int64_t c = 0;
  for (; c + VL <= p->width; c += VL) vf_store(y + c, vf_load(sums + c) * factor);
  if (c < p->width) vf_store_n(y + c, vf_load(sums + c) * factor, p->width - c);
}

/* Items are parts of groups, those of a group side by side. */
static int parts(void* context, int64_t begin, int64_t end) {
  const few_job* job = context;
  for (int64_t item = begin; item < end; item++) {
    const int64_t group = item / job->parts, part = item % job->parts;
    float* out = job->results + item * result_floats(job);
    keys_of_group(job, group, part * job->p->keys / job->parts,
                  (part + 1) * job->p->keys / job->parts, out);
    if (job->parts > 1) continue;
    for (int64_t r = 0; r < job->rows; r++) finish_row(job, group, r, out + r * (2 + job->wide));
  }
  return EXT_OK;
}

int EXT_NAME(ext_attention_few)(const ext_attention_params* p, const float* q, const float* k,
                                const float* v, const float* mask, float* y) {
  few_job job = {.p = p, .q = q, .k = k, .v = v, .mask = mask, .y = y};
  job.heads = heads_of_group(p);
  job.rows = job.heads * p->queries;
  job.groups = p->batch * p->heads / job.heads;
  job.wide = ceil_div(p->width, VL) * VL;
  job.parts = 1;
  const int64_t threads = ext_num_threads(),
                group_work = job.rows * p->keys * (p->depth + p->width);
  const int alone = threads == 1 || job.groups * group_work < ALONE;
  if (!alone && job.groups < 4 * threads)
    job.parts = i64_max(1, i64_min(ceil_div(4 * threads, job.groups), p->keys / PART_KEYS));
  const int64_t items = job.groups * job.parts;
  job.results = ext_workspace_alloc((size_t)(items * result_floats(&job)) * sizeof(float));
  if (!job.results) return EXT_ERR_MEMORY;
  int status = alone ? parts(&job, 0, items) : ext_parallel_for(items, 1, parts, &job);
  if (!status && job.parts > 1) {
    for (int64_t group = 0; group < job.groups; group++) {
      float* first = job.results + group * job.parts * result_floats(&job);
      for (int64_t r = 0; r < job.rows; r++) finish_row(&job, group, r, first + r * (2 + job.wide));
    }
  }
  ext_workspace_free(job.results);
  return status;
}
