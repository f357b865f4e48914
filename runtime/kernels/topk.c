/*
 * values[o][j][i] = the j-th greatest of x[o][r][i] over r, or least; indices[o][j][i] = its r.
 *
 * x is [outer, extent, inner], a result [outer, k, inner].  Equal values are in the order of their
 * indices, a NaN is greater than any number, -0 equals 0.
 *
 * A heap holds the k best elements so far, the worst of them on top.  An element is compared with
 * that one's value alone, unless it is better.  An element of the heap is one integer, greater for
 * a better element: 32 bits that order the value, and the complement of the index.
 */
#include "../simd/simd.h"

/* Elements of one task at least: some ten microseconds. */
static const int64_t TASK_ELEMENTS = 1 << 14;
/* Elements of all heaps of a task, if each has one at most: they stay in L2. */
static const int64_t HEAP_ELEMENTS = 1 << 13;
/* Columns that are read beside each other, and elements of a slice that are looked at at once. */
enum { COLUMNS = 64, GROUP = 16 };

typedef struct {
  const ext_topk_params* p;
  int64_t columns, blocks; /* of COLUMNS or fewer in `inner` */
  const float* x;
  float* values;
  void* indices;
} topk_job;

EXT_INLINE uint64_t rank_of(const int least, float value, int64_t index) {
  uint32_t bits = 0; /* those of 0 and -0 */
  if (value != 0.0f) memcpy(&bits, &value, sizeof bits);
  uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;
  if (value != value) order = UINT32_MAX;
  return (uint64_t)(least ? ~order : order) << 32 | (UINT32_MAX - (uint32_t)index);
}

EXT_INLINE int64_t index_of(uint64_t rank) {
  return UINT32_MAX - (uint32_t)rank;
}

/* Whether a value behind those of a heap may be better than the worst of them.  Its index is
 * greater, so that an equal value is not; NaNs are for the heap to judge. */
EXT_INLINE int may_enter(const int least, float value, float worst) {
  return least ? !(value >= worst) : !(value <= worst);
}

/* Puts an element into the place `at` of a heap of n, or below. */
static void sift(uint64_t* heap, int64_t n, int64_t at, uint64_t rank) {
  for (int64_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && heap[child + 1] < heap[child]) child++;
    if (rank <= heap[child]) break;
    heap[at] = heap[child];
  }
  heap[at] = rank;
}

/* Offers the element r of a column to its heap of k; the value of the worst that is in it then. */
static float offer(const int least, const float* x, int64_t inner, int64_t r, int64_t k,
                   uint64_t* heap) {
  uint64_t rank = rank_of(least, x[r * inner], r);
  if (rank > heap[0]) sift(heap, k, 0, rank);
  return x[index_of(heap[0]) * inner];
}

/* The rest of a contiguous slice. */
EXT_INLINE void slice(const int least, const float* x, int64_t extent, int64_t k, float worst,
                      uint64_t* heap) {
  int64_t r = k;
  for (; r + GROUP <= extent; r += GROUP) {
    int any = 0;
    for (int j = 0; j < GROUP; j++) any |= may_enter(least, x[r + j], worst);
    for (int j = 0; any && j < GROUP; j++)
      if (may_enter(least, x[r + j], worst)) worst = offer(least, x, 1, r + j, k, heap);
  }
  for (; r < extent; r++)
    if (may_enter(least, x[r], worst)) worst = offer(least, x, 1, r, k, heap);
}

/* Fills the heaps of `count` neighbouring columns. */
EXT_INLINE void best(const int least, const ext_topk_params* p, const float* x, int64_t count,
                     uint64_t* heaps) {
  const int64_t k = p->k, inner = p->inner;
  float worst[COLUMNS];
  for (int64_t r = 0; r < k; r++)
    for (int64_t i = 0; i < count; i++) heaps[i * k + r] = rank_of(least, x[r * inner + i], r);
  for (int64_t i = 0; i < count; i++) {
    uint64_t* heap = heaps + i * k;
    for (int64_t at = k / 2 - 1; at >= 0; at--) sift(heap, k, at, heap[at]);
    worst[i] = x[index_of(heap[0]) * inner + i];
  }
  if (inner == 1) {
    slice(least, x, p->extent, k, worst[0], heaps);
    return;
  }
  for (int64_t r = k; r < p->extent; r++)
    for (int64_t i = 0; i < count; i++)
      if (may_enter(least, x[r * inner + i], worst[i]))
        worst[i] = offer(least, x + i, inner, r, k, heaps + i * k);
}

/* Writes a column's results, the first of which is at `to`, and leaves its heap in their order. */
static void put(const topk_job* job, const float* x, uint64_t* heap, int64_t to) {
  const int64_t k = job->p->k, inner = job->p->inner;
  for (int64_t n = k - 1; n > 0; n--) { /* the worst goes behind those that are left */
    uint64_t last = heap[n];
    heap[n] = heap[0];
    sift(heap, n, 0, last);
  }
  for (int64_t j = 0; j < k; j++, to += inner) {
    int64_t index = index_of(heap[j]);
    if (job->values) job->values[to] = x[index * inner];
    if (!job->indices) continue;
    if (job->p->index_dtype == EXT_INT64)
      ((int64_t*)job->indices)[to] = index;
    else
      ((int32_t*)job->indices)[to] = (int32_t)index;
  }
}

static int topk_range(void* context, int64_t begin, int64_t end) {
  const topk_job* job = context;
  const ext_topk_params* p = job->p;
  uint64_t* heaps = ext_workspace_alloc((size_t)(job->columns * p->k) * sizeof(uint64_t));
  if (!heaps) return EXT_ERR_MEMORY;
  for (int64_t item = begin; item < end; item++) {
    int64_t o = item / job->blocks, i0 = item % job->blocks * job->columns;
    int64_t count = i64_min(job->columns, p->inner - i0);
    const float* x = job->x + o * p->extent * p->inner + i0;
    if (p->least)
      best(1, p, x, count, heaps);
    else
      best(0, p, x, count, heaps);
    for (int64_t i = 0; i < count; i++)
      put(job, x + i, heaps + i * p->k, o * p->k * p->inner + i0 + i);
  }
  ext_workspace_free(heaps);
  return EXT_OK;
}

int EXT_NAME(ext_topk)(const ext_topk_params* p, const float* x, float* values, void* indices) {
  if (p->index_dtype != EXT_INT32 && p->index_dtype != EXT_INT64) return EXT_ERR_ARGUMENT;
  if (p->outer <= 0 || p->inner <= 0 || p->k <= 0) return EXT_OK;
  const int64_t most = p->index_dtype == EXT_INT64 ? UINT32_MAX : INT32_MAX;
  if (p->k > p->extent || p->extent > most) return EXT_ERR_ARGUMENT;
  int64_t columns = i64_min(i64_min(COLUMNS, p->inner), i64_max(1, HEAP_ELEMENTS / p->k));
  topk_job job = {p, columns, ceil_div(p->inner, columns), x, values, indices};
  return ext_parallel_for(p->outer * job.blocks, i64_max(1, TASK_ELEMENTS / (p->extent * columns)),
                          topk_range, &job);
}

EXT_DISPATCH(ext_topk, (const ext_topk_params* p, const float* x, float* values, void* indices),
             (p, x, values, indices))
