// SPDX-License-Identifier: MIT
// The small kinds that need only a trie: RWKV (longest match) and PLaMo-2
// (cheapest path); and the loader they share with WordPiece.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tok/unicode.h"
#include "tok/vocab.h"

static mtx_code load_rwkv(mtx_tok *t, mtx_err *err) {
  size_t total = 0;
  for (int32_t i = 0; i < t->n_tokens; i++) total += t->text[i].len;
  t->rwkv_text = malloc((size_t)t->n_tokens * sizeof *t->rwkv_text);
  char *at = t->rwkv_bytes = malloc(total + 1);
  if (!t->rwkv_text || !at) return mtx_fail(err, MTX_ENOMEM, "no memory for the vocabulary");
  for (int32_t i = 0; i < t->n_tokens; i++) {
    t->rwkv_text[i] = (mtx_str){at, mtx_rwkv_unescape(&t->text[i], at)};
    at += t->rwkv_text[i].len;
  }
  return MTX_OK;
}

static mtx_code load_plamo2_bytes(mtx_tok *t, mtx_err *err) {
  for (int b = 0; b < 256; b++) t->byte_id[b] = -1;
  for (int32_t i = 0; i < t->n_tokens; i++) {
    int32_t b = t->attr[i] & MTX_TOK_ATTR_BYTE ? mtx_tok_byte_of(&t->text[i]) : -1;
    if (b >= 0) t->byte_id[b] = i;
  }
  for (int b = 0; b < 256; b++)
    if (t->byte_id[b] < 0)
      return mtx_fail_at(err, MTX_EFORMAT, NULL, "tokenizer.ggml.tokens", 0, "a PLaMo-2 vocabulary needs the byte token <0x%02X>", (unsigned)b);
  return MTX_OK;
}

mtx_code mtx_trie_kinds_load(mtx_tok *t, mtx_err *err) {
  mtx_code rc = t->kind == MTX_KIND_RWKV ? load_rwkv(t, err) : t->kind == MTX_KIND_PLAMO2 ? load_plamo2_bytes(t, err) : MTX_OK;
  if (rc) return rc;
  int32_t *ids = malloc((size_t)t->n_tokens * sizeof *ids);
  if (!ids) return mtx_fail(err, MTX_ENOMEM, "no memory for the vocabulary");
  size_t n = 0;
  for (int32_t i = 0; i < t->n_tokens; i++)
    if (t->kind != MTX_KIND_PLAMO2 || !(t->attr[i] & MTX_TOK_ATTR_BYTE)) ids[n++] = i;
  rc = mtx_trie_build(&t->trie, t->kind == MTX_KIND_RWKV ? t->rwkv_text : t->text, ids, n, err);
  free(ids);
  return rc;
}

mtx_code mtx_rwkv_encode(mtx_enc *e, const char *p, size_t n) {
  for (size_t i = 0, len; i < n; i += len) {
    int32_t id = mtx_trie_longest(&e->t->trie, p + i, n - i, &len);
    if (id < 0) {
      id = e->t->special[MTX_TOK_UNK];
      len = 1;
      if (id < 0) return mtx_fail(e->err, MTX_EFORMAT, "the vocabulary has neither a token for byte 0x%02X nor an unknown token", (uint8_t)p[i]);
    }
    mtx_code rc = mtx_ids_push(e->out, id, e->err);
    if (rc) return rc;
  }
  return MTX_OK;
}

typedef struct { int64_t cost; uint32_t len; int32_t id; } step;  // id -1: one character as byte tokens

// PLaMo-2 works in ten-thousandths of a score; what lies below INVALID is no
// token, and a character nothing covers costs UNKNOWN (modeling_plamo.py).
enum { PLAMO_INVALID = -20000000, PLAMO_UNKNOWN = 10000000 };

static mtx_code cheapest(mtx_enc *e, const char *p, size_t n, step *s) {
  const mtx_tok *t = e->t;
  s[n].cost = 0;
  for (size_t i = n; i-- > 0;) {
    if (((uint8_t)p[i] & 0xC0) == 0x80) continue;  // inside a character
    size_t len = mtx_utf8_len((unsigned char)p[i]);
    if (len > n - i) len = n - i;
    step b = {INT64_MAX, 0, -1};
    uint32_t node = 0;
    for (size_t j = i; j < n && (node = mtx_trie_step(&t->trie, node, (uint8_t)p[j]));) {
      int32_t id = t->trie.value[node];
      j++;
      float f = id >= 0 && t->score ? t->score[id] * 1e4f : 0;
      if (id < 0 || !(f > (float)PLAMO_INVALID && f < 2e9f) || (j < n && ((uint8_t)p[j] & 0xC0) == 0x80)) continue;
      int64_t cost = s[j].cost - (int64_t)roundf(f);
      if (cost <= b.cost) b = (step){cost, (uint32_t)(j - i), id};  // of equal costs the longest
    }
    if (s[i + len].cost + PLAMO_UNKNOWN < b.cost) b = (step){s[i + len].cost + PLAMO_UNKNOWN, (uint32_t)len, -1};
    s[i] = b;
  }
  for (size_t i = 0; i < n; i += s[i].len) {
    mtx_code rc = s[i].id >= 0 ? mtx_ids_push(e->out, s[i].id, e->err) : MTX_OK;
    for (size_t k = 0; s[i].id < 0 && !rc && k < s[i].len; k++) rc = mtx_ids_push(e->out, t->byte_id[(uint8_t)p[i + k]], e->err);
    if (rc) return rc;
  }
  return MTX_OK;
}

mtx_code mtx_plamo2_encode(mtx_enc *e, const char *p, size_t n) {
  mtx_code rc;
  if (!mtx_utf8_valid(p, n, NULL)) {
    e->text.len = 0;
    if ((rc = mtx_clean_utf8(&e->text, p, n, e->err))) return rc;
    p = e->text.ptr, n = e->text.len;
  }
  if (n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0) p += 3, n -= 3;  // a byte order mark
  if (!n) return MTX_OK;
  step *s = NULL;
  size_t cap = 0;
  rc = mtx_grow(&s, &cap, n + 1, sizeof *s, e->err);
  if (!rc) rc = cheapest(e, p, n, s);
  free(s);
  return rc;
}
