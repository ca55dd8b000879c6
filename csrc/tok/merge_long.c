// SPDX-License-Identifier: MIT
// Merging words of many symbols (runs of spaces, base64, text without spaces).
//
// A heap of pairs whose stale entries are skipped takes n log n, but over megabytes every step of it misses the
// caches. So a long word is merged in chunks, which are then joined, exactly:
//
//   A row of tokens is the merged form of its text if and only if every two neighbours are the merged form of theirs.
//
// (Take the first merge that crosses a border. Until then both sides merged as they do alone, for pairs are taken by key,
// then from the left, and which come first among those of two tokens does not depend on others. So the pair would be
// merged in the text of these two as well; and the other way round.) So a chunk begins some tokens before the end of what
// is merged already, for the last ones had not seen what follows them, and is added where the two fit; where they do not,
// it begins earlier. A word whose parts depend on each other over long distances is merged as a whole.
#include "tok/merge.h"

enum { CHUNK = 2048, AGAIN = 4 };  // symbols of a chunk; tokens before it that are merged again

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

static mtx_code push(mtx_enc *e, const char *p, const mtx_sym *s, uint32_t left, uint32_t right) {
  if (left == UINT32_MAX || right == UINT32_MAX) return MTX_OK;
  mtx_best b = mtx_pair_of(e->t, p, &s[left], &s[right]);
  if (b.key == UINT32_MAX) return MTX_OK;
  mtx_code rc = mtx_grow(&e->heap, &e->cap_heap, e->n_heap + 1, sizeof *e->heap, e->err);
  if (rc) return rc;
  mtx_cand x = {b.key, left, right, s[left].len + s[right].len, b.id};
  size_t i = e->n_heap++;
  for (; i && before(&x, &e->heap[(i - 1) / 2]); i = (i - 1) / 2) e->heap[i] = e->heap[(i - 1) / 2];
  e->heap[i] = x;
  return MTX_OK;
}

static mtx_code merge_heap(mtx_enc *e, const char *p, mtx_sym *s, uint32_t n, size_t *n_left) {
  mtx_code rc;
  for (uint32_t i = 0; i < n; i++) {
    s[i].prev = i - 1;  // UINT32_MAX for the first
    s[i].next = i + 1 < n ? i + 1 : UINT32_MAX;
  }
  e->n_heap = 0;
  for (uint32_t i = 0; i + 1 < n; i++)
    if ((rc = push(e, p, s, i, i + 1))) return rc;
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
    if ((rc = push(e, p, s, l->prev, c.left)) || (rc = push(e, p, s, c.left, l->next))) return rc;
  }
  size_t k = 0;
  for (uint32_t i = 0, next; i != UINT32_MAX; i = next) {
    next = s[i].next;
    s[k++] = s[i];
  }
  *n_left = k;
  return MTX_OK;
}

// Merges the symbols of p[from..to), max of them at most, into e->sym[at..at + *n); *end: where they end.
static mtx_code merged(mtx_enc *e, const char *p, size_t from, size_t to, size_t max, size_t at, size_t *n, size_t *end) {
  if (max > to - from) max = to - from;
  mtx_code rc = mtx_grow(&e->sym, &e->cap_sym, at + max, sizeof *e->sym, e->err);
  if (rc) return rc;
  mtx_sym *s = e->sym + at;
  size_t k = 0;
  for (; from < to && k < max; k++) {
    s[k].pos = (uint32_t)from;
    from += mtx_first_symbol(e->t, p + from, to - from, &s[k]);
  }
  *end = from;
  if (k > MTX_MERGE_FEW) return merge_heap(e, p, s, (uint32_t)k, n);
  *n = (size_t)mtx_merge_few(e->t, p, s, (int)k);
  return MTX_OK;
}

// Whether symbols a and b, neighbours in the text, stay apart: *yes. Uses e->sym from `at` on.
static mtx_code apart(mtx_enc *e, const char *p, size_t a, size_t b, size_t at, bool *yes) {
  size_t n, end;
  uint32_t len = e->sym[a].len;
  mtx_code rc = merged(e, p, e->sym[a].pos, (size_t)e->sym[b].pos + e->sym[b].len, SIZE_MAX, at, &n, &end);
  if (!rc) *yes = n == 2 && e->sym[at].len == len;
  return rc;
}

// Adds the chunk from byte *pos on to the tokens sym[0..*done); *spent counts the bytes merged again.
static mtx_code add_chunk(mtx_enc *e, const char *p, size_t n, size_t *done, size_t *pos, size_t *spent) {
  for (size_t k = AGAIN;; k *= 4) {
    size_t keep = k < *done ? *done - k : 0, from = e->sym[keep].pos, c, end;
    *spent += *pos - from;
    mtx_code rc = merged(e, p, from, n, CHUNK + (*pos - from), *done, &c, &end);
    bool fits = keep == 0;
    if (!rc && !fits) rc = apart(e, p, keep - 1, *done, *done + c, &fits);
    if (rc) return rc;
    if (!fits && *spent < 2 * *pos) continue;
    if (!fits) return merged(e, p, 0, n, SIZE_MAX, 0, done, pos);
    memmove(e->sym + keep, e->sym + *done, c * sizeof *e->sym);
    *done = keep + c;
    *pos = end;
    return MTX_OK;
  }
}

mtx_code mtx_merge_long(mtx_enc *e, const char *p, size_t n) {
  size_t done, pos, spent = 0;
  mtx_code rc = merged(e, p, 0, n, 2 * CHUNK, 0, &done, &pos);
  while (!rc && pos < n) rc = add_chunk(e, p, n, &done, &pos, &spent);
  return rc ? rc : mtx_merge_emit(e, p, e->sym, done);
}
