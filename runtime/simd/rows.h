/*
 * rows.h - a function in several rows of the table of instruction sets (ext_isa.h).
 *
 * The build compiles a kernel once for every row that it comes in, with -DEXT_ROW=avx2 or the like.
 * The public function stands beside the kernel of the first level, which every CPU of the
 * architecture has, so that a link with the archive takes in only the families that are called.
 * That one is compiled with -DEXT_HAS_avx2 and so on, the rows to choose among.
 *
 *   EXT_NAME(f)                           f's name in this row: f_avx2
 *   EXT_LEVEL_NAME(f)                     its name in the level that this row adds instructions to:
 *                                         where f would be the same in both
 *   EXT_UNTILED_NAME(f)                   in a row with tiles and EXT_UNTILED, its name in the row
 *                                         of the same units without tiles: where these do not pay
 *   EXT_DISPATCH(f, parameters, arguments)
 *                                         beside the first level, the function f, which calls the
 *                                         first of its rows that is in use; elsewhere nothing
 *   EXT_DISPATCH_OF(type, f, ...)         the same for a result of another type than int
 */
#ifndef EXT_ROWS_H_
#define EXT_ROWS_H_

#include "../kernels/public.h"

#define EXT_JOIN(a, b) EXT_JOIN_(a, b)
#define EXT_JOIN_(a, b) a##b

/* The row that is being compiled. */
#define EXT_NAME(f) EXT_JOIN(f##_, EXT_ROW)
#define EXT_LEVEL_NAME(f) EXT_JOIN(f##_, EXT_LEVEL)
#define EXT_UNTILED_NAME(f) EXT_JOIN(f##_, EXT_UNTILED)
/* The same as one of ext_isa, of what is compiled for the first level. */
#define EXT_FIRST_ISA EXT_JOIN(EXT_ISA_, EXT_ROW)

/* 1 where -DEXT_HAS_name was given, else 0: the defined one becomes two arguments. */
#define EXT_HAS_ROW(name) EXT_SECOND_OF(EXT_JOIN(EXT_IF_DEFINED_, EXT_HAS_##name))
#define EXT_IF_DEFINED_1 0, 1
#define EXT_SECOND_OF(...) EXT_SECOND(__VA_ARGS__, 0, 0)
#define EXT_SECOND(first, second, ...) second

#define EXT_DECLARE(name, architecture, families, fallback, test, type, f, parameters, arguments) \
  type f##_##name parameters;
#define EXT_CALL(name, architecture, families, fallback, test, type, f, parameters, arguments) \
  if (EXT_HAS_ROW(name) && EXT_ISA_##name != EXT_FIRST_ISA && isas >> EXT_ISA_##name & 1)      \
    return f##_##name arguments;

#if defined(EXT_FIRST)
uint32_t ext_isas(void) __attribute__((pure)); /* not called where there is one row alone */
/* The same, for functions that come in rows with tiles: the first call asks the system for them,
 * and where it refuses, those rows are not in the set. */
uint32_t ext_isas_with_tiles(void);
#define EXT_MAY_HAVE_TILES (EXT_HAS_ROW(amx_bf16) || EXT_HAS_ROW(amx_int8))
#define EXT_DISPATCH_OF(type, f, parameters, arguments)                            \
  EXT_ISA_TABLE(EXT_DECLARE, type, f, parameters, arguments)                       \
  type f parameters {                                                              \
    const uint32_t isas = EXT_MAY_HAVE_TILES ? ext_isas_with_tiles() : ext_isas(); \
    (void)isas;                                                                    \
    EXT_ISA_TABLE(EXT_CALL, type, f, parameters, arguments)                        \
    return EXT_NAME(f) arguments;                                                  \
  }
#else
#define EXT_DISPATCH_OF(type, f, parameters, arguments)
#endif
#define EXT_DISPATCH(f, parameters, arguments) EXT_DISPATCH_OF(int, f, parameters, arguments)

#endif /* EXT_ROWS_H_ */
