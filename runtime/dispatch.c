/* The instruction sets in use: what CPU and operating system offer, or what BYOC_ISA forces.
 * Decided while the library is loaded, before any thread can ask. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_features.h"
#include "simd/rows.h"

/* ARCHITECTURE_x: whether a row of architecture x is one of this machine's. */
#define ARCHITECTURE_any 1
#if defined(__x86_64__)
#define ARCHITECTURE_x86_64 1
#else
#define ARCHITECTURE_x86_64 0
#endif
#if defined(__aarch64__)
#define ARCHITECTURE_aarch64 1
#else
#define ARCHITECTURE_aarch64 0
#endif
#define LEVEL_every 1
#define LEVEL_some 0

typedef struct {
  const char* name;
  ext_isa fallback;
  int level; /* every kernel is compiled for it */
  int here;  /* of this architecture; a level: compiled into this library */
} isa_row;

#define DESCRIBE(name, architecture, families, fallback, test, unused) \
  {#name, EXT_ISA_##fallback, LEVEL_##families,                        \
   LEVEL_##families ? EXT_HAS_ROW(name) : ARCHITECTURE_##architecture},
static const isa_row rows[] = {EXT_ISA_TABLE(DESCRIBE, 0)};
enum { COUNT = sizeof rows / sizeof *rows };

#define BIT(isa) ((uint32_t)1 << (isa))

/* Until there is more to tell, and where BYOC_ISA cannot be honoured. */
static uint32_t in_use = BIT(EXT_FIRST_ISA);
static uint32_t offered = BIT(EXT_FIRST_ISA);
static char error_text[200];

/* Whether the machine passes the row's test. */
static int passes(ext_isa isa) {
#define TEST(name, architecture, families, fallback, test, unused) \
  case EXT_ISA_##name: return test;
  switch (isa) { EXT_ISA_TABLE(TEST, 0) }
  return 0;
}

/* Rows of this library that the machine passes the tests of; a row needs its fallback. */
static uint32_t look(void) {
  uint32_t found = 0;
  for (int i = COUNT - 1; i >= 0; i--) {
    int has_fallback = (int)rows[i].fallback == i || found >> rows[i].fallback & 1;
    if (rows[i].here && has_fallback && passes((ext_isa)i)) found |= BIT(i);
  }
  return found;
}

/* A row and all that it falls back on. */
static uint32_t with_fallbacks(int row) {
  uint32_t found = 0;
  for (; !(found >> row & 1); row = (int)rows[row].fallback) found |= BIT(row);
  return found;
}

/* Writes the levels of a set, the least one first, separated by commas. */
static void list_levels(uint32_t set, char* text, size_t size) {
  size_t at = 0;
  text[0] = '\0';
  for (int i = COUNT - 1; i >= 0; i--)
    if (rows[i].level && set >> i & 1 && at < size)
      at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", rows[i].name);
}

__attribute__((constructor)) static void decide(void) {
  const char* wanted = getenv("BYOC_ISA");
  offered = look();
  if (!wanted || !*wanted) {
    in_use = offered;
    return;
  }
  int found = -1;
  for (int i = 0; i < COUNT; i++)
    if (strcmp(wanted, rows[i].name) == 0) found = i;
  if (found >= 0 && offered >> found & 1) {
    in_use = with_fallbacks(found);
    return;
  }
  const char* why = found < 0           ? "unknown instruction set"
                    : !rows[found].here ? "no kernels of this architecture"
                                        : "this CPU lacks it";
  char levels[80];
  list_levels(offered, levels, sizeof levels);
  snprintf(error_text, sizeof error_text, "BYOC_ISA=%.40s: %s; this CPU runs %s", wanted, why,
           levels);
}

uint32_t ext_isas(void) {
  return in_use;
}

/* Several threads may ask at once, and get the same answer. */
uint32_t ext_isas_with_tiles(void) {
  enum { UNASKED, GIVEN, REFUSED };
  static _Atomic int permission = UNASKED;
  const uint32_t tiles = in_use & (BIT(EXT_ISA_amx_bf16) | BIT(EXT_ISA_amx_int8));
  if (!tiles) return in_use;
  if (permission == UNASKED) permission = ext_tiles_given() ? GIVEN : REFUSED;
  return permission == GIVEN ? in_use : in_use & ~tiles;
}

uint32_t ext_isas_offered(void) {
  return offered;
}

ext_isa ext_isa_level(void) {
  for (int i = 0; i < COUNT; i++)
    if (rows[i].level && in_use >> i & 1) return (ext_isa)i;
  return EXT_FIRST_ISA;
}

const char* ext_isa_name(void) {
  return rows[ext_isa_level()].name;
}

const char* ext_isa_error(void) {
  return error_text[0] ? error_text : NULL;
}
