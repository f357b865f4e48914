/*
 * The items of one launch, as the tasks of a launch claim them.
 *
 * Items are claimed in chunks of `grain`.  Each task of a launch first takes those of its own
 * share, then what is left of the others', so that a task whose core is busy elsewhere takes
 * fewer.  As shares are ranges, and the same in every launch, a task mostly finds in its own L2 the
 * rows of an image that it computed in the launch before.
 */
#ifndef EXT_SHARES_H_
#define EXT_SHARES_H_

#include <stdatomic.h>

#include "kernels/public.h"

enum { MOST_SHARES = 16, SHARE_LINE = 64 };

typedef struct {
  _Alignas(SHARE_LINE) _Atomic int64_t taken; /* chunks of the share */
} ext_share;

typedef struct {
  ext_share shares[MOST_SHARES];
  _Atomic int status; /* the first of a body that is not 0 */
  int64_t n, grain;
  ext_range_body body;
  void* context;
} ext_loop;

/* Runs what is left of share `index` of `count`. */
static inline void ext_run_share(ext_loop* l, int index, int count) {
  int64_t chunks = (l->n + l->grain - 1) / l->grain;
  int64_t first = index * chunks / count, past = (index + 1) * chunks / count;
  for (;;) {
    if (atomic_load_explicit(&l->status, memory_order_relaxed)) return;
    int64_t chunk =
        first + atomic_fetch_add_explicit(&l->shares[index].taken, 1, memory_order_relaxed);
    if (chunk >= past) return;
    int64_t begin = chunk * l->grain;
    int64_t end = l->n - begin < l->grain ? l->n : begin + l->grain;
    int status = l->body(l->context, begin, end), none = EXT_OK;
    if (status) atomic_compare_exchange_strong(&l->status, &none, status);
  }
}

/* What task `task` of `tasks` does.  When it returns, every chunk has been claimed. */
static inline void ext_run_shares(ext_loop* l, int task, int tasks) {
  int count = tasks < MOST_SHARES ? tasks : MOST_SHARES;
  for (int i = 0; i < count; i++) ext_run_share(l, (task + i) % count, count);
}

#endif /* EXT_SHARES_H_ */
