/*
 * cpu_features.h - what CPU and operating system have: the words of the tests in ext_isa.h.
 *
 *   X86(feature)    CPUID says so
 *   SAVED(state)    the system saves the registers of AVX or AVX512 when it switches threads
 *   TILES()         the CPU has AMX's tiles, and the system would let a process use them
 *   ARM(feature)    the system tells (AT_HWCAP, AT_HWCAP2)
 *
 * A word of another architecture is 0.
 */
#ifndef EXT_CPU_FEATURES_H_
#define EXT_CPU_FEATURES_H_

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>

/* Where CPUID tells of a feature: leaf, subleaf, register (EAX, EBX, ECX, EDX), bit. */
typedef struct {
  unsigned leaf, subleaf, reg, bit;
} ext_cpuid_bit;

#define EXT_X86_OSXSAVE {1, 0, 2, 27}
#define EXT_X86_FMA {1, 0, 2, 12}
#define EXT_X86_AVX2 {7, 0, 1, 5}
#define EXT_X86_AVX512F {7, 0, 1, 16}
#define EXT_X86_AVX512DQ {7, 0, 1, 17}
#define EXT_X86_AVX512BW {7, 0, 1, 30}
#define EXT_X86_AVX512VL {7, 0, 1, 31}
#define EXT_X86_AVX512_VNNI {7, 0, 2, 11}
#define EXT_X86_AMX_BF16 {7, 0, 3, 22}
#define EXT_X86_AVX512_FP16 {7, 0, 3, 23}
#define EXT_X86_AMX_TILE {7, 0, 3, 24}
#define EXT_X86_AMX_INT8 {7, 0, 3, 25}
#define EXT_X86_AVX_VNNI {7, 1, 0, 4}
#define EXT_X86_AVX512_BF16 {7, 1, 0, 5}
#define X86(feature) ext_cpuid_has((ext_cpuid_bit)EXT_X86_##feature)

static inline int ext_cpuid_has(ext_cpuid_bit at) {
  unsigned r[4];
  if (!__get_cpuid_count(at.leaf, 0, &r[0], &r[1], &r[2], &r[3])) return 0;
  if (at.subleaf > 0) {
    if (r[0] < at.subleaf) return 0; /* leaf 7 counts its subleaves there */
    __cpuid_count(at.leaf, at.subleaf, r[0], r[1], r[2], r[3]);
  }
  return r[at.reg] >> at.bit & 1;
}

/* Bits of XCR0: the registers that the system saves. */
enum { EXT_XCR0_AVX = 0x6, EXT_XCR0_AVX512 = 0xe6, EXT_XCR0_TILES = 0x60000 };
#define SAVED(state) ext_xcr0_has(EXT_XCR0_##state)

static inline int ext_xcr0_has(uint32_t wanted) {
  uint32_t low, high;
  if (!X86(OSXSAVE)) return 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & wanted) == wanted;
}

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

/* Linux gives tiles to a process that asks for them, as it needs larger signal stacks from then on.
 * The test asks only whether it would; the first call that may use tiles asks for them. */
enum { EXT_GET_XCOMP_SUPP = 0x1021, EXT_REQ_XCOMP_PERM = 0x1023 }; /* asm/prctl.h of Linux 5.16 */
enum { EXT_TILE_DATA = 18 };

static inline int ext_tiles_to_be_had(void) {
  uint64_t known = 0;
  return syscall(SYS_arch_prctl, EXT_GET_XCOMP_SUPP, &known) == 0 && known >> EXT_TILE_DATA & 1;
}
/* For all threads of the process; asked again, it is given again. */
static inline int ext_tiles_given(void) {
  return syscall(SYS_arch_prctl, EXT_REQ_XCOMP_PERM, EXT_TILE_DATA) == 0;
}
#else
static inline int ext_tiles_to_be_had(void) {
  return 1;
}
static inline int ext_tiles_given(void) {
  return 1;
}
#endif
#define TILES() (X86(AMX_TILE) && SAVED(TILES) && ext_tiles_to_be_had())

#else
#define X86(feature) 0
#define SAVED(state) 0
#define TILES() 0
static inline int ext_tiles_given(void) {
  return 0;
}
#endif

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* Entry of the auxiliary vector and bit, as asm/hwcap.h numbers them. */
#define EXT_ARM_DOTPROD AT_HWCAP, 20
#define EXT_ARM_I8MM AT_HWCAP2, 13
#define EXT_ARM_BF16 AT_HWCAP2, 14
#define ARM(feature) ext_hwcap_has(EXT_ARM_##feature)

static inline int ext_hwcap_has(unsigned long entry, int bit) {
  return getauxval(entry) >> bit & 1;
}
#else
#define ARM(feature) 0
#endif

#endif /* EXT_CPU_FEATURES_H_ */
