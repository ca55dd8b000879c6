// SPDX-License-Identifier: MIT
// Chooses the tier and fills the tables of functions, scalar first, then tier by tier over it.
//
// A kernel that a tier does not have costs nothing: the entry of the tier below stays.
#include "kern/kern.h"

#include "kern/cpu.h"
#include "kern/dispatch.h"
#include "kern/tiers.h"

mtx_vec_ops mtx_vec;
mtx_mm_ops mtx_mm;
static mtx_tier tier_now;

const char *mtx_tier_name(mtx_tier t) {
  static const char *const names[] = {"scalar", "avx2", "avx512", "amx", "neon"};
  return (unsigned)t < sizeof names / sizeof *names ? names[t] : "?";
}

bool mtx_tier_available(mtx_tier t) {
  const mtx_cpu *c = mtx_cpu_get();
  switch (t) {
    case MTX_TIER_SCALAR: return true;
    case MTX_TIER_AVX2: return c->avx2;
    case MTX_TIER_AVX512: return c->avx512;
#if defined(__x86_64__)
    case MTX_TIER_AMX: return c->amx && mtx_amx_works();
#else
    case MTX_TIER_AMX: return false;
#endif
    case MTX_TIER_NEON: return c->neon;
  }
  return false;
}

static void overlay(const mtx_mm_ops *ops) {
  for (int i = 0; i < MTX_PACK_N; i++)
    if (ops->fn[i]) mtx_mm.fn[i] = ops->fn[i];
  if (ops->encode) mtx_mm.encode = ops->encode;
}

#if defined(__x86_64__)
static void fill(mtx_tier t) {
  if (t < MTX_TIER_AVX2) return;
  mtx_vec = mtx_vec_avx2;
  overlay(&mtx_mm_avx2);
  if (t < MTX_TIER_AVX512) return;
  mtx_vec = mtx_vec_avx512;
  overlay(&mtx_mm_avx512);
  if (mtx_cpu_get()->avx512_vnni) overlay(&mtx_mm_avx512_vnni);
  if (mtx_cpu_get()->avx512_vbmi) overlay(&mtx_mm_avx512_vbmi);
  if (t < MTX_TIER_AMX) return;
  overlay(&mtx_mm_amx);
}
#elif defined(__aarch64__)
static void fill(mtx_tier t) {
  if (t != MTX_TIER_NEON) return;
  mtx_vec = mtx_vec_neon;
  overlay(&mtx_mm_neon);
  if (mtx_cpu_get()->dotprod) overlay(&mtx_mm_neon_dotprod);
}
#else
static void fill(mtx_tier t) { (void)t; }
#endif

mtx_tier mtx_kern_init(mtx_tier cap) {
  tier_now = MTX_TIER_SCALAR;
  for (int t = MTX_TIER_SCALAR; t <= MTX_TIER_NEON && t <= (int)cap; t++)
    if (mtx_tier_available((mtx_tier)t)) tier_now = (mtx_tier)t;
  // An x86 cap of AMX allows the same as NEON does on ARM: everything.
  if (cap == MTX_TIER_AMX && mtx_tier_available(MTX_TIER_NEON)) tier_now = MTX_TIER_NEON;
  mtx_vec = mtx_vec_scalar;
  mtx_mm = mtx_mm_scalar;
  fill(tier_now);
  return tier_now;
}

mtx_tier mtx_kern_tier(void) { return tier_now; }

// Tables are whole before main, so that a caller who forgot mtx_kern_init computes slowly instead of crashing.
__attribute__((constructor)) static void start_scalar(void) {
  mtx_vec = mtx_vec_scalar;
  mtx_mm = mtx_mm_scalar;
}
