/*
 * Plans: what oneDNN prepares for one call at one shape, kept in the call's site.
 *
 * Plans and copied weights are only ever added, at the head of a list, under one lock; a call that
 * finds its plan takes no lock.  Memory objects and scratchpads belong to the running call, so that
 * threads can run one plan at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ext_onednn_core.h"

/* Shapes that a site keeps a plan for.  A call of a further shape makes one for itself, which
 * oneDNN's own cache of primitives makes cheaper. */
#define MAX_PLANS 16
#define LEAST_MINOR 2 /* of version 3 */

/* Statuses from here on are those of oneDNN; an ext_status is less. */
#define FIRST_STATUS 100
#define STATUS_VERSION 90
#define STATUS_THREADS 91

typedef struct plan {
  struct plan* next;
  int threads, count; /* count: plans of the site up to this one */
  void* shape;
  size_t shape_bytes;
  dnnl_primitive_t primitive;
  int arguments[SLOTS];
  dnnl_memory_desc_t tensors[SLOTS];
  const void* weights; /* in oneDNN's format; NULL: the caller's */
  dnnl_memory_desc_t scratch;
} plan;

typedef struct packed {
  struct packed* next;
  dnnl_memory_desc_t format;
  void* data;
} packed;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static dnnl_engine_t engine; /* set once, as are the next */

/* Functions of OpenMP, NULL where this oneDNN has no threads. */
static struct {
  void (*set_num_threads)(int);
  int (*get_max_threads)(void);
  int (*get_thread_limit)(void);
  int (*in_parallel)(void);
  int (*get_dynamic)(void);
  void (*set_dynamic)(int);
} omp;

static int own_status(dnnl_status_t status) {
  if (status == dnnl_success) return EXT_OK;
  return status == dnnl_out_of_memory ? EXT_ERR_MEMORY : FIRST_STATUS + (int)status;
}

const char* ext_onednn_status_text(int status) {
  switch (status) {
    case STATUS_VERSION: return "this oneDNN is not version 3.2 or a later 3";
    case STATUS_THREADS: return "this oneDNN has threads other than OpenMP's";
    case FIRST_STATUS + dnnl_invalid_arguments: return "oneDNN: invalid arguments";
    case FIRST_STATUS + dnnl_unimplemented: return "oneDNN: no implementation for this shape";
    case FIRST_STATUS + dnnl_runtime_error: return "oneDNN: an error while running";
    default: return status < FIRST_STATUS ? ext_status_string(status) : "oneDNN: failed";
  }
}

/* ------------------------------------------------------------------ engine and threads */

/* The functions of the OpenMP runtime that this oneDNN uses, of which a process may have several:
 * found among the dependencies of the file that holds oneDNN's data. */
static void find_openmp(void) {
  Dl_info own;
  void* handle = NULL;
  if (dladdr(dnnl_version(), &own) != 0 && own.dli_fname != NULL)
    handle = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == NULL) return;
  omp.set_num_threads = (void (*)(int))dlsym(handle, "omp_set_num_threads");
  omp.get_max_threads = (int (*)(void))dlsym(handle, "omp_get_max_threads");
  omp.get_thread_limit = (int (*)(void))dlsym(handle, "omp_get_thread_limit");
  omp.in_parallel = (int (*)(void))dlsym(handle, "omp_in_parallel");
  omp.get_dynamic = (int (*)(void))dlsym(handle, "omp_get_dynamic");
  omp.set_dynamic = (void (*)(int))dlsym(handle, "omp_set_dynamic");
  dlclose(handle);
  if (omp.set_num_threads == NULL || omp.get_max_threads == NULL || omp.get_thread_limit == NULL ||
      omp.in_parallel == NULL || omp.get_dynamic == NULL || omp.set_dynamic == NULL)
    memset(&omp, 0, sizeof(omp));
}

