/*
 * ext_isa.h - the instruction sets that kernels are written for, in one table.
 *
 *   ROW(name, architecture, families, fallback, test)
 *
 *     name          what BYOC_ISA takes, errors and reports show, and kernels end in: ext_copy_avx2
 *     architecture  x86_64 or aarch64; any: all that have no level of their own
 *     families      every: a level, for which every kernel is compiled; some: kernels that gain by
 *                   it, or none yet
 *     fallback      the row that stands in where a kernel does not come in this one.  A CPU has a
 *                   row only with its fallback.  The last one falls back on itself
 *     test          whether CPU and operating system have what the row needs beyond its fallback,
 *                   in the words of cpu_features.h
 *
 * A row stands above its fallback: a function runs the first row that it has and the CPU has.  From
 * the table come the enum (ext_common.h), names, tests and BYOC_ISA (dispatch.c), the choice among
 * a function's rows (simd/simd.h), and what Python knows (codegen_cc/instruction_sets.py).
 * docs/adding_an_instruction_set.md walks through a new row.
 *
 * Whoever expands the table names a macro ROW(name, architecture, families, fallback, test, ...),
 * which gets the other arguments at its end.
 */
#ifndef EXT_ISA_H_
#define EXT_ISA_H_

/* clang-format off */
#define EXT_ISA_TABLE(ROW, ...)                                                                   \
  ROW(amx_bf16,    x86_64,  some,  avx512_bf16, X86(AMX_BF16) && TILES(), __VA_ARGS__)            \
  ROW(amx_int8,    x86_64,  some,  avx512_vnni, X86(AMX_INT8) && TILES(), __VA_ARGS__)            \
  ROW(avx512_fp16, x86_64,  some,  avx512,      X86(AVX512_FP16), __VA_ARGS__)                    \
  ROW(avx512_bf16, x86_64,  some,  avx512,      X86(AVX512_BF16), __VA_ARGS__)                    \
  ROW(avx512_vnni, x86_64,  some,  avx512,      X86(AVX512_VNNI), __VA_ARGS__)                    \
  ROW(avx512,      x86_64,  every, avx2,        X86(AVX512F) && X86(AVX512BW) && X86(AVX512DQ) && \
                                                X86(AVX512VL) && SAVED(AVX512), __VA_ARGS__)      \
  ROW(avx_vnni,    x86_64,  some,  avx2,        X86(AVX_VNNI), __VA_ARGS__)                       \
  ROW(avx2,        x86_64,  every, baseline,    X86(AVX2) && X86(FMA) && SAVED(AVX), __VA_ARGS__) \
  ROW(i8mm,        aarch64, some,  dotprod,     ARM(I8MM), __VA_ARGS__)                           \
  ROW(neon_bf16,   aarch64, some,  neon,        ARM(BF16), __VA_ARGS__)                           \
  ROW(dotprod,     aarch64, some,  neon,        ARM(DOTPROD), __VA_ARGS__)                        \
  ROW(neon,        aarch64, every, neon,        1, __VA_ARGS__)                                   \
  ROW(baseline,    any,     every, baseline,    1, __VA_ARGS__)
/* clang-format on */

#endif /* EXT_ISA_H_ */
