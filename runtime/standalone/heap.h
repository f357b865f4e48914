/*
 * heap.h - the memory of one instance, from the functions that create was given.
 */
#ifndef EXT_HEAP_H_
#define EXT_HEAP_H_

#include <stddef.h>
#include <stdint.h>

#include "../include/byoc_model.h"
#include "../include/ext_common.h"

typedef struct {
  byoc_allocate allocate;
  byoc_release release;
  void* heap;
} ext_heap;

/* A multiple of EXT_ALIGN, or 0 where that overflows. */
static inline size_t ext_round_up(size_t bytes) {
  return bytes > SIZE_MAX - EXT_ALIGN ? 0 : (bytes + EXT_ALIGN - 1) / EXT_ALIGN * EXT_ALIGN;
}

/* Memory aligned to EXT_ALIGN, or NULL. */
void* ext_heap_take(const ext_heap* heap, size_t bytes);
/* NULL is allowed. */
void ext_heap_give(const ext_heap* heap, void* memory);

#endif /* EXT_HEAP_H_ */