static int start(void) {
  if (__atomic_load_n(&engine, __ATOMIC_ACQUIRE) != NULL) return EXT_OK;
  const dnnl_version_t* version = dnnl_version();
  if (version->major != DNNL_VERSION_MAJOR || version->minor < LEAST_MINOR) return STATUS_VERSION;
  pthread_mutex_lock(&mutex);
  int status = EXT_OK;
  if (engine == NULL) {
    dnnl_engine_t made = NULL;
    const unsigned runtime = version->cpu_runtime;
    if (runtime == DNNL_RUNTIME_OMP) find_openmp();
    if (runtime != DNNL_RUNTIME_SEQ && omp.set_num_threads == NULL) status = STATUS_THREADS;
    if (status == EXT_OK) status = own_status(dnnl_engine_create(&made, dnnl_cpu, 0));
    __atomic_store_n(&engine, made, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&mutex);
  return status;
}

/* A plan counts on its number of threads: with fewer, oneDNN leaves a part of the result as it was,
 * without an error.  So OpenMP is asked only for as many as it will surely give to this thread. */
static int settle_threads(int wanted) {
  if (omp.set_num_threads == NULL) return 1;
  const int limit = omp.in_parallel() ? 1 : omp.get_thread_limit();
  const int threads = wanted < 1 ? 1 : wanted < limit ? wanted : limit;
  if (omp.get_dynamic()) omp.set_dynamic(0);
  if (omp.get_max_threads() != threads) omp.set_num_threads(threads);
  return threads;
}

void ext_onednn_set_threads(int threads) {
  if (start() == EXT_OK) settle_threads(threads);
}

int ext_onednn_get_threads(void) {
  if (start() != EXT_OK || omp.get_max_threads == NULL) return 1;
  return settle_threads(omp.get_max_threads());
}

/* ------------------------------------------------------------------ drafts */

void onednn_check(draft* d, dnnl_status_t status) {
  if (d->status == EXT_OK) d->status = own_status(status);
}

static dnnl_memory_desc_t make_desc(draft* d, int ndim, const int64_t* dims,
                                    const int64_t* strides) {
  dnnl_memory_desc_t made = NULL;
  dnnl_dims_t dense;
  if (d->status != EXT_OK) return NULL;
  if (strides == NULL) {
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; --i) {
      dense[i] = step;
      step *= dims[i];
    }
    strides = dense;
  }
  onednn_check(d, dnnl_memory_desc_create_with_strides(&made, ndim, dims, dnnl_f32, strides));
  return made;
}

dnnl_memory_desc_t onednn_tensor(draft* d, slot where, int argument, int ndim, const int64_t* dims,
                                 const int64_t* strides) {
  d->arguments[where] = argument;
  return d->tensors[where] = make_desc(d, ndim, dims, strides);
}

dnnl_memory_desc_t onednn_weights(draft* d, int ndim, const int64_t* dims, const int64_t* strides) {
  dnnl_memory_desc_t any = NULL;
  d->plain_weights = make_desc(d, ndim, dims, strides);
  if (d->status != EXT_OK) return NULL;
  onednn_check(d,
               dnnl_memory_desc_create_with_tag(&any, ndim, dims, dnnl_f32, dnnl_format_tag_any));
  d->arguments[SLOT_WEIGHTS] = DNNL_ARG_WEIGHTS;
  return d->tensors[SLOT_WEIGHTS] = any;
}

