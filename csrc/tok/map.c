// SPDX-License-Identifier: MIT
// Hash tables of the vocabulary.
#include "tok/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint64_t random_seed(void) {
  uint64_t seed = 0x243F6A8885A308D3u;  // digits of pi, should the system have no randomness
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) seed ^= (uintptr_t)&seed;
  return seed;
}

// Multiply-and-fold over 8-byte words, as in wyhash (public domain, Wang Yi).
static uint64_t fold(uint64_t a, uint64_t b) {
  __uint128_t r = (__uint128_t)a * b;
  return (uint64_t)r ^ (uint64_t)(r >> 64);
}

uint64_t mtx_hash_bytes(const char *p, size_t n, uint64_t seed) {
  uint64_t h = seed ^ n * 0x9E3779B97F4A7C15u, w;
  for (; n >= 8; p += 8, n -= 8) {
    memcpy(&w, p, 8);
    h = fold(h ^ w, 0xE7037ED1A0B428DBu ^ seed);
  }
  w = 0;
  if (n) memcpy(&w, p, n);
  return fold(h ^ w, 0x8EBC6AF09C88C6E3u ^ seed);
}

static mtx_code slots_for(size_t n_max, size_t *n_slots, mtx_err *err) {
  size_t n = 16;
  if (n_max > (size_t)1 << 30) return mtx_fail(err, MTX_ELIMIT, "a vocabulary table of %zu entries is too large", n_max);
  while (n < 2 * n_max) n *= 2;
  *n_slots = n;
  return MTX_OK;
}

mtx_code mtx_strmap_init(mtx_strmap *m, size_t n_max, const mtx_str *keys, mtx_err *err) {
  *m = (mtx_strmap){.key = keys, .seed = random_seed()};
  mtx_code rc = slots_for(n_max, &m->n_slots, err);
  if (rc) return rc;
  m->slot = malloc(m->n_slots * sizeof *m->slot);
  if (!m->slot) return mtx_fail(err, MTX_ENOMEM, "no memory for a vocabulary of %zu tokens", n_max);
  memset(m->slot, 0xFF, m->n_slots * sizeof *m->slot);
  return MTX_OK;
}

// The slot that holds this text, or the empty one where it belongs.
static size_t find(const mtx_strmap *m, const char *p, size_t n, uint32_t hash) {
  for (size_t i = hash & (m->n_slots - 1);; i = (i + 1) & (m->n_slots - 1)) {
    const mtx_map_slot *s = &m->slot[i];
    if (s->id < 0) return i;
    if (s->hash == hash && m->key[s->id].len == n && memcmp(m->key[s->id].ptr, p, n) == 0) return i;
  }
}

int32_t mtx_strmap_add(mtx_strmap *m, int32_t id) {
  uint32_t hash = (uint32_t)mtx_hash_bytes(m->key[id].ptr, m->key[id].len, m->seed);
  size_t i = find(m, m->key[id].ptr, m->key[id].len, hash);
  if (m->slot[i].id < 0) m->slot[i] = (mtx_map_slot){hash, id};
  return m->slot[i].id;
}

int32_t mtx_strmap_get(const mtx_strmap *m, const char *p, size_t n) {
  return m->slot[find(m, p, n, (uint32_t)mtx_hash_bytes(p, n, m->seed))].id;
}

void mtx_strmap_fini(mtx_strmap *m) {
  free(m->slot);
  *m = (mtx_strmap){0};
}

mtx_code mtx_pairmap_init(mtx_pairmap *m, size_t n_max, mtx_err *err) {
  *m = (mtx_pairmap){.seed = random_seed()};
  mtx_code rc = slots_for(n_max, &m->n_slots, err);
  if (rc) return rc;
  m->slot = malloc(m->n_slots * sizeof *m->slot);
  if (!m->slot) return mtx_fail(err, MTX_ENOMEM, "no memory for %zu merges", n_max);
  memset(m->slot, 0xFF, m->n_slots * sizeof *m->slot);
  return MTX_OK;
}

void mtx_pairmap_add(mtx_pairmap *m, mtx_pair p) {
  uint64_t h = ((uint64_t)p.left << 32 | p.right) ^ m->seed;
  h = (h ^ h >> 32) * 0x9E3779B97F4A7C15u;
  for (size_t i = (h ^ h >> 29) & (m->n_slots - 1);; i = (i + 1) & (m->n_slots - 1)) {
    mtx_pair *s = &m->slot[i];
    if (s->rank != UINT32_MAX && (s->left != p.left || s->right != p.right)) continue;
    if (s->rank == UINT32_MAX) *s = p;
    return;
  }
}

void mtx_pairmap_fini(mtx_pairmap *m) {
  free(m->slot);
  *m = (mtx_pairmap){0};
}
