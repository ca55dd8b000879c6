// SPDX-License-Identifier: MIT
// Tries over byte strings, laid out for walking: that of a vocabulary, and
// small ones over what may follow the end of a frame (mask.h).
//
// Nodes are in depth-first order: a walk reads memory forwards, and skipping a
// subtree is one assignment. Words are sorted by
// their bytes, so those of a subtree are neighbours too.
#ifndef MTX_GRAMMAR_TRIE_H
#define MTX_GRAMMAR_TRIE_H

#include <stdatomic.h>

#include "grammar/grammar.h"

#define MTX_TRIE_MAX_PIECE 4096u  // a longer piece is refused

typedef struct {
  const char *p;
  uint32_t len, id;
} mtx_walk_trie_word;

typedef struct {
  uint32_t end;     // first node after the subtree
  uint32_t tok;     // words that end here: order[tok .. (node + 1)->tok)
  uint32_t kids;    // into kid_byte and kid_node, 0: not listed, go from child to child by `end`
  uint16_t depth;
  uint8_t byte;
  uint8_t n_kids;   // listed children, less one
} mtx_walk_node;

typedef struct {
  uint32_t n_nodes;      // 0 is the root
  uint32_t max_depth;
  mtx_walk_node *nodes;  // [n_nodes + 1]
  uint32_t *order;       // ids of the words by their bytes
  // Children of the nodes that have many: finding one would touch a line of memory each.
  uint8_t *kid_byte;
  uint32_t *kid_node;
  uint32_t n_kids;
} mtx_walk_trie;

// Sorts the list and builds; no word may be empty or longer than
// MTX_TRIE_MAX_PIECE. False: out of memory (t is then empty).
bool mtx_walk_trie_build(mtx_walk_trie *t, mtx_walk_trie_word *list, uint32_t n);
void mtx_walk_trie_fini(mtx_walk_trie *t);
size_t mtx_walk_trie_size_bytes(const mtx_walk_trie *t);

static inline uint32_t mtx_walk_trie_n_words(const mtx_walk_trie *t, uint32_t node) {
  return t->nodes[node + 1].tok - t->nodes[node].tok;
}

// Has the node a child with a byte of the set?
bool mtx_walk_trie_leads_on(const mtx_walk_trie *t, uint32_t node, const uint64_t bytes[4]);

struct mask_shared;  // mask.h

struct mtx_vocab_trie {
  atomic_int refs_held;
  uint64_t serial;    // tells tries apart after one was freed
  uint32_t n_tokens;
  char *bytes;        // all pieces, one after the other
  uint32_t *offsets;  // [n_tokens + 1] into bytes
  uint8_t *flags;     // [n_tokens]
  uint32_t n_eog, *eog;
  uint32_t n_control, *control;
  mtx_walk_trie trie;      // control, EOG and empty ones left out
  struct mask_shared *shared;
};

#endif
