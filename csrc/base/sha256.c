// SPDX-License-Identifier: MIT
// SHA-256: see sha256.h. Constants and steps: FIPS 180-4, sections 4.2.2, 5.3.3 and 6.2.
#include "base/sha256.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const uint32_t K[64] = {
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n) { return x >> n | x << (32 - n); }

static uint32_t load_be(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void compress(uint32_t h[8], const uint8_t *p) {
  uint32_t w[64], v[8];
  for (int i = 0; i < 16; i++) w[i] = load_be(p + 4 * i);
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) + w[i - 7] + (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
  }
  memcpy(v, h, sizeof v);
  for (int i = 0; i < 64; i++) {
    uint32_t a = v[0], e = v[4];
    uint32_t t1 = v[7] + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + K[i] + w[i];
    uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    for (int k = 7; k > 0; k--) v[k] = v[k - 1];
    v[4] += t1;
    v[0] = t1 + t2;
  }
  for (int i = 0; i < 8; i++) h[i] += v[i];
}

void mtx_sha256_init(mtx_sha256 *s) {
  static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memset(s, 0, sizeof *s);
  memcpy(s->h, start, sizeof start);
}

void mtx_sha256_update(mtx_sha256 *s, const void *data, size_t n) {
  const uint8_t *p = data;
  size_t have = s->n_bytes % 64;
  s->n_bytes += n;
  if (have) {
    size_t take = 64 - have < n ? 64 - have : n;
    memcpy(s->block + have, p, take);
    p += take, n -= take;
    if (have + take < 64) return;
    compress(s->h, s->block);
  }
  for (; n >= 64; p += 64, n -= 64) compress(s->h, p);
  if (n) memcpy(s->block, p, n);
}

static void digest_of(const mtx_sha256 *s, uint8_t digest[32]) {
  mtx_sha256 t = *s;
  uint8_t tail[72] = {0x80};
  size_t pad = (119 - t.n_bytes % 64) % 64 + 1;  // up to 8 bytes before a block's end
  for (int i = 0; i < 8; i++) tail[pad + (size_t)i] = (uint8_t)(s->n_bytes * 8 >> (56 - 8 * i));
  mtx_sha256_update(&t, tail, pad + 8);
  for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(t.h[i / 4] >> (24 - 8 * (i % 4)));
}

void mtx_sha256_hex(const mtx_sha256 *s, char hex[65]) {
  uint8_t d[32];
  digest_of(s, d);
  for (int i = 0; i < 32; i++) {
    hex[2 * i] = "0123456789abcdef"[d[i] >> 4];
    hex[2 * i + 1] = "0123456789abcdef"[d[i] & 15];
  }
  hex[64] = 0;
}

mtx_code mtx_sha256_range(mtx_sha256 *s, const char *path, uint64_t offset, uint64_t n, uint64_t *n_read, mtx_err *err) {
  FILE *f = fopen(path, "rb");
  if (!f)
    return mtx_fail_at(err, errno == ENOENT ? MTX_ENOTFOUND : MTX_EIO, path, NULL, 0, "cannot open the file: %s", strerror(errno));
  uint8_t buf[32768];
  uint64_t done = 0;
  bool bad = fseeko(f, (off_t)offset, SEEK_SET) != 0;
  while (!bad && done < n) {
    size_t want = n - done < sizeof buf ? (size_t)(n - done) : sizeof buf, got = fread(buf, 1, want, f);
    mtx_sha256_update(s, buf, got);
    done += got;
    bad = ferror(f);
    if (got < want) break;
  }
  mtx_code code = bad ? mtx_fail_at(err, MTX_EIO, path, NULL, offset + done, "cannot read the file: %s", strerror(errno)) : MTX_OK;
  fclose(f);
  *n_read = done;
  return code;
}

mtx_code mtx_sha256_file(const char *path, char hex[65], mtx_err *err) {
  mtx_sha256 s;
  uint64_t n;
  mtx_sha256_init(&s);
  mtx_code code = mtx_sha256_range(&s, path, 0, UINT64_MAX, &n, err);
  if (!code) mtx_sha256_hex(&s, hex);
  return code;
}
