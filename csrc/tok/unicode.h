// SPDX-License-Identifier: MIT
// What the tokenizers need of Unicode 15.1: classes, lower case, base letters,
// and one lenient UTF-8 decoder.
#ifndef MTX_TOK_UNICODE_H
#define MTX_TOK_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {  // a code point's class is a set of these; unassigned and Z* have none
  MTX_UNI_L = 1,    // letter
  MTX_UNI_N = 2,    // number
  MTX_UNI_P = 4,    // punctuation
  MTX_UNI_S = 8,    // symbol
  MTX_UNI_M = 16,   // mark
  MTX_UNI_WS = 32,  // property White_Space (beside the category)
  MTX_UNI_C = 64,   // control, format, surrogate, private use
};

uint8_t mtx_uni_class(uint32_t cp);
uint32_t mtx_uni_lower(uint32_t cp);  // simple mapping, else cp
uint32_t mtx_uni_base(uint32_t cp);   // first code point of the canonical decomposition, else cp

// Length that the first byte of a UTF-8 sequence announces; 1 for bytes that start none.
static inline size_t mtx_utf8_len(unsigned char lead) {
  return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Decodes one code point at p[0..n), n > 0; returns the bytes taken. A byte that
// starts no sequence, or whose continuation is missing, is one U+FFFD of length 1.
// As the reference tokenizers do, overlong forms and surrogates pass.
static inline size_t mtx_utf8_decode(const unsigned char *p, size_t n, uint32_t *cp) {
  unsigned char c = p[0];
  if (c < 0x80) {
    *cp = c;
    return 1;
  }
  if (c >= 0xC0 && c < 0xE0 && n > 1 && (p[1] & 0xC0) == 0x80) {
    *cp = (uint32_t)(c & 0x1F) << 6 | (p[1] & 0x3F);
    return 2;
  }
  if (c >= 0xE0 && c < 0xF0 && n > 2 && (p[1] & 0xC0) == 0x80 && (p[2] & 0xC0) == 0x80) {
    *cp = (uint32_t)(c & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    return 3;
  }
  if (c >= 0xF0 && c < 0xF8 && n > 3 && (p[1] & 0xC0) == 0x80 && (p[2] & 0xC0) == 0x80 && (p[3] & 0xC0) == 0x80) {
    *cp = (uint32_t)(c & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
    if (*cp > 0x10FFFF) *cp = 0xFFFD;
    return 4;
  }
  *cp = 0xFFFD;
  return 1;
}

// Writes cp as UTF-8 to dst[4]; returns the length.
static inline size_t mtx_utf8_encode(uint32_t cp, char *dst) {
  if (cp < 0x80) {
    dst[0] = (char)cp;
    return 1;
  }
  if (cp < 0x800) {
    dst[0] = (char)(0xC0 | cp >> 6);
    dst[1] = (char)(0x80 | (cp & 0x3F));
    return 2;
  }
  if (cp < 0x10000) {
    dst[0] = (char)(0xE0 | cp >> 12);
    dst[1] = (char)(0x80 | (cp >> 6 & 0x3F));
    dst[2] = (char)(0x80 | (cp & 0x3F));
    return 3;
  }
  dst[0] = (char)(0xF0 | cp >> 18);
  dst[1] = (char)(0x80 | (cp >> 12 & 0x3F));
  dst[2] = (char)(0x80 | (cp >> 6 & 0x3F));
  dst[3] = (char)(0x80 | (cp & 0x3F));
  return 4;
}

// Strict validity (RFC 3629: no overlong form, no surrogate, at most U+10FFFF).
// Returns true, or false with the offset of the first bad byte in *bad (may be NULL).
bool mtx_utf8_valid(const char *text, size_t n, size_t *bad);

#endif
