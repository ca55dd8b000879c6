// SPDX-License-Identifier: MIT
// Words, and the merge loop of both BPE kinds: the best adjacent pair first, ties leftmost.
//
// BPE's pairs are ranked by the merge list; SentencePiece's by the score of the
// token that the pair's text spells. Long words: merge_long.c. A cache per encode call remembers short words.
#include <stdlib.h>

#include "tok/merge.h"

enum { CACHE_BITS = 14, CACHE_WORD = 20, CACHE_IDS = 6, CACHE_FROM = 2048 };

struct mtx_word_cache {
  struct { uint32_t hash; uint8_t len, n_ids; char word[CACHE_WORD]; int32_t id[CACHE_IDS]; } slot[1 << CACHE_BITS];
};

static mtx_code emit(mtx_enc *e, const char *p, const mtx_sym *s) {
  const mtx_tok *t = e->t;
  if (s->id < (uint32_t)t->n_tokens) return mtx_ids_push(e->out, (int32_t)s->id, e->err);
  for (uint32_t i = 0; i < s->len; i++) {
    int32_t id = t->byte_id[(uint8_t)p[s->pos + i]];
    if (id < 0 && t->kind == MTX_KIND_BPE) continue;  // as the reference does
    if (id < 0) id = t->special[MTX_TOK_UNK];
    if (id < 0) return mtx_fail(e->err, MTX_EFORMAT, "the vocabulary has neither a token for byte 0x%02X nor an unknown token", (uint8_t)p[s->pos + i]);
    mtx_code rc = mtx_ids_push(e->out, id, e->err);
    if (rc) return rc;
  }
  return MTX_OK;
}

int mtx_merge_few(const mtx_tok *t, const char *p, mtx_sym *s, int n) {
  mtx_best b[MTX_MERGE_FEW];
  for (int i = 0; i + 1 < n; i++) b[i] = mtx_pair_of(t, p, &s[i], &s[i + 1]);
  while (n > 1) {
    int k = 0;
    for (int i = 1; i + 1 < n; i++)
      if (b[i].key < b[k].key) k = i;
    if (b[k].key == UINT32_MAX) break;
    s[k].len += s[k + 1].len;
    s[k].id = b[k].id;
    n--;
    memmove(&s[k + 1], &s[k + 2], (size_t)(n - k - 1) * sizeof *s);
    memmove(&b[k], &b[k + 1], (size_t)(n - k - 1) * sizeof *b);
    if (k > 0) b[k - 1] = mtx_pair_of(t, p, &s[k - 1], &s[k]);
    if (k + 1 < n) b[k] = mtx_pair_of(t, p, &s[k], &s[k + 1]);
  }
  return n;
}

mtx_code mtx_merge_emit(mtx_enc *e, const char *p, const mtx_sym *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    mtx_code rc = emit(e, p, &s[i]);
    if (rc) return rc;
  }
  return MTX_OK;
}

static mtx_code merge_symbols(mtx_enc *e, const char *p, size_t n) {
  mtx_sym s[MTX_MERGE_FEW];
  size_t k = 0, pos = 0;
  for (; pos < n && k < MTX_MERGE_FEW; k++) {
    s[k].pos = (uint32_t)pos;
    pos += mtx_first_symbol(e->t, p + pos, n - pos, &s[k]);
  }
  if (pos < n) return mtx_merge_long(e, p, n);
  return mtx_merge_emit(e, p, s, (size_t)mtx_merge_few(e->t, p, s, (int)k));
}

void mtx_cache_start(mtx_enc *e, size_t n) {
  if (!e->cache && n >= CACHE_FROM) e->cache = calloc(1, sizeof *e->cache);  // without it, only slower
}

static mtx_code plain_word(mtx_enc *e, const char *p, size_t n) {
  return e->t->kind == MTX_KIND_UGM ? mtx_ugm_word(e, p, n) : merge_symbols(e, p, n);
}