int ext_onednn_eltwise(const ext_activation* f, eltwise* found) {
  *found = (eltwise){dnnl_alg_kind_undef, 0.0f, 0.0f, 1.0f};
  switch (f->kind) {
    case EXT_RELU: found->algorithm = dnnl_eltwise_relu; break;
    case EXT_CLIP: *found = (eltwise){dnnl_eltwise_clip, f->alpha, f->beta, 1.0f}; break;
    case EXT_SIGMOID: found->algorithm = dnnl_eltwise_logistic; break;
    case EXT_SILU: *found = (eltwise){dnnl_eltwise_swish, 1.0f, 0.0f, 1.0f}; break;
    case EXT_HARD_SIGMOID:
      *found = (eltwise){dnnl_eltwise_hardsigmoid, f->alpha, f->beta, 1.0f};
      break;
    case EXT_HARD_SWISH: *found = (eltwise){dnnl_eltwise_hardswish, 1.0f / 6.0f, 0.5f, 1.0f}; break;
    case EXT_GELU: found->algorithm = dnnl_eltwise_gelu_erf; break;
    case EXT_GELU_TANH: found->algorithm = dnnl_eltwise_gelu_tanh; break;
    case EXT_TANH: found->algorithm = dnnl_eltwise_tanh; break;
    case EXT_LEAKY_RELU: *found = (eltwise){dnnl_eltwise_relu, f->alpha, 0.0f, 1.0f}; break;
    case EXT_EXP: found->algorithm = dnnl_eltwise_exp; break;
    case EXT_LOG: found->algorithm = dnnl_eltwise_log; break;
    case EXT_SQRT: found->algorithm = dnnl_eltwise_sqrt; break;
    case EXT_RSQRT: *found = (eltwise){dnnl_eltwise_pow, 1.0f, -0.5f, 1.0f}; break;
    case EXT_ABS: found->algorithm = dnnl_eltwise_abs; break;
    case EXT_NEG: *found = (eltwise){dnnl_eltwise_linear, -1.0f, 0.0f, 1.0f}; break;
    case EXT_ELU: *found = (eltwise){dnnl_eltwise_elu, f->alpha, 0.0f, 1.0f}; break;
    case EXT_SELU: *found = (eltwise){dnnl_eltwise_elu, 1.6732632f, 0.0f, 1.0507010f}; break;
    case EXT_MISH: found->algorithm = dnnl_eltwise_mish; break;
    case EXT_SOFTPLUS: *found = (eltwise){dnnl_eltwise_soft_relu, 1.0f, 0.0f, 1.0f}; break;
    case EXT_ROUND: found->algorithm = dnnl_eltwise_round; break;
    case EXT_RECIPROCAL: *found = (eltwise){dnnl_eltwise_pow, 1.0f, -1.0f, 1.0f}; break;
    default: return 0;
  }
  return 1;
}

static void start_post_ops(draft* d) {
  if (d->status == EXT_OK && d->post_ops == NULL)
    onednn_check(d, dnnl_post_ops_create(&d->post_ops));
}

void onednn_activation(draft* d, const ext_activation* f) {
  eltwise found;
  if (f->kind == EXT_IDENTITY) return;
  start_post_ops(d);
  if (d->status == EXT_OK && !ext_onednn_eltwise(f, &found)) d->status = EXT_ERR_ARGUMENT;
  if (d->status != EXT_OK) return;
  onednn_check(d,
               dnnl_post_ops_append_eltwise(d->post_ops, found.algorithm, found.alpha, found.beta));
  onednn_scale(d, found.scale);
}

void onednn_scale(draft* d, float factor) {
  if (factor == 1.0f) return;
  start_post_ops(d);
  if (d->status == EXT_OK)
    onednn_check(d, dnnl_post_ops_append_eltwise(d->post_ops, dnnl_eltwise_linear, factor, 0.0f));
}

void onednn_epilogue(draft* d, const ext_epilogue* e, int ndim, const int64_t* dims,
                     const int64_t* residual_strides) {
  if (e == NULL) return;
  onednn_activation(d, &e->before);
  if (e->residual != NULL) {
    start_post_ops(d);
    const int position = d->status == EXT_OK ? dnnl_post_ops_len(d->post_ops) : 0;
    const int argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(position) | DNNL_ARG_SRC_1;
    dnnl_memory_desc_t tensor =
        onednn_tensor(d, SLOT_OTHER, argument, ndim, dims, residual_strides);
    if (d->status == EXT_OK)
      onednn_check(d, dnnl_post_ops_append_binary(d->post_ops, dnnl_binary_add, tensor));
  }
  onednn_activation(d, &e->after);
}

dnnl_primitive_attr_t onednn_attributes(draft* d) {
  if (d->status == EXT_OK) onednn_check(d, dnnl_primitive_attr_create(&d->attributes));
  if (d->status == EXT_OK)
    onednn_check(d,
                 dnnl_primitive_attr_set_scratchpad_mode(d->attributes, dnnl_scratchpad_mode_user));
  if (d->status == EXT_OK && d->post_ops != NULL)
    onednn_check(d, dnnl_primitive_attr_set_post_ops(d->attributes, d->post_ops));
  return d->attributes;
}

static void drop_draft(draft* d) {
  for (int i = 0; i < SLOTS; ++i) {
    if (d->tensors[i] != NULL) dnnl_memory_desc_destroy(d->tensors[i]);
  }
  if (d->plain_weights != NULL) dnnl_memory_desc_destroy(d->plain_weights);
  if (d->attributes != NULL) dnnl_primitive_attr_destroy(d->attributes);
  if (d->post_ops != NULL) dnnl_post_ops_destroy(d->post_ops);
  if (d->primitive != NULL) dnnl_primitive_desc_destroy(d->primitive);
}

