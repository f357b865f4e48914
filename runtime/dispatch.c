/* The instruction set in use: what CPU and operating system offer, or what BYOC_ISA forces.
 * Decided while the library is loaded, before any thread can ask. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/public.h"

static const char* const names[] = {"baseline", "avx2", "avx512"};
static const char* const offers[] = {"baseline", "baseline, avx2", "baseline, avx2, avx512"};

static ext_isa level_in_use = EXT_ISA_BASELINE;
static char error_text[160];

/* __builtin_cpu_supports also asks the operating system (XGETBV) whether it saves the registers. */
static ext_isa best_level(void) {
#if defined(__x86_64__) && !defined(EXT_ONLY_BASELINE)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("fma"))
    return EXT_ISA_AVX512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return EXT_ISA_AVX2;
#endif
  return EXT_ISA_BASELINE;
}

__attribute__((constructor)) static void decide(void) {
  ext_isa best = best_level();
  const char* wanted = getenv("BYOC_ISA");
  if (!wanted || !*wanted) {
    level_in_use = best;
    return;
  }
  int found = -1;
  for (int i = 0; i < 3; i++)
    if (strcmp(wanted, names[i]) == 0) found = i;
  if (found >= 0 && found <= (int)best)
    level_in_use = (ext_isa)found;
  else
    snprintf(error_text, sizeof error_text, "BYOC_ISA=%.40s: %s; this CPU runs %s", wanted,
             found < 0 ? "unknown instruction set" : "this CPU lacks it", offers[best]);
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
