/*
 * Threads and scratch memory for kernels, in place of threads.c and workspace.c, which ask TVM.
 *
 * A launch has as many tasks as the instance, whoever runs them: kernels cut their work, and take
 * scratch memory, by that number and by shapes alone.  So what create measures is what every later
 * run takes.
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

/* ------------------------------------------------------------------ scratch memory */

/* Before each piece while create measures: its size. */
typedef struct {
  _Alignas(EXT_ALIGN) size_t bytes;
} piece;

static void* take_piece(ext_part* part, size_t bytes) {
  piece* p = bytes > SIZE_MAX - sizeof(piece)
                 ? NULL
                 : ext_heap_take(&part->instance->heap, bytes + sizeof(piece));
  if (!p) return NULL;
  p->bytes = bytes;
  part->stack.used += bytes;
  if (part->stack.used > part->stack.deepest) part->stack.deepest = part->stack.used;
  return p + 1;
}

void* ext_workspace_alloc(size_t bytes) {
  size_t rounded = bytes ? ext_round_up(bytes) : EXT_ALIGN;
  if (!current || rounded == 0) return NULL;
  ext_stack* s = &current->stack;
  if (!s->base) return take_piece(current, rounded);
  if (rounded > s->size - s->used) return NULL;
  s->used += rounded;
  return s->base + (s->used - rounded);
}

void ext_workspace_free(void* memory) {
  if (!memory || !current) return;
  ext_stack* s = &current->stack;
  if (s->base) {
    s->used = (size_t)((char*)memory - s->base);
    return;
  }
  piece* p = (piece*)memory - 1;
  s->used -= p->bytes;
  ext_heap_give(&current->instance->heap, p);
}

/* ------------------------------------------------------------------ the run itself */

int ext_run_here(ext_instance* m, const void* const* inputs, void* const* outputs) {
  ext_part* outer = current;
  current = &m->calls;
  void** before = ext_states_of(m, m->turn);
  void** after = ext_states_of(m, 1 - m->turn);
  int status = m->model->run(inputs, outputs, (const void* const*)before, after, m->arena);
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

int ext_raise_library(const char* region, const char* library, const char* composite, int status,
                      const char* text) {
  if (current)
    snprintf(current->instance->message, sizeof current->instance->message,
             "%s: library %s failed on %s: status %d (%s)", region, library, composite, status,
             text ? text : "no message");
  return BYOC_ERR_LIBRARY;
}