/* ------------------------------------------------------------------ execution */

/* Runs a primitive on tensors (SLOTS of them, NULL descriptors skipped) and a scratchpad. */
static int execute(dnnl_primitive_t primitive, const int* arguments,
                   const dnnl_memory_desc_t* tensors, const void* const* data, int count,
                   const_dnnl_memory_desc_t scratch) {
  dnnl_exec_arg_t passed[SLOTS + 1];
  dnnl_stream_t stream = NULL;
  int used = 0;
  const size_t bytes = scratch == NULL ? 0 : dnnl_memory_desc_get_size(scratch);
  void* memory = bytes > 0 ? ext_workspace_alloc(bytes) : NULL;
  if (bytes > 0 && memory == NULL) return EXT_ERR_MEMORY;
  dnnl_status_t status = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
  for (int i = 0; i <= count && status == dnnl_success; ++i) {
    const_dnnl_memory_desc_t desc = i < count ? tensors[i] : bytes > 0 ? scratch : NULL;
    if (desc == NULL) continue;
    passed[used].arg = i < count ? arguments[i] : DNNL_ARG_SCRATCHPAD;
    void* where = i < count ? (void*)data[i] : memory;
    status = dnnl_memory_create(&passed[used].memory, desc, engine, where);
    used += status == dnnl_success;
  }
  if (status == dnnl_success) status = dnnl_primitive_execute(primitive, stream, used, passed);
  if (status == dnnl_success) status = dnnl_stream_wait(stream);
  while (used > 0) dnnl_memory_destroy(passed[--used].memory);
  if (stream != NULL) dnnl_stream_destroy(stream);
  if (memory != NULL) ext_workspace_free(memory);
  return own_status(status);
}

static int run_plan(const plan* p, const request* call) {
  const void* data[SLOTS];
  memcpy(data, call->data, sizeof(data));
  if (p->weights != NULL) data[SLOT_WEIGHTS] = p->weights;
  return execute(p->primitive, p->arguments, p->tensors, data, SLOTS, p->scratch);
}

/* ------------------------------------------------------------------ weights */

static int reorder(dnnl_memory_desc_t from, dnnl_memory_desc_t to, const void* x, void* y) {
  dnnl_primitive_desc_t desc = NULL;
  dnnl_primitive_t primitive = NULL;
  dnnl_status_t status = dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, NULL);
  if (status == dnnl_success) status = dnnl_primitive_create(&primitive, desc);
  if (desc != NULL) dnnl_primitive_desc_destroy(desc);
  if (status != dnnl_success) return own_status(status);
  const int arguments[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
  const dnnl_memory_desc_t tensors[] = {from, to};
  const void* const data[] = {x, y};
  const int result = execute(primitive, arguments, tensors, data, 2, NULL);
  dnnl_primitive_destroy(primitive);
  return result;
}

/* The site's weights in a format, copied once; NULL and a status where that fails. */
static const void* packed_weights(ext_onednn_site* site, draft* d, const void* plain) {
  const dnnl_memory_desc_t wanted = d->tensors[SLOT_WEIGHTS];
  if (dnnl_memory_desc_equal(wanted, d->plain_weights)) return plain;
  for (packed* known = site->weights; known != NULL; known = known->next) {
    if (dnnl_memory_desc_equal(wanted, known->format)) return known->data;
  }
  const size_t bytes = (dnnl_memory_desc_get_size(wanted) + EXT_ALIGN - 1) / EXT_ALIGN * EXT_ALIGN;
  packed* made = calloc(1, sizeof(*made));
  void* data = aligned_alloc(EXT_ALIGN, bytes);
  if (made == NULL || data == NULL) d->status = EXT_ERR_MEMORY;
  if (d->status == EXT_OK) onednn_check(d, dnnl_memory_desc_clone(&made->format, wanted));
  if (d->status == EXT_OK) d->status = reorder(d->plain_weights, wanted, plain, data);
  if (d->status != EXT_OK) {
    if (made != NULL && made->format != NULL) dnnl_memory_desc_destroy(made->format);
    free(data);
    free(made);
    return NULL;
  }
  made->data = data;
  made->next = site->weights;
  site->weights = made;
  return data;
}

