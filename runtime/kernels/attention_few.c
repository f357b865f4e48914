/*
 * y[b][h][i][:] = sum_j softmax_j(scale q[b][h][i] . k[b][h][j] + mask[b][h][i][j]) v[b][h][j][:]
 *
 * for few i, as when a decoder writes one token after another: what takes time is to read k and v,
 * which are read once, where they lie.  Blocks of keys pass that stay in L1, those of heads that
 * lie side by side one after another, so that memory is read in order: scores of all rows that
 * share the keys, exponentials, and the values times these, added up.  Where a block has a greater
 * score than those before it, their sums are scaled down (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018).
 *
 * Batch items, or groups of heads, are shared out among threads; so are their keys
 * (Dao et al., "Flash-Decoding for long-context inference", 2023), and the parts are added up at
 * the end, each scaled down to the greatest score of all.
 */
#include "attention.h"

#include "../simd/math.h"

/* Keys of a block at most, of one that some rows share, and of a part at least. */
enum { BLOCK = 64, SHARED_BLOCK = 32, PART_KEYS = 256 };
/* Rows that share keys from which on there is time to ask for the next ones: a few wait for memory
 * anyway, which a CPU reads ahead of them. */
enum { FETCH_ROWS = 3 };
/* Products below which threads cost more than they save. */
static const int64_t ALONE = 1 << 16;

typedef struct {
  const ext_attention_params* p;
  const float *q, *k, *v, *mask;
  float* y;
  int64_t heads, rows;   /* that share keys; rows: of all their queries */
  int64_t groups, parts; /* of all batch items; of the keys of each */
  int64_t abreast;       /* groups whose keys are read together */
  int64_t block;         /* keys of one */
  int64_t wide;          /* floats of a row of sums, whole vectors */
  float* results;        /* of each part of each group; see result_floats */
} few_job;

/* A part's result: for each row the sums, the sum of exponentials, and the greatest exponent. */
EXT_INLINE int64_t row_floats(const few_job* job) {
  return job->wide + VL;
}

static int64_t result_floats(const few_job* job) {
  return job->rows * row_floats(job);
}

/* q . k[j] for VL keys that are `row` apart. */
EXT_INLINE vf dots(const float* q, const float* k, int64_t row, int64_t depth) {
  vf t[VL];
  EXT_UNROLL
  for (int j = 0; j < VL; j++) t[j] = vf_zero();
  int64_t i = 0;
  for (; i + VL <= depth; i += VL) {
    const vf x = vf_load(q + i);
    EXT_UNROLL
    for (int j = 0; j < VL; j++) t[j] = vf_fma(x, vf_load(k + j * row + i), t[j]);
  }
  if (i < depth) {
    const vf x = vf_load_n(q + i, depth - i);
    EXT_UNROLL
    for (int j = 0; j < VL; j++) t[j] = vf_fma(x, vf_load_n(k + j * row + i, depth - i), t[j]);
  }
  vf_transpose(t);
  EXT_UNROLL
  for (int step = 1; step < VL; step *= 2) {
    EXT_UNROLL
    for (int j = 0; j < VL; j += 2 * step) t[j] += t[j + step];
  }
  return t[0];
}

/* q . k */
EXT_INLINE float dot(const float* q, const float* k, int64_t depth) {
  vf sum = vf_zero();
  int64_t i = 0;
  for (; i + VL <= depth; i += VL) sum = vf_fma(vf_load(q + i), vf_load(k + i), sum);
  if (i < depth) sum = vf_fma(vf_load_n(q + i, depth - i), vf_load_n(k + i, depth - i), sum);
  return vf_sum(sum);
}

/* The keys and values of the next block, which are asked for bit by bit while this one is computed:
 * of many reads at once most would wait. */
typedef struct {
  const float *k, *v;
  int64_t keys;        /* that it has */
  int64_t step, steps; /* which one of how many of this block is next */
} ahead;

EXT_INLINE void fetch_row(const float* x, int64_t columns) {
  for (int64_t i = 0; i < columns; i += EXT_ALIGN / (int64_t)sizeof *x) __builtin_prefetch(x + i);
}

