/*
 * Instances of a model: create, clone, run, destroy.
 *
 * Create runs the network once, on zeros and on the calling thread alone, to learn how much scratch
 * memory the parts of a run take at most, and then allocates that for each of them.  Where sizes
 * are chosen at run time, a run takes what it has not yet, and the next one finds it there.
 */
#include "instance.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_THREADS = 1024, PAGE = 4096 };
static const int64_t CAPACITY = 4096, MOST_CAPACITY = INT32_MAX;
/* Bytes between stacks in excess of whole pages: threads that use their stacks alike must not meet
 * in the same sets of a shared cache. */
static const size_t STAGGER = 5 * EXT_ALIGN;

static const char* const status_texts[] = {
    [BYOC_OK] = "done",
    [BYOC_ERR_ARGUMENT] = "an argument is missing or wrong",
    [BYOC_ERR_ALIGNMENT] = "a buffer is not aligned to the size of its elements",
    [BYOC_ERR_MEMORY] = "there is not enough memory",
    [BYOC_ERR_THREADS] = "the threads could not be started, or failed",
    [BYOC_ERR_CPU] = "BYOC_ISA names an instruction set that cannot be used",
    [BYOC_ERR_BUSY] = "the instance is running already; create one for each thread",
    [BYOC_ERR_INDEX] = "an input holds an index outside of the axis that it indexes",
    [BYOC_ERR_KERNEL] = "a kernel failed",
    [BYOC_ERR_LIBRARY] = "a kernel library is missing, or failed",
    [BYOC_ERR_FULL] = "states have no room for the rows that the run adds",
};

const char* ext_model_status_text(byoc_status status) {
  const size_t count = sizeof status_texts / sizeof *status_texts;
  return (size_t)status < count ? status_texts[status] : "unknown status";
}

/* ------------------------------------------------------------------ memory */

static void* default_allocate(void* heap, size_t alignment, size_t bytes) {
  (void)heap;
  return aligned_alloc(alignment, bytes);
}

static void default_release(void* heap, void* memory) {
  (void)heap;
  free(memory);
}

/* ------------------------------------------------------------------ create */

/* Where create says why it failed. */
typedef struct {
  const ext_model* model;
  const byoc_options* options;
} request;

__attribute__((format(printf, 3, 4))) static byoc_status refuse(const request* r,
                                                                byoc_status status,
                                                                const char* format, ...) {
  const byoc_options* o = r->options;
  if (!o || !o->message || o->message_size == 0) return status;
  int used = snprintf(o->message, o->message_size, "%s: ", r->model->name);
  if (used < 0 || (size_t)used >= o->message_size) return status;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(o->message + used, o->message_size - (size_t)used, format, arguments);
  va_end(arguments);
  return status;
}

static byoc_status no_memory(const request* r, const char* what, size_t bytes) {
  return refuse(r, BYOC_ERR_MEMORY, "no %zu bytes for %s", bytes, what);
}

static byoc_status check_options(request* r, byoc_options* o) {
  const byoc_options* given = r->options;
  *o = (byoc_options)BYOC_OPTIONS;
  if (given && given->size != sizeof *o) {
    r->options = NULL; /* its other fields may lie elsewhere */
    return BYOC_ERR_ARGUMENT;
  }
  if (given) *o = *given;
  if (o->message && o->message_size) o->message[0] = '\0';
  if (o->threads < 0 || o->threads > MOST_THREADS)
    return refuse(r, BYOC_ERR_ARGUMENT, "options.threads is %d; need 0 to %d", (int)o->threads,
                  MOST_THREADS);
  if (o->capacity < 0 || o->capacity > MOST_CAPACITY)
    return refuse(r, BYOC_ERR_ARGUMENT, "options.capacity is %lld; need 0 to %lld",
                  (long long)o->capacity, (long long)MOST_CAPACITY);
  if (!o->allocate != !o->release)
    return refuse(r, BYOC_ERR_ARGUMENT, "options.allocate and options.release: need both or none");
  if (!o->allocate) {
    o->allocate = default_allocate;
    o->release = default_release;
  }
  if (o->capacity == 0) o->capacity = CAPACITY;
  if (ext_isa_error()) return refuse(r, BYOC_ERR_CPU, "%s", ext_isa_error());
  if (o->threads == 0) o->threads = r->model->threads;
  if (o->threads == 0) o->threads = ext_core_count();
  return BYOC_OK;
}

