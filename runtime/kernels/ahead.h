/* ahead.h - whether a kernel asks for memory before it gets there. */
#ifndef EXT_AHEAD_H_
#define EXT_AHEAD_H_

#include "public.h"

/* Whether weights that are read in order are asked for ahead.  Zen 4 reads runs of memory best on
 * its own: from L3 at 99 GB/s, and at 71 where a kernel asks 1.5 KB ahead; 8 bits of one row from
 * memory at 0.99 of a plain read, and at 0.90 where it asks.  On Zen 5, whose L1 is larger, kernels
 * gain by it, as they say. */
static inline int asks_ahead(void) {
  return ext_cache_sizes()->l1 > 32 << 10;
}

/* Whether a line is asked for twice: first when the lines before it are, so that the CPU's own
 * reading ahead, which follows requests that come soon one after another, begins in time.  Where
 * what is asked for is used much later, requests alone bring no more than a core can have open:
 * Intel's with 2 MB of L2 reads keys and values at 14 GB/s, and at 11 without, of 17 of a plain
 * read.  Sizes of caches tell these cores from AMD's. */
static inline int asks_twice(void) {
  return ext_cache_sizes()->l1 > 32 << 10 && ext_cache_sizes()->l2 > 1 << 20;
}

/* Whether a core with AVX-512 is taken to run its vectors as two halves: Zen 4 does.  An L1 as
 * small is also that of CPUs which do not, Cascade Lake's; what is done for halves costs these
 * about as much as the other way, counted by hand. */
static inline int is_halved(void) {
  return !asks_ahead();
}

#endif /* EXT_AHEAD_H_ */
