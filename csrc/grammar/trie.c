// SPDX-License-Identifier: MIT
// Building the tries of trie.h.
#include <stdlib.h>
#include <string.h>

#include "grammar/mask.h"

static atomic_uint_fast64_t next_serial = 1;

static int cmp_word(const void *x, const void *y) {
  const mtx_walk_trie_word *a = x, *b = y;
  int c = memcmp(a->p, b->p, a->len < b->len ? a->len : b->len);
  if (c) return c;
  if (a->len != b->len) return a->len < b->len ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

static uint32_t common_prefix(const mtx_walk_trie_word *a, const mtx_walk_trie_word *b) {
  uint32_t n = 0;
  while (n < a->len && n < b->len && a->p[n] == b->p[n]) n++;
  return n;
}

static bool alloc_nodes(mtx_walk_trie *t, const mtx_walk_trie_word *list, uint32_t n) {
  uint64_t n_nodes = 1;
  for (uint32_t i = 0; i < n; i++) {
    n_nodes += list[i].len - (i ? common_prefix(list + i - 1, list + i) : 0);
    if (list[i].len > t->max_depth) t->max_depth = list[i].len;
  }
  if (n_nodes > UINT32_MAX / 2) return false;
  t->nodes = malloc((n_nodes + 1) * sizeof *t->nodes);
  t->order = malloc((n + 1) * sizeof *t->order);
  return t->nodes && t->order;
}

#define MIN_KIDS 8u  // children from which they are listed

static uint32_t count_kids(const mtx_walk_trie *t, uint32_t node) {
  uint32_t n = 0;
  for (uint32_t i = node + 1; i < t->nodes[node].end; i = t->nodes[i].end) n++;
  return n;
}

static bool list_kids(mtx_walk_trie *t) {
  uint32_t total = 1;  // 0 says "not listed"
  for (uint32_t i = 0; i < t->n_nodes; i++) {
    uint32_t n = count_kids(t, i);
    total += n >= MIN_KIDS ? n : 0;
  }
  t->kid_byte = malloc(total);
  t->kid_node = malloc(total * sizeof *t->kid_node);
  if (!t->kid_byte || !t->kid_node) return false;
  t->n_kids = 1;
  for (uint32_t i = 0; i < t->n_nodes; i++) {
    uint32_t n = count_kids(t, i);
    if (n < MIN_KIDS) continue;
    t->nodes[i].kids = t->n_kids;
    t->nodes[i].n_kids = (uint8_t)(n - 1);
    for (uint32_t k = i + 1; k < t->nodes[i].end; k = t->nodes[k].end) {
      t->kid_byte[t->n_kids] = t->nodes[k].byte;
      t->kid_node[t->n_kids++] = k;
    }
  }
  return true;
}

bool mtx_walk_trie_leads_on(const mtx_walk_trie *t, uint32_t node, const uint64_t bytes[4]) {
  const mtx_walk_node *x = t->nodes + node;
  if (x->kids) {
    for (uint32_t k = 0; k <= x->n_kids; k++) {
      const uint8_t b = t->kid_byte[x->kids + k];
      if (bytes[b >> 6] >> (b & 63) & 1) return true;
    }
    return false;
  }
  for (uint32_t i = node + 1; i < x->end; i = t->nodes[i].end) {
    const uint8_t b = t->nodes[i].byte;
    if (bytes[b >> 6] >> (b & 63) & 1) return true;
  }
  return false;
}

bool mtx_walk_trie_build(mtx_walk_trie *t, mtx_walk_trie_word *list, uint32_t n) {
  memset(t, 0, sizeof *t);
  qsort(list, n, sizeof *list, cmp_word);
  uint32_t *path = alloc_nodes(t, list, n) ? malloc((t->max_depth + 1) * sizeof *path) : NULL;
  if (!path) {
    mtx_walk_trie_fini(t);
    return false;
  }
  path[0] = 0;
  t->nodes[0] = (mtx_walk_node){0};
  t->n_nodes = 1;
  uint32_t depth = 0;
  for (uint32_t i = 0; i < n; i++) {
    t->order[i] = list[i].id;
    uint32_t keep = i ? common_prefix(list + i - 1, list + i) : 0;
    if (keep == list[i].len) continue;  // the same bytes again
    while (depth > keep) t->nodes[path[depth--]].end = t->n_nodes;
    while (depth < list[i].len) {
      uint32_t node = t->n_nodes++;
      t->nodes[node] = (mtx_walk_node){.tok = i, .depth = (uint16_t)(depth + 1), .byte = (uint8_t)list[i].p[depth]};
      path[++depth] = node;
    }
  }
  while (depth > 0) t->nodes[path[depth--]].end = t->n_nodes;
  t->nodes[0].end = t->n_nodes;
  t->nodes[t->n_nodes] = (mtx_walk_node){.tok = n};
  free(path);
  if (list_kids(t)) return true;
  mtx_walk_trie_fini(t);
  return false;
}

void mtx_walk_trie_fini(mtx_walk_trie *t) {
  free(t->nodes);
  free(t->order);
  free(t->kid_byte);
  free(t->kid_node);
  memset(t, 0, sizeof *t);
}

size_t mtx_walk_trie_size_bytes(const mtx_walk_trie *t) {
  if (!t->n_nodes) return 0;
  return (t->n_nodes + 1) * sizeof *t->nodes + t->nodes[t->n_nodes].tok * sizeof *t->order +
         t->n_kids * (sizeof *t->kid_byte + sizeof *t->kid_node);
}

static bool copy_pieces(mtx_vocab_trie *t, const char *const *pieces, const uint32_t *lens, const uint8_t *flags) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < t->n_tokens; i++) total += lens[i];
  if (total > UINT32_MAX) return false;
  t->bytes = malloc(total + 1);
  t->offsets = malloc(((size_t)t->n_tokens + 1) * sizeof *t->offsets);
  t->flags = calloc(t->n_tokens, 1);
  t->eog = malloc(t->n_tokens * sizeof *t->eog);
  t->control = malloc(t->n_tokens * sizeof *t->control);
  if (!t->bytes || !t->offsets || !t->flags || !t->eog || !t->control) return false;
  uint32_t at = 0;
  for (uint32_t i = 0; i < t->n_tokens; i++) {
    t->offsets[i] = at;
    if (lens[i]) memcpy(t->bytes + at, pieces[i], lens[i]);
    at += lens[i];
    if (flags) t->flags[i] = flags[i];
    if (t->flags[i] & MTX_TRIE_EOG)
      t->eog[t->n_eog++] = i;
    else if (t->flags[i] & MTX_TRIE_CONTROL)
      t->control[t->n_control++] = i;
  }
  t->offsets[t->n_tokens] = at;
  return true;
}