/* The instance with its parts, its pool and the records of its threads, in one piece. */
static ext_instance* lay_out(const ext_model* model, const byoc_options* o, size_t* bytes) {
  const size_t tasks = (size_t)o->threads;
  const size_t parts_at = ext_round_up(sizeof(ext_instance));
  const size_t pool_at = parts_at + ext_round_up(tasks * sizeof(ext_part));
  const size_t sizes_at = pool_at + ext_round_up(sizeof(ext_pool));
  const size_t workers_at = sizes_at + ext_round_up(ext_sizes_bytes(model));
  const ext_heap heap = {o->allocate, o->release, o->heap};
  *bytes = workers_at + tasks * sizeof(ext_worker);
  char* memory = ext_heap_take(&heap, *bytes);
  if (!memory) return NULL;
  memset(memory, 0, *bytes);
  ext_instance* m = (ext_instance*)memory;
  m->model = model;
  m->heap = heap;
  m->capacity = o->capacity;
  m->workers = (ext_worker*)(memory + workers_at);
  pthread_mutex_init(&m->heap_mutex, NULL);
  ext_sizes_lay_out(m, memory + sizes_at);
  m->tasks = o->threads;
  m->parallel_for = o->parallel_for;
  m->pool = o->pool;
  m->parts = (ext_part*)(memory + parts_at);
  m->calls.instance = m;
  for (size_t i = 0; i < tasks; i++) m->parts[i] = (ext_part){.instance = m, .inside = 1};
  if (!m->parallel_for && tasks > 1) m->threads = (ext_pool*)(memory + pool_at);
  return m;
}

static byoc_status start_threads(ext_instance* m, const request* r) {
  if (!m->threads) return BYOC_OK;
  int problem = ext_pool_start(m->threads, m->workers, m->tasks - 1);
  if (problem) {
    m->threads = NULL;
    return refuse(r, BYOC_ERR_THREADS, "cannot start %d threads: %s", (int)m->tasks - 1,
                  strerror(problem));
  }
  m->process = getpid();
  m->parallel_for = ext_pool_run;
  m->pool = m->threads;
  return BYOC_OK;
}

/* Runs the network on zeros, each piece of scratch memory allocated by itself. */
static byoc_status measure(ext_instance* m, const request* r) {
  const ext_model* model = m->model;
  const size_t pointers =
      ext_round_up(sizeof(void*) * (size_t)(model->input_count + model->output_count));
  const size_t inputs = ext_bytes_of(model->inputs, model->input_count);
  const size_t total = pointers + inputs + ext_bytes_of(model->outputs, model->output_count);
  char* memory = ext_heap_take(&m->heap, total);
  if (!memory) return no_memory(r, "a first run", total);
  memset(memory, 0, pointers + inputs);
  void** buffers = (void**)memory;
  char* next = memory + pointers;
  for (int32_t i = 0; i < model->input_count + model->output_count; i++) {
    const int32_t output = i - model->input_count;
    buffers[i] = next;
    next += ext_round_up(output < 0 ? model->inputs[i].bytes : model->outputs[output].bytes);
  }
  m->serial = m->grows = 1;
  int status = ext_run_here(m, (const void* const*)buffers, buffers + model->input_count);
  m->serial = m->grows = 0;
  ext_states_clear(m);
  ext_heap_give(&m->heap, memory);
  if (status) refuse(r, (byoc_status)status, "the first run failed: %s", m->message);
  return (byoc_status)status;
}

/* The depth of the deepest stack of a task. */
static size_t deepest_task(const ext_instance* m) {
  size_t deepest = 0;
  for (int32_t i = 0; i < m->tasks; i++)
    if (m->parts[i].stack.deepest > deepest) deepest = m->parts[i].stack.deepest;
  return deepest;
}

/* Gives the run and every task a stack of these sizes: what that takes, or 0 where there is too
 * little, and then none has one. */
static int place_stacks(ext_instance* m, size_t own, size_t deepest, size_t* total) {
  const size_t step = (deepest + PAGE - 1) / PAGE * PAGE + STAGGER;
  *total = own + STAGGER + step * (size_t)m->tasks;
  m->scratch = ext_heap_take(&m->heap, *total);
  char* base = m->scratch;
  if (!base) own = deepest = 0;
  m->calls.stack = (ext_stack){.base = base, .size = own, .deepest = own};
  for (int32_t i = 0; i < m->tasks; i++)
    m->parts[i].stack = (ext_stack){.base = base ? base + own + STAGGER + step * (size_t)i : NULL,
                                    .size = deepest,
                                    .deepest = deepest};
  return base != NULL;
}

