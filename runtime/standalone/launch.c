/*
 * Threads and scratch memory for kernels, in place of threads.c and workspace.c, which ask TVM.
 *
 * A launch has as many tasks as the instance, whoever runs them: kernels cut their work, and take
 * scratch memory, by that number and by shapes alone.  So what create measures is what every later
 * run takes, where shapes are fixed.
 */
#include <stdio.h>

#include "../shares.h"
#include "instance.h"

static _Thread_local ext_part* current; /* NULL outside of a run */

/* ------------------------------------------------------------------ threads */

typedef struct {
  ext_loop items;
  ext_instance* instance;
  _Atomic int32_t begun, ended;
} launch;

static void run_task(void* context, int32_t index) {
  launch* l = context;
  ext_part* outer = current; /* a pool may lend a thread that waits inside of another run */
  if (index < 0 || index >= l->instance->tasks) return;
  atomic_fetch_add(&l->begun, 1);
  current = &l->instance->parts[index];
  ext_run_shares(&l->items, index, l->instance->tasks);
  current = outer;
  atomic_fetch_add(&l->ended, 1);
}

int ext_parallel_for(int64_t n, int64_t grain, ext_range_body body, void* context) {
  if (n <= 0) return EXT_OK;
  if (grain < 1) grain = 1;
  if (!current || current->inside || n <= grain || current->instance->tasks == 1)
    return body(context, 0, n);
  ext_instance* m = current->instance;
  launch l = {.items = {.n = n, .grain = grain, .body = body, .context = context}, .instance = m};
  int failed = 0;
  if (m->serial)
    for (int32_t index = 0; index < m->tasks; index++) run_task(&l, index);
  else
    failed = m->parallel_for(m->pool, m->tasks, run_task, &l);
  int status = atomic_load(&l.items.status);
  /* One task that has ended is enough: it left no item to the others. */
  int32_t ended = atomic_load(&l.ended);
  if (failed || ended == 0 || ended != atomic_load(&l.begun)) failed = EXT_ERR_THREADS;
  return status ? status : failed;
}

int ext_num_threads(void) {
  return !current || current->inside ? 1 : current->instance->tasks;
}

/* In a forked child an instance runs serially, but for the number of its tasks. */
int ext_threads_of_library(void) {
  return current && current->instance->serial ? 1 : ext_num_threads();
}

/* ------------------------------------------------------------------ scratch memory */

/* Before each piece that lies outside of a stack: its size. */
typedef struct {
  _Alignas(EXT_ALIGN) size_t bytes;
} piece;

static void* take_piece(ext_part* part, size_t bytes) {
  ext_instance* m = part->instance;
  if (bytes > SIZE_MAX - sizeof(piece)) return NULL;
  pthread_mutex_lock(&m->heap_mutex);
  piece* p = ext_heap_take(&m->heap, bytes + sizeof(piece));
  pthread_mutex_unlock(&m->heap_mutex);
  if (!p) return NULL;
  p->bytes = bytes;
  part->stack.outside += bytes;
  return p + 1;
}

static void give_piece(ext_part* part, void* memory) {
  ext_instance* m = part->instance;
  piece* p = (piece*)memory - 1;
  part->stack.outside -= p->bytes;
  pthread_mutex_lock(&m->heap_mutex);
  ext_heap_give(&m->heap, p);
  pthread_mutex_unlock(&m->heap_mutex);
}

void* ext_workspace_alloc(size_t bytes) {
  size_t rounded = bytes ? ext_round_up(bytes) : EXT_ALIGN;
  if (!current || rounded == 0) return NULL;
  ext_stack* s = &current->stack;
  void* memory = NULL;
  if (rounded <= s->size - s->used) {
    memory = s->base + s->used;
    s->used += rounded;
  } else if (current->instance->grows) {
    memory = take_piece(current, rounded);
  }
  if (memory && s->used + s->outside > s->deepest) s->deepest = s->used + s->outside;
  return memory;
}

void ext_workspace_free(void* memory) {
  if (!memory || !current) return;
  ext_stack* s = &current->stack;
  const size_t place = (size_t)((uintptr_t)memory - (uintptr_t)s->base);
  if (place < s->size)
    s->used = place;
  else
    give_piece(current, memory);
}

/* ------------------------------------------------------------------ the run itself */

int ext_run_here(ext_instance* m, const void* const* inputs, void* const* outputs) {
  ext_part* outer = current;
  current = &m->calls;
  void** before = ext_buffers_of(m, m->turn);
  void** after = ext_buffers_of(m, 1 - m->turn);
  int status =
      m->model->run(inputs, outputs, (const void* const*)before, after, m->sizes, m->arena);
  current = outer;
  return status;
}

int ext_measure_here(ext_instance* m) {
  ext_part* outer = current;
  current = &m->calls;
  int status = m->model->measure(m->sizes, &m->needs);
  current = outer;
  return status;
}

int ext_raise(const char* kind, const char* message) {
  (void)kind;
  if (current)
    snprintf(current->instance->message, sizeof current->instance->message, "%s", message);
  return BYOC_ERR_LIBRARY;
}

int ext_raise_status(const char* region, const char* operation, int status) {
  if (current)
    snprintf(current->instance->message, sizeof current->instance->message, "%s: %s failed: %s",
             region, operation, ext_status_string(status));
  switch (status) {
    case EXT_ERR_MEMORY: return BYOC_ERR_MEMORY;
    case EXT_ERR_THREADS: return BYOC_ERR_THREADS;
    case EXT_ERR_INDEX: return BYOC_ERR_INDEX;
    default: return BYOC_ERR_KERNEL;
  }
}

int ext_raise_negative(const char* region, const char* extent, int64_t value, const char* sizes) {
  if (current)
    snprintf(current->instance->message, sizeof current->instance->message,
             "%s: extent %.64s inside the network would be %lld; give %s sizes", region, extent,
             (long long)value, sizes);
  return BYOC_ERR_ARGUMENT;
}

int ext_raise_library(const char* region, const char* library, const char* composite, int status,
                      const char* text) {
  if (current)
    snprintf(current->instance->message, sizeof current->instance->message,
             "%s: library %s failed on %s: status %d (%s)", region, library, composite, status,
             text ? text : "no message");
  return BYOC_ERR_LIBRARY;
}
