// SPDX-License-Identifier: MIT
// CPU features: CPUID and XGETBV on x86-64, the ELF auxiliary vector on aarch64.
//
// CPUID alone is not enough: the vector state must be saved by the operating
// system (XCR0), and Linux hands out AMX's tiles only on request (arch_prctl).
#include "kern/cpu.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

// XCR0 bits (Intel SDM vol. 1, 13.3): SSE, AVX | opmask, ZMM_Hi256, Hi16_ZMM | TILECFG, TILEDATA.
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xE6, XCR0_AMX = 0x60000 };
// Linux: arch/x86/include/uapi/asm/prctl.h and the XTILE feature number.
enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

static uint64_t xgetbv0(void) {
  uint32_t lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (uint64_t)hi << 32 | lo;
}

static void brand(char *dst) {
  unsigned r[12];
  if (__get_cpuid_max(0x80000000u, NULL) < 0x80000004u) return;
  for (unsigned i = 0; i < 3; i++) __cpuid(0x80000002u + i, r[4 * i], r[4 * i + 1], r[4 * i + 2], r[4 * i + 3]);
  memcpy(dst, r, sizeof r);
  dst[sizeof r] = 0;
}

// Eight tiles of 16 rows of 64 bytes (palette 1), and products as large.
static bool tiles_fit(void) {
  unsigned palettes, tile, names, rows, a, b, c, d;
  if (__get_cpuid_max(0, NULL) < 0x1E) return false;
  __cpuid_count(0x1D, 0, palettes, b, c, d);
  if (palettes < 1) return false;
  __cpuid_count(0x1D, 1, tile, names, rows, d);
  __cpuid_count(0x1E, 0, a, b, c, d);
  return tile >> 16 >= 1024 && names >> 16 >= 8 && (names & 0xFFFF) >= 64 && (rows & 0xFFFF) >= 16 &&  //
         (b & 0xFF) >= 16 && (b >> 8 & 0xFFFF) >= 64;
}

static void detect(mtx_cpu *c) {
  unsigned a, b, cx, d, b7, c7, d7, a71 = 0, b71, c71, d71;
  brand(c->name);
  if (!__get_cpuid(1, &a, &b, &cx, &d) || !(cx & bit_OSXSAVE)) return;
  uint64_t xcr0 = xgetbv0();
  if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return;
  if (a >= 1) __cpuid_count(7, 1, a71, b71, c71, d71);
  c->avx2 = (xcr0 & XCR0_AVX) == XCR0_AVX && (cx & bit_AVX) && (cx & bit_FMA) && (cx & bit_F16C) && (b7 & bit_AVX2);
  unsigned need = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
  c->avx512 = c->avx2 && (xcr0 & XCR0_AVX512) == XCR0_AVX512 && (b7 & need) == need;
  c->avx512_vnni = c->avx512 && (c7 & bit_AVX512VNNI);
  c->avx512_vbmi = c->avx512_vnni && (c7 & bit_AVX512VBMI);
  c->avx512_bf16 = c->avx512 && (a71 & 1u << 5);
  // CPUID.7.0:EDX bits 24 (AMX-TILE) and 25 (AMX-INT8). CPUs with AMX have VBMI as well: its kernels use both.
  c->amx = c->avx512_vbmi && (d7 & 1u << 24) && (d7 & 1u << 25) && (xcr0 & XCR0_AMX) == XCR0_AMX && tiles_fit() &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

// Linux: arch/arm64/include/uapi/asm/hwcap.h.
enum { HWCAP_BIT_ASIMD = 1 << 1, HWCAP_BIT_ASIMDDP = 1 << 20 };

static void detect(mtx_cpu *c) {
  unsigned long hw = getauxval(AT_HWCAP);
  c->neon = hw & HWCAP_BIT_ASIMD;
  c->dotprod = hw & HWCAP_BIT_ASIMDDP;
}

#else
static void detect(mtx_cpu *c) { (void)c; }
#endif

static mtx_cpu cpu;
static pthread_once_t cpu_once = PTHREAD_ONCE_INIT;
static void cpu_detect(void) { detect(&cpu); }

const mtx_cpu *mtx_cpu_get(void) {
  pthread_once(&cpu_once, cpu_detect);
  return &cpu;
}
