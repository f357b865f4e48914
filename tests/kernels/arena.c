/*
 * Memory for numpy's arrays inside a given range of addresses, which two processes share.
 *
 * Blocks are powers of two of bytes with a header before them; a freed one waits in the list of its
 * size.  numpy calls this with the GIL held (its enhancement proposal 49), so that nothing here is
 * locked.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { HEADER = 64, CLASSES = 40, LARGE = 1 << 20 };

/* PyDataMemAllocator and PyDataMem_Handler of numpy/ndarraytypes.h, which needs Python.h. */
typedef struct {
  void* context;
  void* (*malloc)(void* context, size_t size);
  void* (*calloc)(void* context, size_t count, size_t size);
  void* (*realloc)(void* context, void* block, size_t size);
  void (*free)(void* context, void* block, size_t size);
} allocator;

typedef struct {
  char name[127];
  uint8_t version;
  allocator functions;
} handler;

typedef union header {
  union header* next; /* of a free block */
  size_t class;       /* of one in use: 2^class bytes with the header */
} header;

static char *unused, *limit;
static header* free_blocks[CLASSES];

static void* take(void* context, size_t size) {
  (void)context;
  size_t class = 7;
  while (class < CLASSES && ((size_t)1 << class) - HEADER < size) class ++;
  if (class == CLASSES) return NULL;
  header* block = free_blocks[class];
  if (block) {
    free_blocks[class] = block->next;
  } else {
    if ((size_t)(limit - unused) < (size_t)1 << class) return NULL;
    block = (header*)unused;
    unused += (size_t)1 << class;
  }
  block->class = class;
  return (char*)block + HEADER;
}

static header* header_of(void* block) {
  return (header*)((char*)block - HEADER);
}

static void give_back(void* context, void* block, size_t size) {
  (void)context, (void)size;
  if (!block) return;
  header* h = header_of(block);
  size_t class = h->class, bytes = (size_t)1 << class;
  enum { PAGE = 4096 };
  uintptr_t first = ((uintptr_t)block + PAGE - 1) / PAGE * PAGE, past = (uintptr_t)h + bytes;
  if (bytes >= LARGE) madvise((void*)first, past / PAGE * PAGE - first, MADV_REMOVE);
  h->next = free_blocks[class];
  free_blocks[class] = h;
}

static void* take_zeroed(void* context, size_t count, size_t size) {
  size_t bytes = count * size;
  void* block = size && bytes / size != count ? NULL : take(context, bytes);
  if (block) memset(block, 0, bytes);
  return block;
}

static void* resize(void* context, void* block, size_t size) {
  if (!block) return take(context, size);
  size_t room = ((size_t)1 << header_of(block)->class) - HEADER;
  if (size <= room) return block;
  void* other = take(context, size);
  if (!other) return NULL;
  memcpy(other, block, room);
  give_back(context, block, room);
  return other;
}

/* The handler that numpy is to use; the range lasts for as long as the process. */
const handler* arena_handler(void* begin, size_t bytes) {
  static handler h = {"shared_arena", 1, {NULL, take, take_zeroed, resize, give_back}};
  unused = begin;
  limit = unused + bytes;
  return &h;
}
