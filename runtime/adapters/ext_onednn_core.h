/*
 * ext_onednn_core.h - what the adapter's files share: from a description of a primitive to its
 * cached plan and its execution.
 */
#ifndef EXT_ONEDNN_CORE_H_
#define EXT_ONEDNN_CORE_H_

#include <oneapi/dnnl/dnnl.h>

#include "ext_onednn.h"

/* The tensors that a call can have. */
typedef enum { SLOT_X, SLOT_WEIGHTS, SLOT_BIAS, SLOT_Y, SLOT_OTHER, SLOTS } slot;

/* A primitive while it is described.  After a failure `status` tells the first, and the other
 * functions do nothing. */
typedef struct {
  int status;
  dnnl_engine_t engine;
  int arguments[SLOTS]; /* DNNL_ARG_* */
  dnnl_memory_desc_t tensors[SLOTS];
  dnnl_memory_desc_t plain_weights; /* set where oneDNN chooses their format */
  dnnl_primitive_attr_t attributes;
  dnnl_post_ops_t post_ops;
  dnnl_primitive_desc_t primitive;
} draft;

/* One call.  `shape` is a struct of int64_t only: with the number of threads it is the key of the
 * plan, which `describe` makes where there is none yet. */
typedef struct request {
  void (*describe)(draft* d, const struct request* call);
  const void* shape;
  size_t shape_bytes;
  const ext_epilogue* epilogue; /* or NULL */
  const void* data[SLOTS];
} request;

/* Runs the call with the site's plan, which it makes first where there is none. */
int ext_onednn_run(ext_onednn_site* site, const request* call);

/* Adds a tensor; strides NULL: dense, row-major.  Gives its descriptor, which the draft owns. */
dnnl_memory_desc_t onednn_tensor(draft* d, slot where, int argument, int ndim, const int64_t* dims,
                                 const int64_t* strides);
/* Adds weights that lie with these strides; gives a descriptor that leaves oneDNN the choice. */
dnnl_memory_desc_t onednn_weights(draft* d, int ndim, const int64_t* dims, const int64_t* strides);
/* Adds a function to the results; EXT_IDENTITY adds nothing. */
void onednn_activation(draft* d, const ext_activation* f);
/* Adds a multiplication of the results, unless it is by 1. */
void onednn_scale(draft* d, float factor);
/* Adds activations and residual of an epilogue (not its bias); e may be NULL. */
void onednn_epilogue(draft* d, const ext_epilogue* e, int ndim, const int64_t* dims,
                     const int64_t* residual_strides);
/* The attributes of the primitive, complete. */
dnnl_primitive_attr_t onednn_attributes(draft* d);
/* Notes the status of a function of oneDNN. */
void onednn_check(draft* d, dnnl_status_t status);

/* A function as oneDNN has it; y = scale * algorithm(x). */
typedef struct {
  dnnl_alg_kind_t algorithm;
  float alpha, beta, scale;
} eltwise;
/* 0 where oneDNN has no such function. */
int ext_onednn_eltwise(const ext_activation* f, eltwise* found);

#endif /* EXT_ONEDNN_CORE_H_ */
