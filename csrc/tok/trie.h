// SPDX-License-Identifier: MIT
// A byte trie over token texts: which tokens start here, and which is longest.
//
// Nodes lie in breadth-first order, so a node's children are neighbours and
// need no pointers: 9 bytes a node. Immutable after build.
#ifndef MTX_TOK_TRIE_H
#define MTX_TOK_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gguf/gguf.h"

typedef struct {
  uint32_t n_nodes;
  uint32_t *first;  // [n_nodes+1]; children of k: first[k] .. first[k+1)
  int32_t *value;   // [n_nodes]; id or -1
  uint8_t *label;   // [n_nodes]; byte on the edge into the node, ascending among siblings
  uint32_t root[256];  // child of the root by byte; 0: none
} mtx_trie;

enum { MTX_TRIE_MAX_TEXT = 1024 };  // bytes; the longest tokens of real vocabularies have 256

// Over the n ids in `ids`, whose texts are text[id]; empty texts are left out,
// and so are those over MTX_TRIE_MAX_TEXT (a walk from every byte of a text may
// go that deep, and must not become quadratic). Of equal texts the first of
// `ids` wins. n may be 0.
mtx_code mtx_trie_build(mtx_trie *t, const mtx_str *text, const int32_t *ids, size_t n, mtx_err *err);
void mtx_trie_fini(mtx_trie *t);

// The child of `node` (0 is the root) by byte c; 0 if there is none.
static inline uint32_t mtx_trie_step(const mtx_trie *t, uint32_t node, uint8_t c) {
  if (!node) return t->root[c];
  uint32_t lo = t->first[node], hi = t->first[node + 1];
  while (hi - lo > 8) {
    uint32_t mid = (lo + hi) / 2;
    if (t->label[mid] <= c) lo = mid;
    else hi = mid;
  }
  for (; lo < hi; lo++)
    if (t->label[lo] == c) return lo;
  return 0;
}

// Longest text that starts p[0..n): its id and length; -1 if none.
int32_t mtx_trie_longest(const mtx_trie *t, const char *p, size_t n, size_t *len);

#endif