/* Gives every part a stack of the depth that has been measured. */
static byoc_status give_stacks(ext_instance* m, const request* r) {
  size_t total = 0;
  if (place_stacks(m, ext_round_up(m->calls.stack.deepest), deepest_task(m), &total))
    return BYOC_OK;
  return no_memory(r, "scratch", total);
}

/* Needs what another instance of the same model and options needs. */
static void measure_alike(ext_instance* m, const ext_instance* other) {
  m->calls.stack.deepest = other->calls.stack.size;
  m->parts[0].stack.deepest = other->parts[0].stack.size;
}

/* What a model with fixed shapes needs before it runs for the first time. */
static byoc_status take_fixed(ext_instance* m, const request* r) {
  size_t bytes = m->model->arena_bytes;
  m->arena = ext_heap_take(&m->heap, bytes);
  if (!m->arena) return no_memory(r, "the arena", bytes);
  return ext_states_take(m, &bytes) ? BYOC_OK : no_memory(r, "the states", bytes);
}

/* Makes an instance by options without defaults, `like` another one where that is not NULL. */
static byoc_status make(const request* r, const byoc_options* o, const ext_instance* like,
                        ext_instance** made) {
  const ext_model* model = r->model;
  byoc_status status = BYOC_OK;
  size_t bytes = 0;
  ext_instance* m = lay_out(model, o, &bytes);
  if (!m) return no_memory(r, "an instance", bytes);
  if (!m->sizes) status = take_fixed(m, r);
  if (!status && like) measure_alike(m, like);
  if (!status && !like && !m->sizes) status = measure(m, r);
  if (!status) status = give_stacks(m, r);
  m->grows = m->sizes != NULL;
  if (!status) status = start_threads(m, r);
  if (status) {
    ext_model_destroy(m);
    return status;
  }
  m->message[0] = '\0';
  *made = m;
  return BYOC_OK;
}

byoc_status ext_model_create(const ext_model* model, const byoc_options* options,
                             ext_instance** made) {
  request r = {model, options};
  byoc_options o;
  byoc_status status = check_options(&r, &o);
  if (made) *made = NULL;
  if (status) return status;
  if (!made) return refuse(&r, BYOC_ERR_ARGUMENT, "no place for the instance: model is NULL");
  return make(&r, &o, NULL, made);
}

/* Gives a clone the sizes of an instance, which keeps what goes wrong. */
static byoc_status take_sizes(ext_instance* made, ext_instance* m) {
  byoc_status status = ext_sizes_measure(m);
  if (!status) status = ext_states_fit(m);
  if (status) return status;
  memcpy(made->sizes, m->sizes, ((size_t)m->model->axis_count + 1) * sizeof *m->sizes);
  made->sized = 1;
  status = ext_sizes_measure(made);
  if (!status) status = ext_states_fit(made);
  memcpy(m->message, made->message, sizeof m->message);
  return status;
}

byoc_status ext_model_clone(ext_instance* m, ext_instance** made) {
  if (made) *made = NULL;
  if (!m) return BYOC_ERR_ARGUMENT;
  if (!ext_instance_enter(m)) return BYOC_ERR_BUSY;
  byoc_options o = BYOC_OPTIONS;
  o.threads = m->tasks;
  o.parallel_for = m->threads ? NULL : m->parallel_for;
  o.pool = m->threads ? NULL : m->pool;
  o.allocate = m->heap.allocate;
  o.release = m->heap.release;
  o.heap = m->heap.heap;
  o.message = m->message;
  o.message_size = sizeof m->message;
  o.capacity = m->capacity;
  m->message[0] = '\0';
  const request r = {m->model, &o};
  byoc_status status = BYOC_ERR_ARGUMENT;
  if (!made)
    refuse(&r, status, "no place for the clone: made is NULL");
  else
    status = make(&r, &o, m, made);
  if (!status && m->sized) status = take_sizes(*made, m);
  if (!status && m->kept) ext_states_copy(*made, m);
  if (status && made && *made) {
    ext_model_destroy(*made);
    *made = NULL;
  }
  ext_instance_leave(m);
  return status;
}

/* ------------------------------------------------------------------ run and destroy */

static byoc_status wrong_buffer(ext_instance* m, byoc_status status, const char* kind,
                                int32_t index, const byoc_tensor* tensor, const char* problem) {
  return ext_instance_fail(m, status, "%s %d (%.200s) %s", kind, (int)index, tensor->name, problem);
}

