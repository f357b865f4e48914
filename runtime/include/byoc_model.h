/*
 * byoc_model.h - what all models compiled by `byoc compile --emit standalone` share.
 *
 * A model is a C library without dependencies: its weights and kernels are inside.  Each comes with
 * a header of its own, NAME.h, that declares these functions:
 *
 *   const byoc_tensor* NAME_inputs(int32_t* count);       what it takes, in the order of NAME_run
 *   const byoc_tensor* NAME_outputs(int32_t* count);      what it gives
 *   byoc_status NAME_create(const byoc_options* options, NAME_model** model);
 *   byoc_status NAME_run(NAME_model* model, const void* const* inputs, void* const* outputs);
 *   const char* NAME_error(const NAME_model* model);      what was wrong with the last run
 *   const char* NAME_status_text(byoc_status status);
 *   void NAME_destroy(NAME_model* model);
 *
 * and, where the model keeps states from one run to the next, these:
 *
 *   const byoc_tensor* NAME_states(int32_t* count);
 *   byoc_status NAME_reset(NAME_model* model);            zeros in all states, as at first
 *   byoc_status NAME_clone(NAME_model* model, NAME_model** made);
 *   byoc_status NAME_save(NAME_model* model, void* const* states);
 *   byoc_status NAME_restore(NAME_model* model, const void* const* states);
 *
 * and, where axes have sizes that are chosen at run time, these:
 *
 *   const byoc_axis* NAME_axes(int32_t* count);
 *   byoc_status NAME_resize(NAME_model* model, const int64_t* sizes);  [NAME_AXES], of all axes,
 *                                                                      in their order
 *   const byoc_tensor* NAME_inputs_of(const NAME_model* model, int32_t* count);  with these sizes
 *   const byoc_tensor* NAME_outputs_of(const NAME_model* model, int32_t* count);
 *   const byoc_tensor* NAME_states_of(const NAME_model* model, int32_t* count);
 *
 * Where states grow from run to run, NAME_restore has one argument more, `int64_t rows`, and
 * `int64_t NAME_rows(const NAME_model* model)` tells how many there are.
 *
 * NAME_create gives an instance: the memory that one run needs, and threads.  Instances share the
 * weights.  Different instances may run at the same time; one instance runs once at a time.  All
 * memory is taken by NAME_create and NAME_clone and given back by NAME_destroy; NAME_run takes
 * none, but where axes have sizes that are chosen at run time.
 *
 * Functions return BYOC_OK (0) or a code that says what kind of thing was wrong.  The header is
 * plain C11 and C++.
 */
#ifndef BYOC_MODEL_H_
#define BYOC_MODEL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __GNUC__
#define BYOC_API __attribute__((visibility("default")))
#else
#define BYOC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; a model's own is checked by its NAME.h. */
#define BYOC_MODEL_VERSION 2
/* Buffers run fastest at this alignment (bytes); byoc_tensor tells what they need. */
#define BYOC_BEST_ALIGNMENT 64

typedef enum {
  BYOC_OK = 0,
  BYOC_ERR_ARGUMENT = 1,  /* NULL, an option that does not exist, buffers that overlap */
  BYOC_ERR_ALIGNMENT = 2, /* a buffer is not aligned to the size of its elements */
  BYOC_ERR_MEMORY = 3,    /* there is not enough memory */
  BYOC_ERR_THREADS = 4,   /* threads could not be started, or parallel_for failed */
  BYOC_ERR_CPU = 5,       /* the environment variable BYOC_ISA cannot be honoured */
  BYOC_ERR_BUSY = 6,      /* the instance is running already, in another thread */
  BYOC_ERR_INDEX = 7,     /* an input holds an index outside of the axis that it indexes */
  BYOC_ERR_KERNEL = 8,    /* a kernel failed for another reason */
  BYOC_ERR_LIBRARY = 9,   /* a kernel library is missing, or failed */
  BYOC_ERR_FULL = 10      /* states have no room for the rows that the run adds */
} byoc_status;

typedef enum {
  BYOC_FLOAT32 = 0,
  BYOC_INT32 = 1,
  BYOC_INT64 = 2,
  BYOC_BOOL = 3, /* one byte, 0 or 1 */
  BYOC_INT8 = 4,
  BYOC_UINT8 = 5,
  BYOC_FLOAT16 = 6, /* uint16_t in C: the bits of an IEEE 754 binary16 */
  BYOC_BFLOAT16 = 7 /* uint16_t in C: the upper half of a float's bits */
} byoc_dtype;

/* An input, an output or a state: a dense array, the last axis fastest.  As long as an axis has no
 * size its extent is -1, and the bytes are 0. */
typedef struct {
  const char* name; /* as in the ONNX model, UTF-8 */
  byoc_dtype dtype;
  int32_t ndim;
  const int64_t* shape; /* [ndim] */
  size_t bytes;         /* size of the buffer */
  size_t alignment;     /* bytes that its address must be a multiple of */
} byoc_tensor;

/* The length that an array has at least, where a parameter is declared: compilers of C warn of
 * arrays that are shorter.  C++ has no word for it. */
#ifdef __cplusplus
#define BYOC_AT_LEAST(count)
#else
#define BYOC_AT_LEAST(count) static count
#endif

/* An axis whose size is chosen at run time, shared by all tensors that have it. */
typedef struct {
  const char* name; /* an identifier */
  int64_t least, most;
} byoc_axis;

/* A part of a run: call it once for each index in [0, tasks). */
typedef void (*byoc_task)(void* context, int32_t index);

/* Calls task(context, index) for every index in [0, tasks), on any threads, at once or one after
 * another, and returns when all are done: 0, or another number if that failed.  `pool` is the
 * options' own. */
typedef int (*byoc_parallel_for)(void* pool, int32_t tasks, byoc_task task, void* context);

/* Memory of `bytes` bytes (a multiple of `alignment`, a power of two), or NULL. */
typedef void* (*byoc_allocate)(void* heap, size_t alignment, size_t bytes);
typedef void (*byoc_release)(void* heap, void* memory);

/* Zero in every field but `size` means the default.  Begin with BYOC_OPTIONS. */
typedef struct {
  size_t size;     /* sizeof(byoc_options) */
  int32_t threads; /* 0: what the model was compiled for, else all cores; 1: no threads */
  byoc_parallel_for parallel_for; /* NULL: threads of the instance's own, `threads` - 1 of them */
  void* pool;                     /* for parallel_for */
  byoc_allocate allocate;         /* NULL: aligned_alloc; called by NAME_create and NAME_clone */
  byoc_release release;           /* NULL: free; called by these and NAME_destroy */
  void* heap;                     /* for allocate and release */
  char* message;                  /* NULL, or where NAME_create writes why it failed */
  size_t message_size;            /* bytes of it; text that is longer is cut */
  int64_t capacity;               /* rows that states can have which grow; 0: 4096 */
} byoc_options;

#define BYOC_OPTIONS {sizeof(byoc_options), 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0}

#ifdef __cplusplus
}
#endif
#endif /* BYOC_MODEL_H_ */
