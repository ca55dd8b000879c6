// SPDX-License-Identifier: MIT
// Two read-mostly hash tables: byte string -> id, and pair of ids -> merge.
//
// Open addressing, at most half full, seeded per table: a vocabulary from an
// unknown file cannot choose texts that collide (SEC-08).
#ifndef MTX_TOK_MAP_H
#define MTX_TOK_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gguf/gguf.h"

typedef struct { uint32_t hash; int32_t id; } mtx_map_slot;  // id -1: empty
typedef struct {
  mtx_map_slot *slot;
  size_t n_slots;      // a power of two
  uint64_t seed;
  const mtx_str *key;  // borrowed: text of id
} mtx_strmap;

uint64_t mtx_hash_bytes(const char *p, size_t n, uint64_t seed);

mtx_code mtx_strmap_init(mtx_strmap *m, size_t n_max, const mtx_str *keys, mtx_err *err);  // keys: indexed by id
// Inserts key[id]; returns the id that has this text (an earlier one wins).
int32_t mtx_strmap_add(mtx_strmap *m, int32_t id);
int32_t mtx_strmap_get(const mtx_strmap *m, const char *p, size_t n);  // -1: none
void mtx_strmap_fini(mtx_strmap *m);

typedef struct { uint32_t left, right, rank, merged; } mtx_pair;  // rank UINT32_MAX: empty
typedef struct { mtx_pair *slot; size_t n_slots; uint64_t seed; } mtx_pairmap;
mtx_code mtx_pairmap_init(mtx_pairmap *m, size_t n_max, mtx_err *err);
void mtx_pairmap_add(mtx_pairmap *m, mtx_pair p);  // the first of a pair wins
void mtx_pairmap_fini(mtx_pairmap *m);

static inline const mtx_pair *mtx_pairmap_get(const mtx_pairmap *m, uint32_t left, uint32_t right) {
  uint64_t h = ((uint64_t)left << 32 | right) ^ m->seed;
  h = (h ^ h >> 32) * 0x9E3779B97F4A7C15u;  // golden ratio; Fibonacci hashing
  for (size_t i = (h ^ h >> 29) & (m->n_slots - 1);; i = (i + 1) & (m->n_slots - 1)) {
    const mtx_pair *p = &m->slot[i];
    if (p->rank == UINT32_MAX) return NULL;
    if (p->left == left && p->right == right) return p;
  }
}

#endif
