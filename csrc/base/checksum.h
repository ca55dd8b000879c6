// SPDX-License-Identifier: MIT
// A fast 64-bit checksum against damage and mix-ups, not against forgers.
//
// Eight lanes of 64-bit words, each step a bijection of lane and word (as in
// MurmurHash3's finaliser): damage within one word is always noticed, any other with
// a chance of 1 - 2^-64. Several bytes a cycle, where SHA-256 needs several cycles a byte.
#ifndef MTX_BASE_CHECKSUM_H
#define MTX_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint64_t lane[8], n_bytes;
  uint8_t block[64];  // n_bytes % 64 of them are waiting
} mtx_checksum;

void mtx_checksum_init(mtx_checksum *c);
void mtx_checksum_update(mtx_checksum *c, const void *p, size_t n);
uint64_t mtx_checksum_get(const mtx_checksum *c);  // of all bytes so far

#endif
