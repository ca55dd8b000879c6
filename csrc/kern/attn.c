// SPDX-License-Identifier: MIT
// Picks the attention kernels of the tier in use.
#include "kern/attn.h"

#include "kern/kern.h"

size_t mtx_attn_scratch_floats(int dk, int dv, int n) {
  size_t dvp = ((size_t)dv + 15) / 16 * 16;
  // K and V of a page as floats, scores, and per query: max, sum, output.
  return (size_t)dk * MTX_PAGE_TOKENS + dvp * MTX_PAGE_TOKENS + (size_t)n * MTX_PAGE_TOKENS + (size_t)n * (dvp + 32);
}

#if defined(__x86_64__)
static const mtx_attn_kernels *by_tier(mtx_tier t) {
  return t >= MTX_TIER_AVX512 ? &mtx_attn_avx512 : t == MTX_TIER_AVX2 ? &mtx_attn_avx2 : &mtx_attn_scalar;
}
#elif defined(__aarch64__)
static const mtx_attn_kernels *by_tier(mtx_tier t) { return t == MTX_TIER_NEON ? &mtx_attn_neon : &mtx_attn_scalar; }
#else
static const mtx_attn_kernels *by_tier(mtx_tier t) { return &mtx_attn_scalar; }
#endif

const mtx_attn_kernels *mtx_attn_get(void) { return by_tier(mtx_kern_tier()); }
