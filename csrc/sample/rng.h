// SPDX-License-Identifier: MIT
// Random numbers for sampling: xoshiro256** (Blackman and Vigna, 2018), its
// state filled from a 64-bit seed by splitmix64. Integers only, so a seed gives
// the same draws on every machine.
#ifndef MTX_SAMPLE_RNG_H
#define MTX_SAMPLE_RNG_H

#include <stdint.h>

typedef struct mtx_rng { uint64_t s[4]; } mtx_rng;

static inline uint64_t mtx_splitmix64(uint64_t *x) {
  uint64_t z = (*x += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static inline void mtx_rng_seed(mtx_rng *r, uint64_t seed) {
  for (int i = 0; i < 4; i++) r->s[i] = mtx_splitmix64(&seed);
}

static inline uint64_t mtx_rng_next(mtx_rng *r) {
  uint64_t *s = r->s, five = s[1] * 5, out = ((five << 7) | (five >> 57)) * 9, t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = (s[3] << 45) | (s[3] >> 19);
  return out;
}

// Uniform in [0, 1), 53 bits.
static inline double mtx_rng_unit(mtx_rng *r) { return (double)(mtx_rng_next(r) >> 11) * 0x1p-53; }

#endif
