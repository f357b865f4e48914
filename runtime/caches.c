/* Sizes of the caches, which blocks of matrices are cut to. */
#include <unistd.h>

#include "kernels/public.h"

enum { USUAL_L2 = 1 << 20, USUAL_L3 = 32 << 20 };

/* What the system says, or the usual size where it says nothing or the constant is unknown. */
static int64_t size_of(int name, int64_t usual) {
  long found = name < 0 ? 0 : sysconf(name);
  return found > 0 ? (int64_t)found : usual;
}

#ifndef _SC_LEVEL2_CACHE_SIZE
#define _SC_LEVEL2_CACHE_SIZE -1
#define _SC_LEVEL3_CACHE_SIZE -1
#endif

static ext_caches caches = {USUAL_L2, USUAL_L3};

__attribute__((constructor)) static void look(void) {
  caches.l2 = size_of(_SC_LEVEL2_CACHE_SIZE, USUAL_L2);
  /* Large ones are shared with many cores, and virtual machines tell the sum of several. */
  int64_t l3 = size_of(_SC_LEVEL3_CACHE_SIZE, USUAL_L3);
  caches.l3 = l3 < USUAL_L3 ? l3 : USUAL_L3;
}

const ext_caches* ext_cache_sizes(void) {
  return &caches;
}
