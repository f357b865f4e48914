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
#include "ahead.h"
#include "attention_lanes.h"
#include "subnormals.h"

/* Keys of a part at least. */
enum { PART_KEYS = 256 };
/* Rows that share keys from which on the next ones are asked for on every CPU: fewer wait for
 * memory anyway, which most read ahead of them. */
enum { SHARED_ROWS = 3 };
/* Of lone rows, and of two: floats of the keys of a block at most, of all heads that are read
 * together, as the next block comes to L2 beside it, and keys of a block at least.  Of more heads
 * (32 of 128 numbers) the next block would be too far away. */
enum { BLOCK_FLOATS = 1 << 16, LEAST_LONE_BLOCK = 2 * VL };
/* Products below which threads cost more than they save. */
static const int64_t ALONE = 1 << 16;

/* What belongs to a group of heads; the mask may be NULL. */
typedef struct {
  const float *q, *k, *v, *mask;
  const float* turned; /* q, where each row has a lane; else NULL */
} few_group;

typedef struct {
  const ext_attention_params* p;
  const few_group* of_groups;
  float* y;
  int64_t heads, rows;   /* that share keys; rows: of all their queries */
  int64_t groups, parts; /* of all batch items; of the keys of each */
  int64_t abreast;       /* groups whose keys are read together */
  int64_t block;         /* keys of one */
  int asks, twice;       /* for the next one; see asks_twice */
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

/* What one call of keys_of_group reads. */
typedef struct {
  const few_group* group;
  int64_t j, n; /* keys [j, j + n) */
  const float *k, *v;
  const float* kt; /* NULL, or the keys turned */
  ahead next;
} few_block;

#if defined(EXT_HALF_VECTORS)
/* Whether rows that share keys have a lane each: there are as many as fill most of a half vector,
 * they have one mask, and their numbers are pairs. */
static int in_lanes(const few_job* job, const float* mask) {
  const ext_attention_params* p = job->p;
  if (job->rows <= LANES / 2 || job->rows > LANES || p->depth % 2 || !is_halved()) return 0;
  return !mask || (p->mask_strides[1] == 0 && (p->queries == 1 || p->mask_strides[2] == 0));
}

/* turned[i / 2] has the pairs i, i + 1 of all rows, in the order in which vh_sum_pairs makes sums
 * of rows of them, and zeros where there is no row; returns it. */
static const float* turn_queries(const few_job* job, const float* q, float* turned) {
  const ext_attention_params* p = job->p;
  for (int64_t r = 0; r < LANES; r++) {
    const int64_t at = r / p->queries * p->q_strides[1] + r % p->queries * p->q_strides[2];
    const int64_t lane = r / 2 % 2 * LANES + r / 4 * 4 + r % 2 * 2;
    for (int64_t i = 0; i < p->depth; i++)
      turned[i / 2 * 2 * LANES + lane + i % 2] = r < job->rows ? q[at + i] : 0.0f;
  }
  return turned;
}

/* Where a group's state is between blocks: behind the sums of its first rows. */
static lane_state state_of(const few_job* job, float* out) {
  return (lane_state){out + job->wide, out + row_floats(job) + job->wide};
}
#endif

/* The scores of one row, whose products are in s where keys are turned; returns the greatest. */
EXT_INLINE float scores_of_row(const few_job* job, few_block* b, const float* q, const float* mask,
                               float* s) {
#if defined(TURN_ROWS)
  if (b->kt) {
    fetch(&b->next, LINES);
    return masked(job->p, b->n, mask, s);
  }
#endif
  return scores(job->p, q, b->k, b->n, mask, s, &b->next);
}

/* A block of keys for rows [r, r + rows) of those that share them, DOT_ROWS at most. */
static void keys_of_rows(const few_job* job, few_block* b, int64_t r, int64_t rows, float* out) {
  const ext_attention_params* p = job->p;
  const int64_t apart = row_floats(job);
  float s[DOT_ROWS * BLOCK], by[DOT_ROWS];
  const float *q[DOT_ROWS], *mask[DOT_ROWS];
  int64_t head = r / p->queries, query = r % p->queries;
  for (int64_t i = 0; i < rows; i++) {
    q[i] = b->group->q + head * p->q_strides[1] + query * p->q_strides[2];
    mask[i] = b->group->mask;
    if (mask[i])
      mask[i] += head * p->mask_strides[1] + query * p->mask_strides[2] + b->j * p->mask_strides[3];
    if (++query == p->queries) {
      query = 0;
      head++;
    }
  }
#if defined(TURN_ROWS)
  if (b->kt) dots_of_block(rows, q, b->kt, b->n, p->depth, s, &b->next);
#endif
  for (int64_t i = 0; i < rows; i++) {
    float *sum = out + i * apart + job->wide, *row = s + i * BLOCK;
    const float found = scores_of_row(job, b, q[i], mask[i], row);
    const float most = found > sum[1] ? found : sum[1];
    const float shift = most == -__builtin_inff() ? 0.0f : most;
    by[i] = sum[1] == most ? 1.0f : expf(sum[1] - shift);
    sum[0] = sum[0] * by[i] + exponentials(row, b->n, shift);
    sum[1] = most;
  }
  for (int64_t i = 0; i < rows; i += FEW_QUERIES)
    add_few_values(BLOCK, 1, i64_min(FEW_QUERIES, rows - i), s + i * BLOCK, b->v, p->v_strides[2],
                   b->n, p->width, by + i, out + i * apart, apart, &b->next);
}

/* What group `i` of those that are abreast asks for of the next block, keys [j, end). */
static ahead next_block(const few_job* job, const few_group* group, int64_t i, int64_t j,
                        int64_t end) {
  const ext_attention_params* p = job->p;
  if (j >= end || !job->asks) return (ahead){0};
  const int64_t keys = i64_min(job->block, end - j), groups = job->abreast;
  const int64_t first = j + i * keys / groups, rows = j + (i + 1) * keys / groups - first;
  const int64_t key = p->k_strides[2], value = p->v_strides[2];
  return (ahead){
      .keys = {.at = group->k - i * p->k_strides[1] + first * key,
               .columns = groups * p->depth,
               .row = key,
               .rows = rows},
      .values = {.at = group->v - i * p->v_strides[1] + first * value,
                 .columns = groups * p->width,
                 .row = value,
                 .rows = rows},
      .pace = job->rows < SHARED_ROWS ? p->depth / job->rows : LINES,
      .values_once = job->rows <= FEW_QUERIES,
      .twice = job->twice,
  };
}

/* The keys [j, j + n) of one group, the i-th of those that are abreast, for all rows that share
 * them. */
static void keys_of_group(const few_job* job, const few_group* group, int64_t i, int64_t j,
                          int64_t end, float* out) {
  const ext_attention_params* p = job->p;
  const int64_t n = i64_min(job->block, end - j), key = p->k_strides[2];
  few_block b = {group,
                 j,
                 n,
                 group->k + j * key,
                 group->v + j * p->v_strides[2],
                 NULL,
                 next_block(job, group, i, j + n, end)};
#if defined(EXT_HALF_VECTORS)
  if (group->turned) {
    const float* mask = group->mask ? group->mask + j * p->mask_strides[3] : NULL;
    const lane_state state = state_of(job, out);
    keys_of_lanes(p, job->rows, group->turned, b.k, b.v, n, mask, &state, out, row_floats(job),
                  &b.next);
    return;
  }
#endif
#if defined(TURN_ROWS)
  float turned[MOST_DEPTH * SHARED_BLOCK];
  if (job->rows >= TURN_ROWS && p->depth <= MOST_DEPTH) {
    turn_keys(b.k, key, n, p->depth, turned, &b.next);
    b.kt = turned;
  }
#endif
  for (int64_t r = 0; r < job->rows; r += DOT_ROWS)
    keys_of_rows(job, &b, r, i64_min(DOT_ROWS, job->rows - r), out + r * row_floats(job));
}

/* Sets the greatest exponents of no keys. */
static void start_rows(const few_job* job, const few_group* group, float* out) {
#if defined(EXT_HALF_VECTORS)
  if (group->turned) {
    vf_store(state_of(job, out).most, vf_set1(-__builtin_inff()));
    return;
  }
#endif
  (void)group;
  for (int64_t r = 0; r < job->rows; r++)
    out[r * row_floats(job) + job->wide + 1] = -__builtin_inff();
}

/* Brings what lanes know to each row. */
static void settle_rows(const few_job* job, const few_group* group, float* out) {
#if defined(EXT_HALF_VECTORS)
  if (!group->turned) return;
  const lane_state state = state_of(job, out);
  float total[VL], most[VL];
  vf_store(total, vf_load(state.total));
  vf_store(most, vf_load(state.most));
  for (int64_t r = 0; r < job->rows; r++) {
    out[r * row_floats(job) + job->wide] = total[r];
    out[r * row_floats(job) + job->wide + 1] = most[r];
  }
#else
  (void)job, (void)group, (void)out;
#endif
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
    start_rows(job, job->of_groups + first + i, row);
  }
  for (int64_t j = j0; j < j1; j += job->block)
    for (int64_t i = 0; i < job->abreast; i++)
      keys_of_group(job, job->of_groups + first + i, i, j, j1, out + i * apart);
  for (int64_t i = 0; i < job->abreast; i++)
    settle_rows(job, job->of_groups + first + i, out + i * apart);
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
    const float* v = job->of_groups[group].v;
    const float none[1] = {0.0f}, by[1] = {1.0f};
    ahead nothing = {0};
    memset(sums, 0, (size_t)job->wide * sizeof *sums);
    for (int64_t j = 0; j < p->keys; j++)
      add_values(BLOCK, 1, 1, none, v + j * p->v_strides[2], p->v_strides[2], 1, p->width, by, sums,
                 0, &nothing);
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

/* Keys of a block of rows that share none, or of two that do: whole vectors of them, as many as
 * leave room for the next block in L2 if that is asked for. */
static int64_t lone_block(const few_job* job) {
  const int64_t vectors = BLOCK_FLOATS / i64_max(1, job->abreast * job->p->depth * VL);
  return job->asks && vectors < BLOCK / VL ? vectors * VL : BLOCK;
}

/* How many items there are for so many threads; sets what they are. */
static int64_t share_out(few_job* job, int64_t threads) {
  const ext_attention_params* p = job->p;
  const int64_t groups = p->heads / job->heads; /* of a batch item */
  const int side_by_side = p->k_strides[1] < p->k_strides[2] && p->v_strides[1] < p->v_strides[2];
  job->parts = 1;
  job->abreast = side_by_side ? groups : 1;
  job->twice = asks_twice();
  job->asks = job->rows >= SHARED_ROWS ||
              (job->twice && job->abreast * p->depth * LEAST_LONE_BLOCK <= BLOCK_FLOATS);
  job->block = job->rows < SHARED_ROWS ? lone_block(job) : SHARED_BLOCK;
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
  few_job job = {.p = p, .y = y};
  job.heads = heads_of_group(p);
  job.rows = job.heads * p->queries;
  job.groups = p->batch * p->heads / job.heads;
  job.wide = ceil_div(p->width, VL) * VL;
  const int64_t work = job.groups * job.rows * p->keys * (p->depth + p->width);
  const int64_t threads = work < ALONE ? 1 : ext_num_threads(), items = share_out(&job, threads);
  int64_t floats = job.groups * job.parts * result_floats(&job);
#if defined(EXT_HALF_VECTORS)
  const int lanes = in_lanes(&job, mask);
  const int64_t turned = floats;
  if (lanes) floats += job.groups * p->depth * LANES;
#endif
  job.results =
      ext_workspace_alloc((size_t)floats * sizeof(float) + (size_t)job.groups * sizeof(few_group));
  if (!job.results) return EXT_ERR_MEMORY;
  few_group* of_groups = (few_group*)(job.results + floats);
  for (int64_t g = 0; g < job.groups; g++) {
    of_groups[g].q = q + head_offset(p, p->q_strides, g * job.heads);
    of_groups[g].k = k + group_offset(p, p->k_strides, g);
    of_groups[g].v = v + group_offset(p, p->v_strides, g);
    of_groups[g].mask = mask ? mask + head_offset(p, p->mask_strides, g * job.heads) : NULL;
    of_groups[g].turned = NULL;
#if defined(EXT_HALF_VECTORS)
    if (lanes)
      of_groups[g].turned =
          turn_queries(&job, of_groups[g].q, job.results + turned + g * p->depth * LANES);
#endif
  }
  job.of_groups = of_groups;
  const int status = threads == 1 ? ext_products(parts, &job, 0, items)
                                  : ext_parallel_products(items, 1, parts, &job);
  if (!status && job.parts > 1)
    for (int64_t group = 0; group < job.groups; group++) finish_group(&job, group);
  ext_workspace_free(job.results);
  return status;
}
