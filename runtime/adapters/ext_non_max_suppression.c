/*
 * ext_non_max_suppression.c - NonMaxSuppression of ONNX, a packed function that a model which needs
 * it brings along, as those of ext_value_sized.c.
 *
 *   ext.run.non_max_suppression(boxes [B, N, 4], scores [B, C, N], most, overlap, least,
 *                               (centred, has_least))
 *       -> int64 [count, 3]: batch, class and box of all that stay
 *
 * Of each class of each picture, the boxes whose score is above `least` come in the order of their
 * scores, equal ones by their place, and each stays that overlaps none which stays by more than
 * `overlap` of what both cover, until there are `most`.  A box is (y, x, y, x) of two opposite
 * corners, or (x, y, width, height) about its centre.  most int64, overlap and least float32 are
 * tensors of one element; without `has_least` every score is above it.
 */
#include <math.h>

#include "ext_value_sized.h"

EXPORT(ext_run_non_max_suppression) __asm__("__tvm_ffi_ext.run.non_max_suppression");

static const char NAME[] = "non_max_suppression";

typedef struct {
  float left, top, right, bottom, area;
} rectangle;

/* Boxes that are compared at once; lists of them by where their left edges are, at most. */
enum { GROUP = 16, LISTS = 64 };

/* GROUP boxes that stay; places behind the last hold boxes that nothing overlaps. */
typedef struct {
  float left[GROUP], top[GROUP], right[GROUP], bottom[GROUP], area[GROUP];
  int64_t count, next; /* -1: the last of its list */
} rectangles;

/* The boxes of a class that stay, so far. Exporters move the classes apart instead of naming them:
 * most boxes are in other lists than those that a box could overlap. */
typedef struct {
  rectangles* groups;
  int64_t used, lists[LISTS];
  int count;
  float first, scale; /* of left edges */
  float widest;
} kept_boxes;

/* A score and the place of its box in one number: the greater one comes first. */
typedef uint64_t candidate;

typedef struct {
  int64_t (*rows)[3];
  int64_t count, room;
} found_boxes;

/* The greatest score first, NaN last, equal ones by their place. */
static candidate candidate_of(float score, int64_t box) {
  const float value = score + 0.0F; /* both zeros are equal */
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  bits ^= bits >> 31 ? UINT32_MAX : UINT32_C(1) << 31;
  if (isnan(score)) bits = 0; /* below what -inf became */
  return (candidate)bits << 32 | (uint32_t)~box;
}

static int64_t box_of(candidate one) {
  return (uint32_t)~one;
}

/* Lets a candidate of a heap, whose greatest one is the first, sink to its place. */
static void sink(candidate* heap, int64_t count, int64_t at) {
  const candidate one = heap[at];
  for (int64_t child; (child = 2 * at + 1) < count; at = child) {
    child += child + 1 < count && heap[child + 1] > heap[child];
    if (heap[child] <= one) break;
    heap[at] = heap[child];
  }
  heap[at] = one;
}

static float lesser(float a, float b) {
  return a < b ? a : b;
}

static float greater(float a, float b) {
  return a > b ? a : b;
}

static rectangle rectangle_of(const float* box, int centred) {
  rectangle r;
  if (centred) {
    r = (rectangle){box[0] - box[2] / 2, box[1] - box[3] / 2, box[0] + box[2] / 2,
                    box[1] + box[3] / 2, 0};
  } else {
    r = (rectangle){lesser(box[1], box[3]), lesser(box[0], box[2]), greater(box[1], box[3]),
                    greater(box[0], box[2]), 0};
  }
  r.area = (r.right - r.left) * (r.bottom - r.top);
  return r;
}

/* Whether a box overlaps one of a group by more than a share of what both cover; what has no area
 * overlaps nothing. */