mtx_code mtx_vocab_trie_new(const char *const *pieces, const uint32_t *lens, const uint8_t *flags, uint32_t n,
                            mtx_vocab_trie **out, mtx_err *err) {
  *out = NULL;
  if (n == 0) return mtx_fail(err, MTX_EINVAL, "the vocabulary is empty");
  for (uint32_t i = 0; i < n; i++)
    if (lens[i] > MTX_TRIE_MAX_PIECE)
      return mtx_fail(err, MTX_ELIMIT, "token %u has %u bytes; at most %u are supported", i, lens[i], MTX_TRIE_MAX_PIECE);
  mtx_vocab_trie *t = calloc(1, sizeof *t);
  mtx_walk_trie_word *list = malloc(n * sizeof *list);
  if (!t || !list) goto fail;
  atomic_init(&t->refs_held, 1);
  t->serial = atomic_fetch_add(&next_serial, 1);
  t->n_tokens = n;
  if (!(t->shared = mtx_mask_shared_new()) || !copy_pieces(t, pieces, lens, flags)) goto fail;
  uint32_t k = 0;
  for (uint32_t i = 0; i < n; i++)
    if (lens[i] && !t->flags[i]) list[k++] = (mtx_walk_trie_word){t->bytes + t->offsets[i], lens[i], i};
  if (!mtx_walk_trie_build(&t->trie, list, k)) goto fail;
  free(list);
  *out = t;
  return MTX_OK;
fail:
  free(list);
  mtx_vocab_trie_unref(t);
  return mtx_fail(err, MTX_ENOMEM, "out of memory while building the vocabulary's trie");
}

uint32_t mtx_vocab_trie_n_tokens(const mtx_vocab_trie *t) { return t->n_tokens; }

mtx_vocab_trie *mtx_vocab_trie_ref(mtx_vocab_trie *t) {
  atomic_fetch_add(&t->refs_held, 1);
  return t;
}

void mtx_vocab_trie_unref(mtx_vocab_trie *t) {
  if (!t || atomic_fetch_sub(&t->refs_held, 1) > 1) return;
  free(t->bytes);
  free(t->offsets);
  free(t->flags);
  free(t->eog);
  free(t->control);
  mtx_walk_trie_fini(&t->trie);
  mtx_mask_shared_free(t->shared);
  free(t);
}
