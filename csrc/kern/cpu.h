// SPDX-License-Identifier: MIT
// What this CPU can do AND what the operating system lets us use of it.
#ifndef MTX_KERN_CPU_H
#define MTX_KERN_CPU_H

#include <stdbool.h>

typedef struct mtx_cpu {
  bool avx2;         // with FMA and F16C
  bool avx512;       // F, BW, VL, DQ
  bool avx512_vnni;
  bool avx512_vbmi;  // with VNNI
  bool avx512_bf16;
  bool amx;          // TILE and INT8 with AVX-512 VBMI, and Linux granted the tile state to this process
  bool neon;
  bool dotprod;      // NEON's SDOT
  char name[64];     // the CPU's own name, or ""
} mtx_cpu;

// Asked once, then remembered. The first call may ask Linux for the AMX state.
const mtx_cpu *mtx_cpu_get(void);

#endif
