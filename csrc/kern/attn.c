// SPDX-License-Identifier: MIT
// Picks the attention kernels of the tier in use.
#include "kern/attn.h"

#include "kern/kern.h"

size_t mtx_attn_scratch_floats(int dk, int dv, int n) {
  size_t dvp = ((size_t)dv + 15) / 16 * 16;
  // K and V of a page as floats, scores, and per query: max, sum, output.
  return (size_t)dk * MTX_PAGE_TOKENS + dvp * MTX_PAGE_TOKENS + (size_t)n * MTX_PAGE_TOKENS + (size_t)n * (dvp + 32);
}

const mtx_attn_kernels *mtx_attn_get(void) {
#if defined(__x86_64__)
  switch (mtx_kern_tier()) {
    case MTX_TIER_AMX:
    case MTX_TIER_AVX512: return &mtx_attn_avx512;
    case MTX_TIER_AVX2: return &mtx_attn_avx2;
    default: break;
  }
#endif
  return &mtx_attn_scalar;
}
