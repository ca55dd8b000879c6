// SPDX-License-Identifier: MIT
// From token texts to the bytes they stand for, computed once at open.
#include <stdlib.h>
#include <string.h>

#include "tok/unicode.h"
#include "tok/vocab.h"

// GPT-2's byte alphabet (its encoder.py): printable Latin-1 stands for itself,
// the other 68 bytes are U+0100 onward in order.
static int byte_of(uint32_t cp) {
  if ((cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xAC) || (cp >= 0xAE && cp <= 0xFF)) return (int)cp;
  if (cp >= 0x100 && cp < 0x121) return (int)(cp - 0x100);         // 00..20
  if (cp >= 0x121 && cp < 0x143) return (int)(cp - 0x121 + 0x7F);  // 7F..A0
  return cp == 0x143 ? 0xAD : -1;
}

size_t mtx_gpt2_decode(const mtx_str *text, char *dst) {
  size_t n = 0;
  for (size_t i = 0; i < text->len;) {
    uint32_t cp;
    i += mtx_utf8_decode((const unsigned char *)text->ptr + i, text->len - i, &cp);
    int b = byte_of(cp);
    if (b < 0) return SIZE_MAX;
    dst[n++] = (char)b;
  }
  return n;
}

static int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int32_t mtx_tok_byte_of(const mtx_str *s) {
  if (s->len != 6 || memcmp(s->ptr, "<0x", 3) != 0 || s->ptr[5] != '>') return -1;
  int hi = hex_digit(s->ptr[3]), lo = hex_digit(s->ptr[4]);
  return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

size_t mtx_rwkv_unescape(const mtx_str *s, char *dst) {
  size_t n = 0;
  for (size_t i = 0; i < s->len; i++) {
    char c = s->ptr[i];
    if (c == '\\' && i + 1 < s->len) {
      c = s->ptr[++i];
      if (c == 'x' && i + 2 < s->len && hex_digit(s->ptr[i + 1]) >= 0 && hex_digit(s->ptr[i + 2]) >= 0) {
        c = (char)(hex_digit(s->ptr[i + 1]) * 16 + hex_digit(s->ptr[i + 2]));
        i += 2;
      } else {
        c = c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
      }
    }
    dst[n++] = c;
  }
  return n;
}

static size_t unescape_spaces(const mtx_str *s, char *dst) {
  size_t n = 0;
  for (size_t i = 0; i < s->len;) {
    if (i + 3 <= s->len && memcmp(s->ptr + i, MTX_ESCAPED_SPACE, 3) == 0) {
      dst[n++] = ' ';
      i += 3;
    } else {
      dst[n++] = s->ptr[i++];
    }
  }
  return n;
}

// Writes the piece of one token (at most as long as its text); returns its length.
static size_t piece(const mtx_tok *t, int32_t id, char *dst) {
  const mtx_str *s = &t->text[id];
  unsigned a = t->attr[id];
  int32_t b = mtx_tok_byte_of(s);
  if (t->kind == MTX_KIND_RWKV) return mtx_rwkv_unescape(s, dst);
  if (t->kind == MTX_KIND_PLAMO2) {
    if (a & MTX_TOK_ATTR_BYTE && b >= 0) {
      *dst = (char)b;
      return 1;
    }
  } else if (!(a & (MTX_TOK_ATTR_UNKNOWN | MTX_TOK_ATTR_CONTROL | MTX_TOK_ATTR_USER))) {
    if (a & MTX_TOK_ATTR_NORMAL) {
      if (t->kind != MTX_KIND_BPE || t->escape_spaces) return unescape_spaces(s, dst);
      size_t n = t->byte_level ? mtx_gpt2_decode(s, dst) : SIZE_MAX;
      if (n != SIZE_MAX) return n;  // a text outside the alphabet is given as it is
    } else {
      if (!(a & MTX_TOK_ATTR_BYTE) || b < 0) return 0;
      *dst = (char)b;
      return 1;
    }
  }
  memcpy(dst, s->ptr, s->len);
  return s->len;
}

mtx_code mtx_tok_build_pieces(mtx_tok *t, mtx_err *err) {
  size_t total = 0;
  for (int32_t i = 0; i < t->n_tokens; i++) total += t->text[i].len;
  if (total > UINT32_MAX) return mtx_fail(err, MTX_ELIMIT, "the vocabulary's texts exceed 4 GiB");
  t->piece_off = malloc(((size_t)t->n_tokens + 1) * sizeof *t->piece_off);
  if (!t->piece_off) return mtx_fail(err, MTX_ENOMEM, "no memory for the vocabulary");
  mtx_code rc = mtx_buf_reserve(&t->pieces, total + 1, err);
  if (rc) return rc;
  for (int32_t i = 0; i < t->n_tokens; i++) {
    t->piece_off[i] = (uint32_t)t->pieces.len;
    if (t->text[i].len) t->pieces.len += piece(t, i, t->pieces.ptr + t->pieces.len);
  }
  t->piece_off[t->n_tokens] = (uint32_t)t->pieces.len;
  return MTX_OK;
}
