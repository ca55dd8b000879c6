// SPDX-License-Identifier: MIT
// Reading UTF-8 and hexadecimal from grammar, regex and JSON texts.
#ifndef MTX_GRAMMAR_TEXT_H
#define MTX_GRAMMAR_TEXT_H

#include <stddef.h>
#include <stdint.h>

// Decodes one code point of p[0..n); returns its bytes, 0 if it is not UTF-8
// (over-long forms and surrogates included) or n is 0.
static inline size_t mtx_utf8_get(const char *p, size_t n, uint32_t *c) {
  const uint8_t *s = (const uint8_t *)p;
  if (n == 0) return 0;
  if (s[0] < 0x80) {
    *c = s[0];
    return 1;
  }
  size_t k = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4 || n < k) return 0;
  uint32_t v = s[0] & (0xffu >> (k + 1));
  for (size_t i = 1; i < k; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0;
    v = v << 6 | (s[i] & 0x3f);
  }
  if ((k == 3 && v < 0x800) || (k == 4 && v < 0x10000) || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff)) return 0;
  *c = v;
  return k;
}

static inline size_t mtx_utf8_put(uint32_t c, char out[4]) {
  if (c < 0x80) return out[0] = (char)c, 1;
  if (c < 0x800) return out[0] = (char)(0xc0 | c >> 6), out[1] = (char)(0x80 | (c & 0x3f)), 2;
  if (c < 0x10000) {
    out[0] = (char)(0xe0 | c >> 12);
    out[1] = (char)(0x80 | (c >> 6 & 0x3f));
    out[2] = (char)(0x80 | (c & 0x3f));
    return 3;
  }
  out[0] = (char)(0xf0 | c >> 18);
  out[1] = (char)(0x80 | (c >> 12 & 0x3f));
  out[2] = (char)(0x80 | (c >> 6 & 0x3f));
  out[3] = (char)(0x80 | (c & 0x3f));
  return 4;
}

static inline int mtx_hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Exactly k hexadecimal digits at p[0..n); false if they are not there.
static inline int mtx_hex_get(const char *p, size_t n, size_t k, uint32_t *v) {
  if (n < k) return 0;
  *v = 0;
  for (size_t i = 0; i < k; i++) {
    int d = mtx_hex_digit(p[i]);
    if (d < 0) return 0;
    *v = *v << 4 | (uint32_t)d;
  }
  return 1;
}

#endif
