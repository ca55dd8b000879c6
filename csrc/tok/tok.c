// SPDX-License-Identifier: MIT
// Encoding: special tokens are cut out of the text first, the longest first
// wherever they stand; what is left goes to the vocabulary's own kind.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tok/vocab.h"

typedef struct { uint32_t pos, len; int32_t id; } hit;  // a special token at text[pos, pos+len)

typedef struct {
  const mtx_tok *t;
  const char *text;
  size_t n;
  bool parse;
  const mtx_span *span;
  size_t n_spans;
  mtx_err *err;
  hit *heap, *taken;          // candidates, longest first; accepted
  size_t n_heap, cap_heap, n_taken, cap_taken;
  uint8_t *used;              // bitmap of text bytes that are gone
} partition;

static bool is_used(const partition *p, size_t i) { return p->used[i >> 3] >> (i & 7) & 1; }
static void set_used(partition *p, size_t i) { p->used[i >> 3] |= (uint8_t)(1u << (i & 7)); }

// True if [b, e) lies inside one span. Spans are ascending: binary search.
static bool trusted(const partition *p, size_t b, size_t e) {
  if (!p->span) return true;
  size_t lo = 0, hi = p->n_spans;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (p->span[mid].end < e) lo = mid + 1;
    else hi = mid;
  }
  return lo < p->n_spans && p->span[lo].begin <= b;
}

// The longest special token at `pos` that is shorter than `below` and allowed there.
static bool longest_at(const partition *p, size_t pos, size_t below, hit *h) {
  const mtx_tok *t = p->t;
  uint32_t node = 0;
  bool found = false;
  for (size_t i = pos; i < p->n && i - pos + 1 < below && (node = mtx_trie_step(&t->special_trie, node, (uint8_t)p->text[i]));) {
    int32_t id = t->special_trie.value[node];
    i++;
    if (id < 0) continue;
    bool control = t->attr[id] & (MTX_TOK_ATTR_CONTROL | MTX_TOK_ATTR_UNKNOWN);
    if (control && !(p->parse && trusted(p, pos, i))) continue;
    *h = (hit){(uint32_t)pos, (uint32_t)(i - pos), id};
    found = true;
  }
  return found;
}

static bool before(const hit *a, const hit *b) {
  if (a->len != b->len) return a->len > b->len;
  return a->id != b->id ? a->id < b->id : a->pos < b->pos;
}

static mtx_code push(partition *p, hit h) {
  mtx_code rc = mtx_grow(&p->heap, &p->cap_heap, p->n_heap + 1, sizeof *p->heap, p->err);
  if (rc) return rc;
  size_t i = p->n_heap++;
  for (; i && before(&h, &p->heap[(i - 1) / 2]); i = (i - 1) / 2) p->heap[i] = p->heap[(i - 1) / 2];
  p->heap[i] = h;
  return MTX_OK;
}

static hit pop(partition *p) {
  hit top = p->heap[0], x = p->heap[--p->n_heap];
  size_t i = 0;
  for (size_t c; (c = 2 * i + 1) < p->n_heap; i = c) {
    if (c + 1 < p->n_heap && before(&p->heap[c + 1], &p->heap[c])) c++;
    if (!before(&p->heap[c], &x)) break;
    p->heap[i] = p->heap[c];
  }
  p->heap[i] = x;
  return top;
}

static mtx_code take(partition *p, hit h) {
  mtx_code rc = mtx_grow(&p->taken, &p->cap_taken, p->n_taken + 1, sizeof *p->taken, p->err);
  if (rc) return rc;
  p->taken[p->n_taken++] = h;
  for (size_t i = 0; i < h.len; i++) set_used(p, h.pos + i);
  unsigned a = p->t->attr[h.id];
  if (a & MTX_TOK_ATTR_LSTRIP)
    for (size_t i = h.pos; i > 0 && !is_used(p, i - 1) && isspace((unsigned char)p->text[i - 1]); i--) set_used(p, i - 1);
  if (a & MTX_TOK_ATTR_RSTRIP)
    for (size_t i = (size_t)h.pos + h.len; i < p->n && !is_used(p, i) && isspace((unsigned char)p->text[i]); i++) set_used(p, i);
  return MTX_OK;
}

static int by_pos(const void *a, const void *b) {
  uint32_t x = ((const hit *)a)->pos, y = ((const hit *)b)->pos;
  return x < y ? -1 : x > y;
}

// Fills taken, ascending by position. A longer token wins over a shorter one
// that starts before it, as when each is searched for in order of length.
static mtx_code find_specials(partition *p) {
  mtx_code rc;
  hit h;
  p->used = calloc(p->n / 8 + 1, 1);
  if (!p->used) return mtx_fail(p->err, MTX_ENOMEM, "no memory to split a text of %zu bytes", p->n);
  for (size_t i = 0; i < p->n; i++)
    if (p->t->special_trie.root[(uint8_t)p->text[i]] && longest_at(p, i, SIZE_MAX, &h) && (rc = push(p, h))) return rc;
  while (p->n_heap) {
    h = pop(p);
    if (is_used(p, h.pos)) continue;
    if (!is_used(p, h.pos + h.len - 1)) {
      if ((rc = take(p, h))) return rc;
    } else if (longest_at(p, h.pos, h.len, &h) && (rc = push(p, h))) {
      return rc;
    }
  }
  if (p->n_taken) qsort(p->taken, p->n_taken, sizeof *p->taken, by_pos);
  return MTX_OK;
}