static int overlaps(const rectangles* group, const rectangle* box, float share) {
  int meet = 0;
  for (int i = 0; i < GROUP; ++i) /* most groups end here, without a division */
    meet |= (group->left[i] < box->right) & (box->left < group->right[i]) &
            (group->top[i] < box->bottom) & (box->top < group->bottom[i]);
  for (int i = 0; meet && i < GROUP; ++i) {
    const float width = lesser(group->right[i], box->right) - greater(group->left[i], box->left);
    const float height = lesser(group->bottom[i], box->bottom) - greater(group->top[i], box->top);
    if (!(width > 0 && height > 0 && group->area[i] > 0 && box->area > 0)) continue;
    const float common = width * height, all = group->area[i] + box->area - common;
    if (common > 0 && all > 0 && common / all > share) return 1;
  }
  return 0;
}

/* The list of a left edge; never a lower one for a greater edge. */
static int list_of(const kept_boxes* kept, float left) {
  const float place = (left - kept->first) * kept->scale;
  if (!(place > 0)) return 0;
  return place < (float)(kept->count - 1) ? (int)place : kept->count - 1;
}

static int is_overlapped(const kept_boxes* kept, const rectangle* box, float share) {
  const int begin = list_of(kept, box->left - kept->widest), end = list_of(kept, box->right);
  for (int list = begin > 0 ? begin - 1 : 0; list <= end; ++list) /* widths are rounded */
    for (int64_t at = kept->lists[list]; at >= 0; at = kept->groups[at].next)
      if (overlaps(&kept->groups[at], box, share)) return 1;
  return 0;
}

static void keep(kept_boxes* kept, const rectangle* box) {
  int64_t* list = &kept->lists[list_of(kept, box->left)];
  if (*list < 0 || kept->groups[*list].count == GROUP) {
    rectangles* fresh = &kept->groups[kept->used];
    for (int i = 0; i < GROUP; ++i) /* no comparison with NaN holds */
      fresh->left[i] = fresh->top[i] = fresh->right[i] = fresh->bottom[i] = fresh->area[i] = NAN;
    fresh->count = 0;
    fresh->next = *list;
    *list = kept->used++;
  }
  rectangles* group = &kept->groups[*list];
  const int64_t i = group->count++;
  group->left[i] = box->left, group->top[i] = box->top;
  group->right[i] = box->right, group->bottom[i] = box->bottom;
  group->area[i] = box->area;
  kept->widest = greater(kept->widest, box->right - box->left);
}

/* No boxes yet, of which candidates will come and `most` may stay: lists of a group or more. */
static void begin_class(kept_boxes* kept, const candidate* order, int64_t count, int64_t most,
                        const float* boxes, int centred) {
  const int64_t groups = (count < most ? count : most) / GROUP;
  kept->count = groups < 1 ? 1 : groups < LISTS ? (int)groups : LISTS;
  float first = INFINITY, last = -INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    const float left = rectangle_of(boxes + 4 * box_of(order[i]), centred).left;
    first = lesser(left, first);
    last = greater(left, last);
  }
  for (int list = 0; list < LISTS; ++list) kept->lists[list] = -1;
  kept->first = first;
  kept->scale = last > first ? (float)kept->count / (last - first) : 0;
  kept->used = 0;
  kept->widest = 0;
}

static int add_row(found_boxes* found, int64_t batch, int64_t class, int64_t box) {
  if (found->count == found->room) {
    const int64_t room = found->room > 0 ? 2 * found->room : 64;
    void* rows = realloc(found->rows, (size_t)room * sizeof(*found->rows));
    if (rows == NULL) return out_of_memory(NAME);
    found->rows = rows;
    found->room = room;
  }
  int64_t* row = found->rows[found->count++];
  row[0] = batch, row[1] = class, row[2] = box;
  return 0;
}

/* Chooses among the candidates of one class, of which most are often never looked at: no more are
 * sorted than are; `kept` has groups for all of them. */
