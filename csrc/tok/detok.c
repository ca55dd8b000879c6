// SPDX-License-Identifier: MIT
// Decoding: joined pieces with the vocabulary's clean-up, and the incremental
// detokenizer that never gives out half a character.
#include <string.h>

#include "tok/unicode.h"
#include "tok/vocab.h"

bool mtx_tok_piece(const mtx_tok *t, int32_t id, bool special, const char **ptr, size_t *len) {
  *ptr = "";
  *len = 0;
  if (id < 0 || id >= t->n_tokens) return false;
  if (!special && t->attr[id] & (MTX_TOK_ATTR_UNKNOWN | MTX_TOK_ATTR_CONTROL)) return true;
  *ptr = t->pieces.ptr + t->piece_off[id];
  *len = t->piece_off[id + 1] - t->piece_off[id];
  return true;
}

// Hugging Face's clean_up_tokenization_spaces as llama.cpp does it: three passes
// in place over text that starts at s[0]; returns the new length.
static size_t clean_spaces(char *s, size_t n) {
  size_t m = n ? 1 : 0;
  for (size_t i = 1; i < n; i++) {  // " ?" " !" " ." " ,"
    if (s[i - 1] == ' ' && memchr("?!.,", s[i], 4)) m--;
    s[m++] = s[i];
  }
  n = m;
  m = n ? 1 : 0;
  for (size_t i = 1; i < n; i++) {  // " ' "
    char x = s[i];
    if (x == '\'' && i + 1 < n && s[i - 1] == ' ' && s[i + 1] == ' ') {
      m--;
      s[++i] = 0;
    }
    s[m++] = x;
  }
  n = m;
  m = n ? 1 : 0;
  for (size_t i = 1; i < n; i++) {  // " 's" " 'm" " 're" " 've"
    if (s[i - 1] == ' ' && s[i] == '\'' && i + 1 < n) {
      char a = s[i + 1], b = i + 2 < n ? s[i + 2] : 0;
      if (a == 's' || a == 'm' || ((a == 'r' || a == 'v') && b == 'e')) m--;
    }
    s[m++] = s[i];
  }
  return m;
}

mtx_code mtx_tok_decode(const mtx_tok *t, const int32_t *ids, size_t n, unsigned flags, mtx_buf *out, mtx_err *err) {
  size_t start = out->len;
  bool strip = t->add_space_prefix && !(flags & MTX_TOK_RAW);
  if (flags & MTX_TOK_REMOVE_SPECIAL && t->add_bos && n && ids[0] == t->special[MTX_TOK_BOS]) {
    strip = false;
    ids++, n--;
  }
  if (flags & MTX_TOK_REMOVE_SPECIAL && t->add_eos && n && ids[n - 1] == t->special[MTX_TOK_EOS]) n--;
  for (size_t i = 0; i < n; i++) {
    const char *p;
    size_t len;
    if (!mtx_tok_piece(t, ids[i], flags & MTX_TOK_UNPARSE_SPECIAL, &p, &len)) {
      out->len = start;
      return mtx_fail(err, MTX_EINVAL, "token id %d is out of range: the vocabulary has %d tokens", (int)ids[i], (int)t->n_tokens);
    }
    if (strip && len && *p == ' ') p++, len--;
    strip = false;
    mtx_code rc = mtx_buf_append(out, p, len, err);
    if (rc) {
      out->len = start;
      return rc;
    }
  }
  if (t->clean_spaces && !(flags & MTX_TOK_RAW) && out->len > start) out->len = start + clean_spaces(out->ptr + start, out->len - start);
  return MTX_OK;
}

// How many bytes a character that starts with p[0] may still be made of: returns
// the length of the valid prefix p[0..k) and, in *need, the whole length; need 0
// when p[0] can start no character. Table 3-7 of the Unicode Standard.
static size_t valid_prefix(const unsigned char *p, size_t n, size_t *need) {
  unsigned char c = p[0], lo = 0x80, hi = 0xBF;
  *need = c < 0x80 ? 1 : c >= 0xC2 && c <= 0xDF ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
  if (c == 0xE0) lo = 0xA0;
  if (c == 0xED) hi = 0x9F;
  if (c == 0xF0) lo = 0x90;
  if (c == 0xF4) hi = 0x8F;
  size_t k = 1;
  for (; k < *need && k < n; k++) {
    if (p[k] < lo || p[k] > hi) break;
    lo = 0x80, hi = 0xBF;
  }
  return k;
}

// Appends p[0..n) with every broken sequence as one U+FFFD (the Standard's
// "maximal subpart"); an unfinished end of up to 3 bytes is left, its length in *left.
static mtx_code append_whole(const char *bytes, size_t n, mtx_buf *out, size_t *left, mtx_err *err) {
  const unsigned char *p = (const unsigned char *)bytes;
  size_t from = 0, i = 0;
  mtx_code rc;
  *left = 0;
  if (!n) return MTX_OK;
  while (i < n) {
    size_t need, k = valid_prefix(p + i, n - i, &need);
    if (k == need) {
      i += k;
      continue;
    }
    if (need && i + k == n) {
      *left = k;
      break;
    }
    if ((rc = mtx_buf_append(out, bytes + from, i - from, err)) || (rc = mtx_buf_append(out, "\xEF\xBF\xBD", 3, err))) return rc;
    i += k;
    from = i;
  }
  return mtx_buf_append(out, bytes + from, i - from, err);
}

void mtx_detok_init(mtx_detok *d, const mtx_tok *t, bool special, bool at_start) {
  *d = (mtx_detok){.tok = t, .special = special, .strip_space = at_start && t->add_space_prefix};
}

mtx_code mtx_detok_feed(mtx_detok *d, int32_t id, mtx_buf *out, mtx_err *err) {
  const char *p;
  size_t n;
  if (!mtx_tok_piece(d->tok, id, d->special, &p, &n))
    return mtx_fail(err, MTX_EINVAL, "token id %d is out of range: the vocabulary has %d tokens", (int)id, (int)d->tok->n_tokens);
  if (d->strip_space && n) {
    if (*p == ' ') p++, n--;
    d->strip_space = false;
  }
  return mtx_detok_bytes(d, p, n, out, err);
}

mtx_code mtx_detok_bytes(mtx_detok *d, const char *p, size_t n, mtx_buf *out, mtx_err *err) {
  size_t left;
  mtx_buf joined = {0};
  mtx_code rc = MTX_OK;
  if (d->n_held) {
    if ((rc = mtx_buf_append(&joined, d->held, d->n_held, err)) || (rc = mtx_buf_append(&joined, p, n, err))) goto done;
    p = joined.ptr, n = joined.len;
  }
  size_t len = out->len;
  if ((rc = append_whole(p, n, out, &left, err))) {
    out->len = len;
    goto done;
  }
  memcpy(d->held, p + n - left, left);
  d->n_held = (uint8_t)left;
done:
  mtx_buf_fini(&joined);
  return rc;
}

mtx_code mtx_detok_flush(mtx_detok *d, mtx_buf *out, mtx_err *err) {
  mtx_code rc = d->n_held ? mtx_buf_append(out, "\xEF\xBF\xBD", 3, err) : MTX_OK;
  if (!rc) d->n_held = 0;
  return rc;
}

mtx_code mtx_utf8_repair(const char *bytes, size_t n, mtx_buf *out, mtx_err *err) {
  size_t left, len = out->len;
  mtx_code rc = append_whole(bytes, n, out, &left, err);
  if (!rc && left) rc = mtx_buf_append(out, "\xEF\xBF\xBD", 3, err);
  if (rc) out->len = len;
  return rc;
}
