// SPDX-License-Identifier: MIT
// The tables that each ISA folder exports; only kern.c chooses among them.
#ifndef MTX_KERN_TIERS_H
#define MTX_KERN_TIERS_H

#include "kern/matmul.h"
#include "kern/vec.h"

extern const mtx_vec_ops mtx_vec_scalar;
extern const mtx_mm_ops mtx_mm_scalar;
#if defined(__x86_64__)
extern const mtx_vec_ops mtx_vec_avx2, mtx_vec_avx512;
extern const mtx_mm_ops mtx_mm_avx2, mtx_mm_avx512, mtx_mm_avx512_vnni, mtx_mm_avx512_vbmi, mtx_mm_amx;
bool mtx_amx_works(void);  // asks the tiles for one known product; only where mtx_cpu.amx
#elif defined(__aarch64__)
extern const mtx_vec_ops mtx_vec_neon;
extern const mtx_mm_ops mtx_mm_neon, mtx_mm_neon_dotprod;
#endif

#endif
