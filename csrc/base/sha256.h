// SPDX-License-Identifier: MIT
// SHA-256 (FIPS 180-4), for model digests and test data.
#ifndef MTX_BASE_SHA256_H
#define MTX_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  uint32_t h[8];
  uint64_t n_bytes;
  uint8_t block[64];  // n_bytes % 64 of them are waiting
} mtx_sha256;

void mtx_sha256_init(mtx_sha256 *s);
void mtx_sha256_update(mtx_sha256 *s, const void *p, size_t n);
// The digest of all bytes so far, as 64 lower-case hex digits and a zero; s may go on.
void mtx_sha256_hex(const mtx_sha256 *s, char hex[65]);

// Takes up to n bytes of a file from `offset` on; *n_read tells how many there were. Errors: MTX_ENOTFOUND, MTX_EIO.
mtx_code mtx_sha256_range(mtx_sha256 *s, const char *path, uint64_t offset, uint64_t n, uint64_t *n_read, mtx_err *err);
// Of a whole file. Errors: MTX_ENOTFOUND, MTX_EIO.
mtx_code mtx_sha256_file(const char *path, char hex[65], mtx_err *err);

#endif
