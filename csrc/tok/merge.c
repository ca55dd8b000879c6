// SPDX-License-Identifier: MIT
// Words, and the merge loop of both BPE kinds: the best adjacent pair first, ties leftmost.
//
// BPE's pairs are ranked by the merge list; SentencePiece's by the score of the
// token that the pair's text spells. Up to SMALL symbols the best pair is found
// by looking at all; longer words use a heap whose stale entries are skipped,
// n log n. A cache per encode call remembers short words.
#include <math.h>
#include <stdlib.h>

#include "tok/unicode.h"
#include "tok/vocab.h"

enum { SMALL = 32, CACHE_BITS = 14, CACHE_WORD = 20, CACHE_IDS = 6, CACHE_FROM = 2048 };

struct mtx_word_cache {
  struct { uint32_t hash; uint8_t len, n_ids; char word[CACHE_WORD]; int32_t id[CACHE_IDS]; } slot[1 << CACHE_BITS];
};

typedef struct { uint32_t key, id; } best;  // key: lower merges first; UINT32_MAX: no merge

// Scores ordered as unsigned numbers, the highest lowest. NaN never merges.
static uint32_t score_key(float f) {
  if (isnan(f)) return UINT32_MAX;
  f += 0.0f;  // -0 is 0
  uint32_t u;
  memcpy(&u, &f, 4);
  u = u & 0x80000000u ? ~u : u | 0x80000000u;
  return ~u < UINT32_MAX ? ~u : UINT32_MAX - 1;
}

static best pair_of(const mtx_tok *t, const char *p, const mtx_sym *a, const mtx_sym *b) {
  if (t->kind == MTX_KIND_BPE) {
    if (a->id == UINT32_MAX || b->id == UINT32_MAX) return (best){UINT32_MAX, 0};
    const mtx_pair *m = mtx_pairmap_get(&t->merges, a->id, b->id);
    return m ? (best){m->rank, m->merged} : (best){UINT32_MAX, 0};
  }
  size_t n = (size_t)a->len + b->len;
  if (n > t->max_key) return (best){UINT32_MAX, 0};
  int32_t id = mtx_strmap_get(&t->map, p + a->pos, n);
  if (id < 0) return (best){UINT32_MAX, 0};
  return (best){score_key(t->score ? t->score[id] : 0), (uint32_t)id};
}

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

static uint32_t first_symbol(const mtx_tok *t, const char *p, size_t n, mtx_sym *s) {
  size_t len = t->byte_level ? 1 : mtx_utf8_len((unsigned char)*p);
  if (len > n) len = n;
  s->len = (uint32_t)len;
  if (t->byte_level) {
    s->id = t->byte_sym[(uint8_t)*p];
  } else {
    int32_t id = mtx_strmap_get(&t->map, p, len);
    s->id = id < 0 ? UINT32_MAX : (uint32_t)id;
  }
  return s->len;
}

static mtx_code merge_small(mtx_enc *e, const char *p, mtx_sym *s, int n) {
  const mtx_tok *t = e->t;
  best b[SMALL];
  for (int i = 0; i + 1 < n; i++) b[i] = pair_of(t, p, &s[i], &s[i + 1]);
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
    if (k > 0) b[k - 1] = pair_of(t, p, &s[k - 1], &s[k]);
    if (k + 1 < n) b[k] = pair_of(t, p, &s[k], &s[k + 1]);
  }
  for (int i = 0; i < n; i++) {
    mtx_code rc = emit(e, p, &s[i]);
    if (rc) return rc;
  }
  return MTX_OK;
}

static bool before(const mtx_cand *a, const mtx_cand *b) {
  return a->key != b->key ? a->key < b->key : a->left < b->left;
}

static void sift_down(mtx_cand *h, size_t n, size_t i) {
  mtx_cand x = h[i];
  for (size_t c; (c = 2 * i + 1) < n; i = c) {
    if (c + 1 < n && before(&h[c + 1], &h[c])) c++;
    if (!before(&h[c], &x)) break;
    h[i] = h[c];
  }
  h[i] = x;
}

static mtx_code push(mtx_enc *e, const char *p, uint32_t left, uint32_t right) {
  if (left == UINT32_MAX || right == UINT32_MAX) return MTX_OK;
  best b = pair_of(e->t, p, &e->sym[left], &e->sym[right]);
  if (b.key == UINT32_MAX) return MTX_OK;
  mtx_code rc = mtx_grow(&e->heap, &e->cap_heap, e->n_heap + 1, sizeof *e->heap, e->err);
  if (rc) return rc;
  mtx_cand x = {b.key, left, right, e->sym[left].len + e->sym[right].len, b.id};
  size_t i = e->n_heap++;
  for (; i && before(&x, &e->heap[(i - 1) / 2]); i = (i - 1) / 2) e->heap[i] = e->heap[(i - 1) / 2];
  e->heap[i] = x;
  return MTX_OK;
}

static mtx_code merge_long(mtx_enc *e, const char *p, uint32_t n) {
  mtx_code rc;
  mtx_sym *s = e->sym;
  for (uint32_t i = 0; i < n; i++) {
    s[i].prev = i - 1;  // UINT32_MAX for the first
    s[i].next = i + 1 < n ? i + 1 : UINT32_MAX;
  }
  e->n_heap = 0;
  for (uint32_t i = 0; i + 1 < n; i++)
    if ((rc = push(e, p, i, i + 1))) return rc;
  while (e->n_heap) {
    mtx_cand c = e->heap[0];
    e->heap[0] = e->heap[--e->n_heap];
    if (e->n_heap) sift_down(e->heap, e->n_heap, 0);
    mtx_sym *l = &s[c.left], *r = &s[c.right];
    if (!l->len || !r->len || l->len + r->len != c.size) continue;
    l->len += r->len;
    l->id = c.id;
    r->len = 0;
    l->next = r->next;
    if (r->next != UINT32_MAX) s[r->next].prev = c.left;
    if ((rc = push(e, p, l->prev, c.left)) || (rc = push(e, p, c.left, l->next))) return rc;
  }
  for (uint32_t i = 0; i != UINT32_MAX; i = s[i].next)
    if ((rc = emit(e, p, &s[i]))) return rc;
  return MTX_OK;
}

static mtx_code merge_symbols(mtx_enc *e, const char *p, size_t n) {
  mtx_sym small[SMALL];
  size_t k = 0, pos = 0;
  for (; pos < n && k < SMALL; k++) {
    small[k].pos = (uint32_t)pos;
    pos += first_symbol(e->t, p + pos, n - pos, &small[k]);
  }
  if (pos == n) return merge_small(e, p, small, (int)k);
  mtx_code rc = mtx_grow(&e->sym, &e->cap_sym, n, sizeof *e->sym, e->err);
  if (rc) return rc;
  memcpy(e->sym, small, sizeof small);
  for (; pos < n; k++) {
    e->sym[k].pos = (uint32_t)pos;
    pos += first_symbol(e->t, p + pos, n - pos, &e->sym[k]);
  }
  return merge_long(e, p, (uint32_t)k);
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
