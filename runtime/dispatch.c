/* The instruction set in use: what CPU and operating system offer, or what BYOC_ISA forces.
 * Decided while the library is loaded, before any thread can ask. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/public.h"

static const char* const names[] = {"baseline", "avx2", "avx512", "neon"};
/* What a CPU runs whose best level is this. */
static const char* const offers[] = {"baseline", "baseline, avx2", "baseline, avx2, avx512",
                                     "neon"};

/* The levels that this library holds. */
#if defined(EXT_SIMD_NEON)
enum { FIRST = EXT_ISA_NEON, LAST = EXT_ISA_NEON };
#elif defined(EXT_ONE_LEVEL)
enum { FIRST = EXT_ISA_BASELINE, LAST = EXT_ISA_BASELINE };
#else
enum { FIRST = EXT_ISA_BASELINE, LAST = EXT_ISA_AVX512 };
#endif

static ext_isa level_in_use = (ext_isa)FIRST;
static char error_text[160];

/* __builtin_cpu_supports also asks the operating system (XGETBV) whether it saves the registers. */
static ext_isa best_level(void) {
#if !defined(EXT_ONE_LEVEL)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("fma"))
    return EXT_ISA_AVX512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return EXT_ISA_AVX2;
#endif
  return (ext_isa)FIRST;
}

__attribute__((constructor)) static void decide(void) {
  ext_isa best = best_level();
  const char* wanted = getenv("BYOC_ISA");
  if (!wanted || !*wanted) {
    level_in_use = best;
    return;
  }
  int found = -1, count = sizeof names / sizeof *names;
  for (int i = 0; i < count; i++)
    if (strcmp(wanted, names[i]) == 0) found = i;
  if (found >= FIRST && found <= (int)best) {
    level_in_use = (ext_isa)found;
    return;
  }
  const char* why = found < 0                       ? "unknown instruction set"
                    : found < FIRST || found > LAST ? "no kernels of this architecture"
                                                    : "this CPU lacks it";
  snprintf(error_text, sizeof error_text, "BYOC_ISA=%.40s: %s; this CPU runs %s", wanted, why,
           offers[best]);
}

ext_isa ext_isa_level(void) {
  return level_in_use;
}

const char* ext_isa_name(void) {
  return names[level_in_use];
}

const char* ext_isa_error(void) {
  return error_text[0] ? error_text : NULL;
}