static mtx_code encode_plain(mtx_enc *e, const char *p, size_t n, bool first) {
  switch (e->t->kind) {
    case MTX_KIND_BPE: return mtx_bpe_encode(e, p, n);
    case MTX_KIND_SPM: return mtx_spm_encode(e, p, n, first && e->t->add_space_prefix);
    case MTX_KIND_WPM: return mtx_wpm_encode(e, p, n);
    case MTX_KIND_UGM: return mtx_ugm_encode(e, p, n);
    case MTX_KIND_RWKV: return mtx_rwkv_encode(e, p, n);
    case MTX_KIND_PLAMO2: return mtx_plamo2_encode(e, p, n);
  }
  return MTX_EINTERNAL;
}

// Text between tokens may have lost bytes at either end to LSTRIP and RSTRIP.
static mtx_code encode_gap(mtx_enc *e, const partition *p, size_t b, size_t end, bool first) {
  while (b < end && is_used(p, b)) b++;
  while (b < end && is_used(p, end - 1)) end--;
  return b < end ? encode_plain(e, p->text + b, end - b, first) : MTX_OK;
}

static mtx_code encode_all(mtx_enc *e, const partition *p, unsigned flags) {
  const mtx_tok *t = e->t;
  mtx_code rc;
  bool special = flags & MTX_TOK_ADD_SPECIAL;
  bool bos = t->kind == MTX_KIND_WPM || (t->add_bos && t->kind != MTX_KIND_RWKV && t->kind != MTX_KIND_PLAMO2);
  bool has_bos = p->n_taken && p->taken[0].pos == 0 && p->taken[0].id == t->special[MTX_TOK_BOS];
  if (special && bos && t->special[MTX_TOK_BOS] >= 0 && !(flags & MTX_TOK_BOS_ONCE && has_bos) &&
      (rc = mtx_ids_push(e->out, t->special[MTX_TOK_BOS], e->err)))
    return rc;
  size_t from = 0;
  bool first = !(flags & MTX_TOK_CONTINUE);  // SPM: a space is put before text at the start and after a special token
  for (size_t i = 0; i < p->n_taken; i++) {
    if ((rc = encode_gap(e, p, from, p->taken[i].pos, first))) return rc;
    if ((rc = mtx_ids_push(e->out, p->taken[i].id, e->err))) return rc;
    from = (size_t)p->taken[i].pos + p->taken[i].len;
    first = true;
  }
  if ((rc = encode_gap(e, p, from, p->n, first)) || !special) return rc;
  if (t->kind == MTX_KIND_WPM) return t->special[MTX_TOK_SEP] >= 0 ? mtx_ids_push(e->out, t->special[MTX_TOK_SEP], e->err) : MTX_OK;
  bool eos = t->add_eos && t->kind != MTX_KIND_RWKV && t->kind != MTX_KIND_PLAMO2;
  return eos ? mtx_ids_push(e->out, t->special[MTX_TOK_EOS], e->err) : MTX_OK;
}

static mtx_code check_spans(const mtx_span *span, size_t n_spans, size_t n, mtx_err *err) {
  size_t at = 0;
  for (size_t i = 0; i < n_spans; i++) {
    if (span[i].begin < at || span[i].end < span[i].begin || span[i].end > n)
      return mtx_fail(err, MTX_EINVAL, "span %zu (%zu to %zu) is out of order or outside the text of %zu bytes", i + 1, span[i].begin, span[i].end, n);
    at = span[i].end;
  }
  return MTX_OK;
}

mtx_code mtx_tok_encode(const mtx_tok *t, const char *text, size_t n, unsigned flags, const mtx_span *spans, size_t n_spans,
                        mtx_ids *out, mtx_err *err) {
  if (n > MTX_TOK_MAX_TEXT) return mtx_fail(err, MTX_ELIMIT, "a text of %zu bytes is too long to tokenize at once; the limit is 1 GiB", n);
  mtx_code rc = check_spans(spans, n_spans, n, err);
  if (rc) return rc;
  partition p = {.t = t, .text = text, .n = n, .parse = flags & MTX_TOK_PARSE_SPECIAL, .span = spans, .n_spans = n_spans, .err = err};
  mtx_enc e = {.t = t, .out = out, .err = err};
  size_t len = out->len;
  rc = find_specials(&p);
  if (!rc) rc = encode_all(&e, &p, flags);
  if (rc) out->len = len;
  free(p.heap);
  free(p.taken);
  free(p.used);
  mtx_enc_fini(&e);
  return rc;
}