/* ------------------------------------------------------------------ plans */

static void drop_plan(plan* p) {
  for (int i = 0; i < SLOTS; ++i) {
    if (p->tensors[i] != NULL) dnnl_memory_desc_destroy(p->tensors[i]);
  }
  if (p->scratch != NULL) dnnl_memory_desc_destroy(p->scratch);
  if (p->primitive != NULL) dnnl_primitive_destroy(p->primitive);
  free(p->shape);
  free(p);
}

static plan* find_plan(const ext_onednn_site* site, const request* call, int threads) {
  for (plan* p = __atomic_load_n(&site->plans, __ATOMIC_ACQUIRE); p != NULL; p = p->next) {
    if (p->threads == threads && memcmp(p->shape, call->shape, p->shape_bytes) == 0) return p;
  }
  return NULL;
}

/* Takes over what the primitive needs at each call. */
static void finish_plan(plan* p, draft* d, ext_onednn_site* site, const request* call) {
  const_dnnl_memory_desc_t scratch, weights;
  onednn_check(d, dnnl_primitive_create(&p->primitive, d->primitive));
  if (d->status != EXT_OK) return;
  scratch = dnnl_primitive_desc_query_md(d->primitive, dnnl_query_scratchpad_md, 0);
  if (scratch != NULL && dnnl_memory_desc_get_size(scratch) > 0)
    onednn_check(d, dnnl_memory_desc_clone(&p->scratch, scratch));
  if (d->plain_weights != NULL) {
    weights = dnnl_primitive_desc_query_md(d->primitive, dnnl_query_weights_md, 0);
    dnnl_memory_desc_destroy(d->tensors[SLOT_WEIGHTS]);
    d->tensors[SLOT_WEIGHTS] = NULL;
    onednn_check(d, dnnl_memory_desc_clone(&d->tensors[SLOT_WEIGHTS], weights));
    if (d->status == EXT_OK) p->weights = packed_weights(site, d, call->data[SLOT_WEIGHTS]);
  }
  memcpy(p->arguments, d->arguments, sizeof(p->arguments));
  memcpy(p->tensors, d->tensors, sizeof(p->tensors));
  memset(d->tensors, 0, sizeof(d->tensors));
}

static plan* make_plan(ext_onednn_site* site, const request* call, int threads, int* status) {
  draft d = {.engine = engine};
  plan* p = calloc(1, sizeof(*p));
  void* shape = malloc(call->shape_bytes);
  if (p == NULL || shape == NULL) {
    free(p);
    free(shape);
    *status = EXT_ERR_MEMORY;
    return NULL;
  }
  p->shape = memcpy(shape, call->shape, call->shape_bytes);
  p->shape_bytes = call->shape_bytes;
  p->threads = threads;
  call->describe(&d, call);
  if (d.status == EXT_OK) finish_plan(p, &d, site, call);
  drop_draft(&d);
  *status = d.status;
  if (d.status == EXT_OK) return p;
  drop_plan(p);
  return NULL;
}

int ext_onednn_run(ext_onednn_site* site, const request* call) {
  int status = start();
  if (status != EXT_OK) return status;
  if (call->epilogue != NULL && call->epilogue->residual != NULL &&
      call->epilogue->residual == call->data[SLOT_Y])
    return EXT_ERR_ARGUMENT;
  const int threads = ext_onednn_get_threads();
  plan* p = find_plan(site, call, threads);
  if (p != NULL) return run_plan(p, call);
  pthread_mutex_lock(&mutex);
  p = find_plan(site, call, threads);
  int kept = p != NULL;
  if (p == NULL && (p = make_plan(site, call, threads, &status)) != NULL) {
    plan* newest = site->plans;
    p->next = newest;
    p->count = newest == NULL ? 1 : newest->count + 1;
    kept = p->count <= MAX_PLANS;
    if (kept) __atomic_store_n(&site->plans, p, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&mutex);
  if (p == NULL) return status;
  status = run_plan(p, call);
  if (!kept) drop_plan(p);
  return status;
}
