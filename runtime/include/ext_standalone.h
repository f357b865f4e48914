/*
 * ext_standalone.h - how the generated function of a model meets its plain C interface.
 *
 * Included by generated code only, in place of ext_tvm_entry.h.  The functions are those of
 * libext_standalone.a, which also has the thread pool and the scratch memory that kernels ask for.
 */
#ifndef EXT_STANDALONE_H_
#define EXT_STANDALONE_H_

#include <string.h>

#include "byoc_model.h"
#include "ext_extents.h"
#include "ext_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a run keeps of a state. */
enum {
  EXT_STATE_REPLACED = 0, /* it writes `after`, which is other memory than `before` */
  EXT_STATE_IN_PLACE = 1, /* `after` is `before`, and the run undoes what it did where it fails */
  EXT_STATE_GROWS = 2     /* it writes rows behind those that are there, the first axis' extent */
};

/* What a run with some sizes of the axes needs. */
typedef struct {
  int64_t* extents; /* of all axes of inputs, outputs and states, one after another */
  int64_t step;     /* rows that it adds to the states that grow */
  int64_t arena_bytes;
} ext_needs;

/* A model: constant, one per library. */
typedef struct {
  const char* name; /* begins messages */
  int32_t input_count, output_count, state_count, axis_count;
  const byoc_tensor* inputs;
  const byoc_tensor* outputs;
  const byoc_tensor* states;       /* what an instance keeps from run to run */
  const unsigned char* state_kind; /* of each, EXT_STATE_... */
  const byoc_axis* axes;           /* whose sizes are chosen at run time */
  int64_t most_rows;               /* that states may have which grow, before a run */
  size_t arena_bytes;              /* without such axes */
  int32_t threads;                 /* by default; 0: all cores */
  /* Tells what a run needs, by the sizes of the axes, behind which come the rows that states have.
   * Returns a byoc_status.  NULL without axes. */
  int (*measure)(const int64_t* sizes, ext_needs* needs);
  /* Computes; the buffers have been checked.  Reads states from `before`, and writes all of them to
   * `after`; where it fails, `before` is as it was.  Returns a byoc_status. */
  int (*run)(const void* const* inputs, void* const* outputs, const void* const* before,
             void* const* after, const int64_t* sizes, char* arena);
} ext_model;

typedef struct ext_instance ext_instance;

/* Bodies of the functions of NAME.h; `model` and `inputs` may be NULL where a caller's are. */
byoc_status ext_model_create(const ext_model* model, const byoc_options* options,
                             ext_instance** made);
byoc_status ext_model_run(ext_instance* instance, const void* const* inputs, void* const* outputs);
const char* ext_model_error(const ext_instance* instance);
const char* ext_model_status_text(byoc_status status);
void ext_model_destroy(ext_instance* instance);

/* Bodies of the functions that NAME.h has where the model keeps states. */
byoc_status ext_model_reset(ext_instance* instance);
byoc_status ext_model_clone(ext_instance* instance, ext_instance** made);
byoc_status ext_model_save(ext_instance* instance, void* const* states);
byoc_status ext_model_restore(ext_instance* instance, const void* const* states, int64_t rows);
int64_t ext_model_rows(const ext_instance* instance);

/* Bodies of the functions that NAME.h has where axes have sizes that are chosen at run time. */
byoc_status ext_model_resize(ext_instance* instance, const int64_t* sizes);
const byoc_tensor* ext_model_inputs(const ext_instance* instance, int32_t* count);
const byoc_tensor* ext_model_outputs(const ext_instance* instance, int32_t* count);
const byoc_tensor* ext_model_states(const ext_instance* instance, int32_t* count);

/* For the body, on the thread that runs it: keep a message for ext_model_error and return the
 * byoc_status that the body then returns.  `kind` is for TVM alone. */
int ext_raise(const char* kind, const char* message);
int ext_raise_status(const char* region, const char* operation, int status);
int ext_raise_negative(const char* region, const char* extent, int64_t value, const char* sizes);
int ext_raise_library(const char* region, const char* library, const char* composite, int status,
                      const char* text);

#ifdef __cplusplus
}
#endif
#endif /* EXT_STANDALONE_H_ */
