// SPDX-License-Identifier: MIT
// Fast checksum: see checksum.h.
#include "base/checksum.h"

#include <string.h>

static uint64_t mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * UINT64_C(0xff51afd7ed558ccd);
  return h ^ h >> 32;
}

static void take_blocks(uint64_t *lane, const uint8_t *p, size_t n) {
  for (; n >= 64; p += 64, n -= 64)
    for (int i = 0; i < 8; i++) {
      uint64_t x;
      memcpy(&x, p + 8 * i, 8);
      lane[i] = mix(lane[i], x);
    }
}

void mtx_checksum_init(mtx_checksum *c) {
  memset(c, 0, sizeof *c);
  for (uint64_t i = 0; i < 8; i++) c->lane[i] = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
}

void mtx_checksum_update(mtx_checksum *c, const void *p, size_t n) {
  const uint8_t *at = p;
  size_t held = c->n_bytes % 64;
  c->n_bytes += n;
  if (held) {
    size_t k = 64 - held < n ? 64 - held : n;
    memcpy(c->block + held, at, k);
    if (held + k < 64) return;
    take_blocks(c->lane, c->block, 64);
    at += k;
    n -= k;
  }
  take_blocks(c->lane, at, n);
  if (n % 64) memcpy(c->block, at + n / 64 * 64, n % 64);
}

uint64_t mtx_checksum_get(const mtx_checksum *c) {
  uint64_t lane[8], h = c->n_bytes;
  uint8_t last[64] = {0};
  memcpy(lane, c->lane, sizeof lane);
  memcpy(last, c->block, c->n_bytes % 64);
  take_blocks(lane, last, 64);
  for (int i = 0; i < 8; i++) h = mix(h, lane[i]);
  return h;
}