static int choose(candidate* heap, int64_t count, const float* boxes, int centred, int64_t most,
                  float share, int64_t batch, int64_t class, kept_boxes* kept, found_boxes* found) {
  int64_t stay = 0;
  begin_class(kept, heap, count, most, boxes, centred);
  for (int64_t i = count / 2 - 1; i >= 0; --i) sink(heap, count, i);
  while (count > 0 && stay < most) {
    const int64_t box = box_of(heap[0]);
    const rectangle one = rectangle_of(boxes + 4 * box, centred);
    heap[0] = heap[--count];
    if (count > 0) sink(heap, count, 0);
    if (is_overlapped(kept, &one, share)) continue;
    keep(kept, &one);
    ++stay;
    if (add_row(found, batch, class, box) != 0) return -1;
  }
  return 0;
}

static int is_of(const DLTensor* x, uint8_t code, uint8_t bits, int32_t ndim) {
  return x->dtype.code == code && x->dtype.bits == bits && (ndim < 0 || x->ndim == ndim);
}

/* Argument `index` as a tensor of one element. NULL with an error raised. */
static const void* single(const TVMFFIAny* args, int32_t n, int32_t index, uint8_t code,
                          uint8_t bits) {
  const DLTensor* x = taken_at(NAME, args, n, index);
  if (x == NULL) return NULL;
  if (is_of(x, code, bits, -1) && count_of(x) == 1) return data_of(x);
  ext_raise("ValueError", "non_max_suppression: a limit is no single number of its dtype");
  return NULL;
}

int ext_run_non_max_suppression(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self;
  const DLTensor* boxes = taken_at(NAME, args, n, 0);
  const DLTensor* scores = boxes ? taken_at(NAME, args, n, 1) : NULL;
  const int64_t* most = scores ? single(args, n, 2, kDLInt, 64) : NULL;
  const float* share = most ? single(args, n, 3, kDLFloat, 32) : NULL;
  const float* least = share ? single(args, n, 4, kDLFloat, 32) : NULL;
  if (least == NULL) return -1;
  if (n != 6 || args[5].type_index != kTVMFFIShape)
    return ext_raise("TypeError", "non_max_suppression: argument 5 is no shape; pass one");
  const int64_t* form = ext_shape_of(&args[5])->data;
  if (!is_of(boxes, kDLFloat, 32, 3) || !is_of(scores, kDLFloat, 32, 3) || boxes->shape[2] != 4 ||
      boxes->shape[0] != scores->shape[0] || boxes->shape[1] != scores->shape[2])
    return ext_raise("ValueError",
                     "non_max_suppression: boxes and scores do not fit each other; pass float32 "
                     "[batch, boxes, 4] and [batch, classes, boxes]");
  if (!(*share >= 0 && *share <= 1))
    return ext_raise("ValueError", "non_max_suppression: iou_threshold is not from 0 to 1");
  const int64_t classes = scores->shape[1], extent = scores->shape[2];
  if (extent > UINT32_MAX)
    return ext_raise("ValueError", "non_max_suppression: too many boxes; pass fewer than 2^32");
  const size_t room = (size_t)(extent > 0 ? extent : 1);
  candidate* order = malloc(room * sizeof(*order));
  kept_boxes kept = {.groups = malloc((room / GROUP + 1 + LISTS) * sizeof(*kept.groups))};
  found_boxes found = {NULL, 0, 0};
  int status = order == NULL || kept.groups == NULL ? out_of_memory(NAME) : 0;
  const float* score = (const float*)data_of(scores);
  for (int64_t row = 0; status == 0 && row < scores->shape[0] * classes; ++row, score += extent) {
    const float* own = (const float*)data_of(boxes) + row / classes * extent * 4;
    int64_t count = 0;
    for (int64_t i = 0; i < extent; ++i) {
      order[count] = candidate_of(score[i], i);
      count += !form[1] || score[i] > *least;
    }
    status = choose(order, count, own, form[0] != 0, *most, *share, row / classes, row % classes,
                    &kept, &found);
  }
  int64_t* data = NULL;
  if (status == 0 && new_int64(2, (const int64_t[]){found.count, 3}, result, &data) != 0)
    status = -1;
  if (status == 0 && found.count > 0)
    memcpy(data, found.rows, (size_t)found.count * sizeof(*found.rows));
  free(found.rows);
  free(kept.groups);
  free(order);
  return status;
}
