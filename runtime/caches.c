/* Sizes of the caches, which blocks of matrices are cut to. */
#include <stdio.h>
#include <unistd.h>

#include "kernels/public.h"

#if defined(__aarch64__) /* cores of phones and single-board computers among them */
enum { USUAL_L2 = 512 << 10, USUAL_L3 = 4 << 20 };
#else
enum { USUAL_L2 = 1 << 20, USUAL_L3 = 32 << 20 };
#endif
enum { USUAL_L1 = 32 << 10, MOST_L3 = 32 << 20 };

#ifndef _SC_LEVEL2_CACHE_SIZE
#define _SC_LEVEL1_DCACHE_SIZE -1
#define _SC_LEVEL2_CACHE_SIZE -1
#define _SC_LEVEL3_CACHE_SIZE -1
#endif

/* A number in a file of Linux's list of the first core's caches, times 1024 where a K follows it;
 * 0 where there is none. */
static int64_t number_in(int index, const char* file) {
  char path[80], unit = 0;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, file);
  FILE* f = fopen(path, "r");
  if (!f) return 0;
  long long found = 0;
  if (fscanf(f, "%lld%c", &found, &unit) < 1) found = 0;
  fclose(f);
  return unit == 'K' ? found * 1024 : found;
}

/* What the C library says, or else Linux, or the usual size.  Caches from L2 on are unified,
 * and the first one of L1 is that of data. */
static int64_t size_of(int name, int level, int64_t usual) {
  long found = name < 0 ? 0 : sysconf(name);
  if (found > 0) return found;
  for (int i = 0; i < 8; i++) {
    int64_t size = number_in(i, "level") == level ? number_in(i, "size") : 0;
    if (size > 0) return size;
  }
  return usual;
}

static ext_caches caches = {USUAL_L1, USUAL_L2, USUAL_L3};

__attribute__((constructor)) static void look(void) {
  caches.l1 = size_of(_SC_LEVEL1_DCACHE_SIZE, 1, USUAL_L1);
  caches.l2 = size_of(_SC_LEVEL2_CACHE_SIZE, 2, USUAL_L2);
  /* Large ones are shared with many cores, and virtual machines tell the sum of several. */
  int64_t l3 = size_of(_SC_LEVEL3_CACHE_SIZE, 3, USUAL_L3);
  caches.l3 = l3 < MOST_L3 ? l3 : MOST_L3;
}

const ext_caches* ext_cache_sizes(void) {
  return &caches;
}

int64_t ext_rows_in_place(int64_t row) {
  enum { LINE = 64, SETS = 64, WAYS = 8 }; /* of L1 */
  int64_t step = row * (int64_t)sizeof(float), period = 1;
  if (step % LINE) return EXT_TILE_ROWS;
  while (period < SETS && step / LINE * period % SETS) period *= 2;
  int64_t rows = period * (WAYS - 1);
  return rows < EXT_TILE_ROWS ? rows : EXT_TILE_ROWS;
}
