/*
 * Memory of an instance, from what its options name.
 */
#include "heap.h"

void* ext_heap_take(const ext_heap* heap, size_t bytes) {
  size_t rounded = bytes ? ext_round_up(bytes) : EXT_ALIGN;
  void* memory = rounded ? heap->allocate(heap->heap, EXT_ALIGN, rounded) : NULL;
  if (memory && (uintptr_t)memory % EXT_ALIGN != 0) {
    heap->release(heap->heap, memory);
    return NULL;
  }
  return memory;
}

void ext_heap_give(const ext_heap* heap, void* memory) {
  if (memory) heap->release(heap->heap, memory);
}
