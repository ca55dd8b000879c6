// SPDX-License-Identifier: MIT
// Builds the trie from sorted texts, one range of equal prefixes per node.
#include "tok/trie.h"

#include <stdlib.h>
#include <string.h>

typedef struct { mtx_str s; int32_t id; uint32_t order; } item;
typedef struct { uint32_t lo, hi, depth; } span;

static int by_text(const void *pa, const void *pb) {
  const item *a = pa, *b = pb;
  size_t n = a->s.len < b->s.len ? a->s.len : b->s.len;
  int c = memcmp(a->s.ptr, b->s.ptr, n);
  if (c) return c;
  if (a->s.len != b->s.len) return a->s.len < b->s.len ? -1 : 1;
  return a->order < b->order ? -1 : a->order > b->order;
}

// Fills nodes breadth first; node k stands for the items range[k] agree on.
static void fill(mtx_trie *t, const item *it, span *range) {
  uint32_t n = 1;
  for (uint32_t k = 0; k < n; k++) {
    span r = range[k];
    t->value[k] = -1;
    t->first[k] = n;
    while (r.lo < r.hi && it[r.lo].s.len == r.depth) {
      if (t->value[k] < 0) t->value[k] = it[r.lo].id;
      r.lo++;
    }
    while (r.lo < r.hi) {
      uint8_t c = (uint8_t)it[r.lo].s.ptr[r.depth];
      uint32_t from = r.lo;
      while (r.lo < r.hi && (uint8_t)it[r.lo].s.ptr[r.depth] == c) r.lo++;
      t->label[n] = c;
      range[n++] = (span){from, r.lo, r.depth + 1};
    }
  }
  t->first[n] = n;
  t->n_nodes = n;
  for (uint32_t k = t->first[0]; n > 1 && k < t->first[1]; k++) t->root[t->label[k]] = k;
}

mtx_code mtx_trie_build(mtx_trie *t, const mtx_str *text, const int32_t *ids, size_t n, mtx_err *err) {
  mtx_code rc = MTX_ENOMEM;
  *t = (mtx_trie){0};
  item *it = malloc((n ? n : 1) * sizeof *it);
  span *range = NULL;
  size_t n_items = 0, n_bytes = 0;
  if (!it) goto fail;
  for (size_t i = 0; i < n; i++) {
    mtx_str s = text[ids[i]];
    if (!s.len || s.len > MTX_TRIE_MAX_TEXT) continue;
    it[n_items] = (item){s, ids[i], (uint32_t)i};
    n_items++;
    if (__builtin_add_overflow(n_bytes, s.len, &n_bytes) || n_bytes > UINT32_MAX / 16) {
      rc = mtx_fail(err, MTX_ELIMIT, "the vocabulary's texts are too long for a trie");
      goto fail;
    }
  }
  qsort(it, n_items, sizeof *it, by_text);
  // Shared prefixes are counted once: this is the exact number of nodes.
  size_t n_nodes = 1;
  for (size_t i = 0; i < n_items; i++) {
    size_t same = 0;
    if (i)
      while (same < it[i].s.len && same < it[i - 1].s.len && it[i].s.ptr[same] == it[i - 1].s.ptr[same]) same++;
    n_nodes += it[i].s.len - same;
  }
  range = malloc(n_nodes * sizeof *range);
  t->first = malloc((n_nodes + 1) * sizeof *t->first);
  t->value = malloc(n_nodes * sizeof *t->value);
  t->label = malloc(n_nodes);
  if (!range || !t->first || !t->value || !t->label) goto fail;
  range[0] = (span){0, (uint32_t)n_items, 0};
  fill(t, it, range);
  free(it);
  free(range);
  return MTX_OK;
fail:
  free(it);
  free(range);
  mtx_trie_fini(t);
  return rc == MTX_ENOMEM ? mtx_fail(err, rc, "no memory for the vocabulary's trie") : rc;
}

void mtx_trie_fini(mtx_trie *t) {
  free(t->first);
  free(t->value);
  free(t->label);
  *t = (mtx_trie){0};
}

int32_t mtx_trie_longest(const mtx_trie *t, const char *p, size_t n, size_t *len) {
  int32_t id = -1;
  uint32_t node = 0;
  for (size_t i = 0; i < n && (node = mtx_trie_step(t, node, (uint8_t)p[i]));)
    if (i++, t->value[node] >= 0) {
      id = t->value[node];
      *len = i;
    }
  return id;
}