static byoc_status check_buffers(ext_instance* m, const char* kind, const byoc_tensor* tensors,
                                 int32_t count, const void* const* buffers) {
  for (int32_t i = 0; i < count; i++) {
    const byoc_tensor* t = &tensors[i];
    if (!buffers[i] && t->bytes) return wrong_buffer(m, BYOC_ERR_ARGUMENT, kind, i, t, "is NULL");
    if ((uintptr_t)buffers[i] % t->alignment != 0)
      return wrong_buffer(m, BYOC_ERR_ALIGNMENT, kind, i, t,
                          "is not aligned to the size of its elements");
  }
  return BYOC_OK;
}

static int overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

/* An output may share memory neither with an input nor with another output. */
static byoc_status check_overlaps(ext_instance* m, const void* const* inputs,
                                  void* const* outputs) {
  const byoc_tensor *takes = ext_inputs_of(m), *gives = ext_outputs_of(m);
  for (int32_t i = 0; i < m->model->output_count; i++) {
    const byoc_tensor* t = &gives[i];
    for (int32_t j = 0; j < m->model->input_count; j++)
      if (overlap(outputs[i], t->bytes, inputs[j], takes[j].bytes))
        return wrong_buffer(m, BYOC_ERR_ARGUMENT, "output", i, t, "overlaps an input");
    for (int32_t j = 0; j < i; j++)
      if (overlap(outputs[i], t->bytes, outputs[j], gives[j].bytes))
        return wrong_buffer(m, BYOC_ERR_ARGUMENT, "output", i, t, "overlaps another output");
  }
  return BYOC_OK;
}

static byoc_status check_call(ext_instance* m, const void* const* inputs, void* const* outputs) {
  const ext_model* model = m->model;
  if ((!inputs && model->input_count) || (!outputs && model->output_count))
    return ext_instance_fail(m, BYOC_ERR_ARGUMENT, "%s is NULL", inputs ? "outputs" : "inputs");
  byoc_status status = check_buffers(m, "input", ext_inputs_of(m), model->input_count, inputs);
  if (!status)
    status = check_buffers(m, "output", ext_outputs_of(m), model->output_count,
                           (const void* const*)outputs);
  return status ? status : check_overlaps(m, inputs, outputs);
}

/* More than asked for, where what is asked for grows from run to run. */
static size_t generous(size_t bytes) {
  return ext_round_up(bytes + bytes / 4);
}

/* Makes sure that an instance has the memory of a run with its sizes. */
static byoc_status fit(ext_instance* m) {
  const size_t arena = (size_t)m->needs.arena_bytes;
  if (!m->arena || arena > m->arena_bytes) {
    ext_heap_give(&m->heap, m->arena);
    m->arena_bytes = generous(arena);
    m->arena = ext_heap_take(&m->heap, m->arena_bytes);
    if (!m->arena)
      return ext_instance_fail(m, BYOC_ERR_MEMORY, "no %zu bytes for the arena", m->arena_bytes);
  }
  const size_t own = m->calls.stack.deepest, deepest = deepest_task(m);
  size_t total = 0;
  if (own > m->calls.stack.size || deepest > m->parts[0].stack.size) {
    ext_heap_give(&m->heap, m->scratch);
    if (!place_stacks(m, generous(own), generous(deepest), &total))
      return ext_instance_fail(m, BYOC_ERR_MEMORY, "no %zu bytes for scratch", total);
  }
  return ext_states_fit(m);
}

byoc_status ext_model_run(ext_instance* m, const void* const* inputs, void* const* outputs) {
  if (!m) return BYOC_ERR_ARGUMENT;
  if (!ext_instance_enter(m)) return BYOC_ERR_BUSY;
  m->message[0] = '\0';
  byoc_status status = m->sizes ? ext_sizes_measure(m) : BYOC_OK;
  if (!status) status = check_call(m, inputs, outputs);
  if (!status && m->sizes) status = ext_sizes_have_room(m);
  if (!status && m->sizes) status = fit(m);
  if (!status) {
    /* A forked child has the instance's memory, but not its threads. */
    m->serial = m->threads && getpid() != m->process;
    status = (byoc_status)ext_run_here(m, inputs, outputs);
    if (!status) ext_states_advance(m);
  }
  ext_instance_leave(m);
  return status;
}

const char* ext_model_error(const ext_instance* m) {
  return m ? m->message : "";
}

void ext_model_destroy(ext_instance* m) {
  if (!m) return;
  const ext_heap heap = m->heap;
  if (m->threads && m->process == getpid()) ext_pool_stop(m->threads);
  ext_heap_give(&heap, m->scratch);
  ext_heap_give(&heap, m->kept);
  ext_heap_give(&heap, m->arena);
  pthread_mutex_destroy(&m->heap_mutex);
  ext_heap_give(&heap, m);
}