mtx_code mtx_encode_word(mtx_enc *e, const char *p, size_t n) {
  if (!n) return MTX_OK;
  if (!e->cache || n > CACHE_WORD) return plain_word(e, p, n);
  uint32_t hash = (uint32_t)mtx_hash_bytes(p, n, e->t->map.seed);
  size_t i = hash >> (32 - CACHE_BITS);
  if (e->cache->slot[i].hash == hash && e->cache->slot[i].len == n && memcmp(e->cache->slot[i].word, p, n) == 0)
    return mtx_ids_append(e->out, e->cache->slot[i].id, e->cache->slot[i].n_ids, e->err);
  size_t from = e->out->len;
  mtx_code rc = plain_word(e, p, n);
  if (rc) return rc;
  size_t n_ids = e->out->len - from;
  if (n_ids > CACHE_IDS) return MTX_OK;
  e->cache->slot[i].hash = hash;
  e->cache->slot[i].len = (uint8_t)n;
  e->cache->slot[i].n_ids = (uint8_t)n_ids;
  memcpy(e->cache->slot[i].word, p, n);
  memcpy(e->cache->slot[i].id, e->out->ptr + from, n_ids * sizeof(int32_t));
  return MTX_OK;
}

void mtx_tok_mark_glue(mtx_tok *t) {
  for (size_t i = 0; i < t->n_keys; i++) {
    const char *p = t->key[i].ptr;
    for (size_t j = 1; j + 3 <= t->key[i].len; j++) {
      if (memcmp(p + j, MTX_ESCAPED_SPACE, 3) != 0) continue;
      uint8_t c = (uint8_t)p[j - 1];
      if (j >= 3 && memcmp(p + j - 3, MTX_ESCAPED_SPACE, 3) == 0) continue;
      t->glue[c >> 5] |= 1u << (c & 31);
    }
  }
}

mtx_code mtx_encode_words(mtx_enc *e, const char *p, size_t n) {
  size_t from = 0;
  bool after_space = true;  // no cut at the very start
  for (size_t i = 0, len; i < n; i += len) {
    len = mtx_utf8_len((unsigned char)p[i]);
    if (len > n - i) len = n - i;
    bool space = len == 3 && memcmp(p + i, MTX_ESCAPED_SPACE, 3) == 0;
    if (space && !after_space) {
      uint8_t c = (uint8_t)p[i - 1];
      if (!(e->t->glue[c >> 5] >> (c & 31) & 1)) {
        mtx_code rc = mtx_encode_word(e, p + from, i - from);
        if (rc) return rc;
        from = i;
      }
    }
    after_space = space;
  }
  return mtx_encode_word(e, p + from, n - from);
}

mtx_code mtx_escape_spaces(mtx_buf *dst, const char *p, size_t n, mtx_err *err) {
  size_t n_spaces = 0;
  for (size_t i = 0; i < n; i++) n_spaces += p[i] == ' ';
  mtx_code rc = mtx_buf_reserve(dst, n + 2 * n_spaces, err);
  if (rc) return rc;
  char *d = dst->ptr + dst->len;
  for (size_t i = 0; i < n; i++) {
    if (p[i] == ' ') {
      memcpy(d, MTX_ESCAPED_SPACE, 3);
      d += 3;
    } else {
      *d++ = p[i];
    }
  }
  dst->len = (size_t)(d - dst->ptr);
  return MTX_OK;
}

mtx_code mtx_clean_utf8(mtx_buf *dst, const char *p, size_t n, mtx_err *err) {
  for (size_t i = 0; i < n;) {
    uint32_t cp;
    char c[4];
    i += mtx_utf8_decode((const unsigned char *)p + i, n - i, &cp);
    mtx_code rc = mtx_buf_append(dst, c, mtx_utf8_encode(cp, c), err);
    if (rc) return rc;
  }
  return MTX_OK;
}

void mtx_enc_fini(mtx_enc *e) {
  mtx_buf_fini(&e->text);
  mtx_buf_fini(&e->norm);
  mtx_cuts_fini(&e->cuts);
  mtx_cuts_fini(&e->tmp);
  free(e->cp);
  free(e->cls);
  free(e->off);
  free(e->sym);
  free(e->heap);
  free(e->path);
  free(e->cache);
}
