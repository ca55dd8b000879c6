// SPDX-License-Identifier: MIT
// WordPiece (BERT): words in lower case without accents, each the greedy
// sequence of longest pieces, or the unknown token as a whole.
//
// In GGUF the pieces that start a word begin with U+2581 and the others have
// lost their "##".
#include "tok/unicode.h"
#include "tok/vocab.h"

// The Han blocks that BERT writes as one word per character; the hole at U+2B820
// is Hugging Face's.
static bool alone(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// e->norm holds U+2581 and a word; encodes it and starts the next.
static mtx_code flush(mtx_enc *e) {
  const mtx_tok *t = e->t;
  size_t from = e->out->len;
  const char *p = e->norm.ptr;
  size_t n = e->norm.len, len;
  e->norm.len = 3;
  if (n <= 3) return MTX_OK;
  for (size_t i = 0; i < n; i += len) {
    int32_t id = mtx_trie_longest(&t->trie, p + i, n - i, &len);
    if (id < 0) {
      e->out->len = from;
      break;
    }
    mtx_code rc = mtx_ids_push(e->out, id, e->err);
    if (rc) return rc;
  }
  if (e->out->len > from || t->special[MTX_TOK_UNK] < 0) return MTX_OK;
  return mtx_ids_push(e->out, t->special[MTX_TOK_UNK], e->err);
}

// Appends the run of ASCII letters and digits that starts p[0..n); returns its length.
static size_t ascii_run(mtx_enc *e, const char *p, size_t n) {
  size_t k = 0;
  for (; k < n; k++) {
    unsigned char c = (unsigned char)p[k], low = c | 32;
    if (!(low >= 'a' && low <= 'z') && !(c >= '0' && c <= '9')) break;
    if (e->norm.len == e->norm.cap && mtx_buf_reserve(&e->norm, 64, NULL)) break;  // the slow path reports it
    e->norm.ptr[e->norm.len++] = (char)(e->t->lowercase && c >= 'A' ? low : c);
  }
  return k;
}

mtx_code mtx_wpm_encode(mtx_enc *e, const char *p, size_t n) {
  const mtx_tok *t = e->t;
  mtx_code rc;
  e->norm.len = 0;
  if ((rc = mtx_buf_append(&e->norm, MTX_ESCAPED_SPACE, 3, e->err))) return rc;
  for (size_t i = 0; i < n;) {
    uint32_t c;
    char u[4];
    if ((i += ascii_run(e, p + i, n - i)) == n) break;
    i += mtx_utf8_decode((const unsigned char *)p + i, n - i, &c);
    if (t->strip_accents) c = mtx_uni_base(c);
    uint8_t cls = mtx_uni_class(c);
    if (cls & MTX_UNI_WS) {
      if ((rc = flush(e))) return rc;
      continue;
    }
    if (c == 0 || c == 0xFFFD || cls & MTX_UNI_C || (t->strip_accents && cls & MTX_UNI_M)) continue;
    bool single = cls & MTX_UNI_P || (c < 0x7F && cls & MTX_UNI_S) || alone(c);
    if (single && (rc = flush(e))) return rc;
    if ((rc = mtx_buf_append(&e->norm, u, mtx_utf8_encode(t->lowercase ? mtx_uni_lower(c) : c, u), e->err))) return rc;
    if (single && (rc = flush(e))) return rc;
  }
  return flush(e);
}