/* Asks for the share of one step. */
EXT_INLINE void fetch(const ext_attention_params* p, ahead* next) {
  int64_t j = next->step * SHARED_BLOCK / next->steps;
  const int64_t end = i64_min((++next->step) * SHARED_BLOCK / next->steps, next->keys);
  for (; j < end; j++) {
    fetch_row(next->k + j * p->k_strides[2], p->depth);
    fetch_row(next->v + j * p->v_strides[2], p->width);
  }
}

/* s[j] = scale q . k[j] + mask[j step]; returns the greatest, -inf of none and of NaN alone. */
static float scores(const ext_attention_params* p, const float* q, const float* k, int64_t n,
                    const float* mask, float* s, ahead* next) {
  const int64_t row = p->k_strides[2], step = p->mask_strides[3];
  const vf scale = vf_set1(p->scale);
  vf high = vf_set1(-__builtin_inff());
  int64_t j = 0;
  for (; j + VL <= n; j += VL) {
    fetch(p, next);
    vf v = dots(q, k + j * row, row, p->depth) * scale;
    if (mask) v += step ? vf_load(mask + j) : vf_set1(*mask);
    high = vf_select(vm_lt(high, v), v, high); /* unlike vf_max, without NaNs */
    vf_store(s + j, v);
  }
  float most = vf_most(high);
  for (; j < n; j++) {
    s[j] = dot(q, k + j * row, p->depth) * p->scale + (mask ? mask[j * step] : 0.0f);
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

/* For `rows` sums that are `apart`, and `vectors` of their columns, of which the last one has
 * `lanes`: sums[r] = sums[r] by[r] + sum_j s[r][j] v[j], values that are `row` apart. */
EXT_INLINE void add_columns(const int rows, const int vectors, int64_t lanes, const float* s,
                            const float* v, int64_t row, int64_t n, const float* by, float* sums,
                            int64_t apart) {
  /* A lone row has two chains of sums, which hide the latency of multiply-adds. */
  const int chains = rows == 1 ? 2 : 1;
  vf y[2 * FEW_QUERIES][FEW_VECTORS];
  EXT_UNROLL
  for (int r = 0; r < rows * chains; r++) {
    EXT_UNROLL
    for (int i = 0; i < vectors; i++)
      y[r][i] = r < rows ? vf_load(sums + r * apart + i * VL) * vf_set1(by[r]) : vf_zero();
  }
  int64_t j = 0;
  for (; j + chains <= n; j += chains) {
    EXT_UNROLL
    for (int c = 0; c < chains; c++, v += row) {
      vf x[FEW_VECTORS];
      EXT_UNROLL
      for (int i = 0; i < vectors; i++)
        x[i] = lanes == VL ? vf_load(v + i * VL) : vf_load_n(v + i * VL, lanes);
      EXT_UNROLL
      for (int r = 0; r < rows; r++) {
        const vf factor = vf_set1(s[r * BLOCK + j + c]);
        EXT_UNROLL
        for (int i = 0; i < vectors; i++)
          y[c * rows + r][i] = vf_fma(factor, x[i], y[c * rows + r][i]);
      }
    }
  }
  if (chains == 2) {
    EXT_UNROLL
    for (int i = 0; i < vectors; i++) {
      y[0][i] += y[1][i];
      if (j == n) continue;
      const vf x = lanes == VL ? vf_load(v + i * VL) : vf_load_n(v + i * VL, lanes);
      y[0][i] = vf_fma(vf_set1(s[j]), x, y[0][i]);
    }
  }
  EXT_UNROLL
  for (int r = 0; r < rows; r++) {
    EXT_UNROLL
    for (int i = 0; i < vectors; i++) vf_store(sums + r * apart + i * VL, y[r][i]);
  }
}

/* add_columns of all columns. */
EXT_INLINE void add_values(const int rows, const float* s, const float* v, int64_t row, int64_t n,
                           int64_t width, const float* by, float* sums, int64_t apart) {
  int64_t c = 0;
  for (; c + FEW_VECTORS * VL <= width; c += FEW_VECTORS * VL)
    add_columns(rows, FEW_VECTORS, VL, s, v + c, row, n, by, sums + c, apart);
  for (; c < width; c += VL)
    add_columns(rows, 1, i64_min(VL, width - c), s, v + c, row, n, by, sums + c, apart);
}

/* The keys [j, j + n) of one group, for rows [r, r + rows) of those that share them. */
EXT_INLINE void keys_of_rows(const int rows, const few_job* job, int64_t group, int64_t r,
                             int64_t j, int64_t n, const float* k, const float* v, float* out,
                             ahead* next) {
  const ext_attention_params* p = job->p;
  const int64_t apart = row_floats(job);
  float s[FEW_QUERIES * BLOCK], by[FEW_QUERIES];
  for (int i = 0; i < rows; i++) {
    const int64_t head = group * job->heads + (r + i) / p->queries, query = (r + i) % p->queries;
    const float* q = job->q + head_offset(p, p->q_strides, head) + query * p->q_strides[2];
    const float* mask = NULL;
    if (job->mask)
      mask = job->mask + head_offset(p, p->mask_strides, head) + query * p->mask_strides[2] +
             j * p->mask_strides[3];
    float* sum = out + i * apart + job->wide;
    const float found = scores(p, q, k, n, mask, s + i * BLOCK, next);
    const float most = found > sum[1] ? found : sum[1];
    const float shift = most == -__builtin_inff() ? 0.0f : most;
    by[i] = sum[1] == most ? 1.0f : expf(sum[1] - shift);
    sum[0] = sum[0] * by[i] + exponentials(s + i * BLOCK, n, shift);
    sum[1] = most;
  }
  add_values(rows, s, v, p->v_strides[2], n, p->width, by, out, apart);
}

/* The keys [j, j + n) of one group, for all rows that share them. */
static void keys_of_group(const few_job* job, int64_t group, int64_t j, int64_t end, float* out) {
  const int64_t n = i64_min(job->block, end - j);
  const ext_attention_params* p = job->p;
  const float* k = job->k + group_offset(p, p->k_strides, group) + j * p->k_strides[2];
  const float* v = job->v + group_offset(p, p->v_strides, group) + j * p->v_strides[2];
  const int64_t rest = job->rows < FETCH_ROWS ? 0 : i64_min(job->block, end - j - n);
  ahead next = {k + n * p->k_strides[2], v + n * p->v_strides[2], rest, 0,
                job->rows * SHARED_BLOCK / VL};
  for (int64_t r = 0; r < job->rows; r += FEW_QUERIES) {
    float* sums = out + r * row_floats(job);
    const int64_t left = job->rows - r;
    if (left >= FEW_QUERIES) {
      keys_of_rows(FEW_QUERIES, job, group, r, j, n, k, v, sums, &next);
    } else if (FEW_QUERIES > 3 && left == 3) {
      keys_of_rows(FEW_QUERIES - 1, job, group, r, j, n, k, v, sums, &next);
    } else if (left == 2) {
      keys_of_rows(2, job, group, r, j, n, k, v, sums, &next);
    } else {
      keys_of_rows(1, job, group, r, j, n, k, v, sums, &next);
    }
  }
}

/* A part of the keys of the groups that follow the first one, block by block: in a cache their rows
 * lie side by side, and memory is read in order. */
static void keys_of_part(const few_job* job, int64_t first, int64_t part) {
  const int64_t j0 = part * job->p->keys / job->parts, j1 = (part + 1) * job->p->keys / job->parts;
  const int64_t apart = job->parts * result_floats(job);
  float* out = job->results + (first * job->parts + part) * result_floats(job);
  for (int64_t i = 0; i < job->abreast; i++) {
    float* row = out + i * apart;
    memset(row, 0, (size_t)result_floats(job) * sizeof *row);
    for (int64_t r = 0; r < job->rows; r++)
      row[r * row_floats(job) + job->wide + 1] = -__builtin_inff();
  }
  for (int64_t j = j0; j < j1; j += job->block)
    for (int64_t i = 0; i < job->abreast; i++)
      keys_of_group(job, first + i, j, j1, out + i * apart);
}

/* y of one row from the parts of its keys; `first` is the first part's result for it. */
static void finish_row(const few_job* job, int64_t group, int64_t r, float* first) {
  const ext_attention_params* p = job->p;
  const int64_t head = group * job->heads + r / p->queries, query = r % p->queries;
  const int64_t step = result_floats(job);
  float* y = job->y + head_offset(p, p->y_strides, head) + query * p->y_strides[2];
  float most = -__builtin_inff(), sum = 0.0f, plain = 0.0f;
  for (int64_t i = 0; i < job->parts; i++) {
    const float* part = first + i * step + job->wide;
    most = part[1] > most ? part[1] : most;
    plain += part[0];
  }
  /* Exponents that are all -inf have been taken as they are: their sums are 0, not NaN. */
  const int without_key = most == -__builtin_inff() && plain == 0.0f;
  float* sums = first;
  for (int64_t i = 0; i < job->parts; i++) {
    const float* part = first + i * step;
    const float by = expf(part[job->wide + 1] - most); /* NaN: no key counts, or one is infinite */
    sum += part[job->wide] * by;
    for (int64_t c = 0; c < job->wide; c++) sums[c] = i ? sums[c] + part[c] * by : part[c] * by;
  }
  const int is_guarded = p->guarded == EXT_GUARD_NAN ? sum != sum : p->guarded && without_key;
  if (is_guarded) { /* weights of 0, through which what is no number shows */
    const float* v = job->v + group_offset(p, p->v_strides, group);
    const float none[1] = {0.0f}, by[1] = {1.0f};
    memset(sums, 0, (size_t)job->wide * sizeof *sums);
    for (int64_t j = 0; j < p->keys; j++)
      add_values(1, none, v + j * p->v_strides[2], p->v_strides[2], 1, p->width, by, sums, 0);
    sum = 1.0f;
  }
  const vf factor = vf_set1(1.0f / sum);
  int64_t c = 0;
  for (; c + VL <= p->width; c += VL) vf_store(y + c, vf_load(sums + c) * factor);
  if (c < p->width) vf_store_n(y + c, vf_load(sums + c) * factor, p->width - c);
}

/* y of one group from the parts of its keys. */
static void finish_group(const few_job* job, int64_t group) {
  float* first = job->results + group * job->parts * result_floats(job);
  for (int64_t r = 0; r < job->rows; r++) finish_row(job, group, r, first + r * row_floats(job));
}

/* Items are parts of the groups that are abreast, those of the same ones side by side. */
static int parts(void* context, int64_t begin, int64_t end) {
  const few_job* job = context;
  for (int64_t item = begin; item < end; item++) {
    const int64_t group = item / job->parts * job->abreast;
    keys_of_part(job, group, item % job->parts);
    if (job->parts > 1) continue;
    for (int64_t i = 0; i < job->abreast; i++) finish_group(job, group + i);
  }
  return EXT_OK;
}

/* How many items there are for so many threads; sets what they are. */
static int64_t share_out(few_job* job, int64_t threads) {
  const ext_attention_params* p = job->p;
  const int64_t groups = p->heads / job->heads; /* of a batch item */
  const int side_by_side = p->k_strides[1] < p->k_strides[2] && p->v_strides[1] < p->v_strides[2];
  job->block = job->rows < FETCH_ROWS ? BLOCK : SHARED_BLOCK;
  job->parts = 1;
  job->abreast = side_by_side && job->rows >= FETCH_ROWS ? groups : 1;
  if (threads == 1) return job->groups / job->abreast;
  const int64_t sets = job->groups / job->abreast;
  if (sets < 4 * threads)
    job->parts =
        i64_max(1, i64_min(ceil_div(4 * threads, sets), p->keys * job->abreast / PART_KEYS));
  if (sets * job->parts >= threads) return sets * job->parts;
  job->parts = 1; /* keys are too few to share */
  job->abreast = 1;
  return job->groups;
}

int EXT_NAME(ext_attention_few)(const ext_attention_params* p, const float* q, const float* k,
                                const float* v, const float* mask, float* y) {
  few_job job = {.p = p, .q = q, .k = k, .v = v, .mask = mask, .y = y};
  job.heads = heads_of_group(p);
  job.rows = job.heads * p->queries;
  job.groups = p->batch * p->heads / job.heads;
  job.wide = ceil_div(p->width, VL) * VL;
  const int64_t work = job.groups * job.rows * p->keys * (p->depth + p->width);
  const int64_t threads = work < ALONE ? 1 : ext_num_threads(), items = share_out(&job, threads);
  const int64_t floats = job.groups * job.parts * result_floats(&job);
  job.results = ext_workspace_alloc((size_t)floats * sizeof(float));
  if (!job.results) return EXT_ERR_MEMORY;
  const int status = threads == 1 ? parts(&job, 0, items) : ext_parallel_for(items, 1, parts, &job);
  if (!status && job.parts > 1)
    for (int64_t group = 0; group < job.groups; group++) finish_group(&job, group);
  ext_workspace_free(job.results);
  return status;
}
