/*
 * ext_once.h - something that is done once, before the first call that needs it.
 *
 * A zeroed ext_once is ready for use.  Threads that come while the first one is at work wait for
 * it; where it fails, the next one tries again.
 */
#ifndef EXT_ONCE_H_
#define EXT_ONCE_H_

#include <pthread.h>
#include <stdatomic.h>

typedef struct {
  _Atomic int done;
  pthread_mutex_t lock; /* all zero is an unlocked mutex, as PTHREAD_MUTEX_INITIALIZER has it */
} ext_once;

/* 1 where the caller must do the work now, and then call ext_once_end. */
static inline int ext_once_begin(ext_once* once) {
  if (atomic_load_explicit(&once->done, memory_order_acquire)) return 0;
  pthread_mutex_lock(&once->lock);
  if (!atomic_load_explicit(&once->done, memory_order_relaxed)) return 1;
  pthread_mutex_unlock(&once->lock);
  return 0;
}

/* Takes the status of the work, 0 if it is done, and gives it back. */
static inline int ext_once_end(ext_once* once, int status) {
  if (status == 0) atomic_store_explicit(&once->done, 1, memory_order_release);
  pthread_mutex_unlock(&once->lock);
  return status;
}

/* The status of function(...), which returns one, or 0 where it was done before. */
#define EXT_ONCE(once, function, ...) \
  (ext_once_begin(once) ? ext_once_end(once, function(__VA_ARGS__)) : 0)

#endif /* EXT_ONCE_H_ */
