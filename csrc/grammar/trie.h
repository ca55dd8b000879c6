// SPDX-License-Identifier: MIT
// Tries over byte strings, laid out for walking: that of a vocabulary, and
// small ones over what may follow the end of a frame (mask.h).
//
// Nodes are in depth-first order in parallel arrays: a walk reads memory
// forwards, and skipping a subtree is one assignment. Words are sorted by
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
  uint32_t n_nodes;  // 0 is the root
  uint32_t max_depth;
  uint8_t *byte;     // [n_nodes]
  uint32_t *end;     // [n_nodes] first node after the subtree
  uint16_t *depth;   // [n_nodes]
  uint32_t *tok;     // [n_nodes + 1] words that end at i: order[tok[i] .. tok[i + 1])
  uint32_t *order;   // ids of the words by their bytes
} mtx_walk_trie;

// Sorts the list and builds; no word may be empty or longer than
// MTX_TRIE_MAX_PIECE. False: out of memory (t is then empty).
bool mtx_walk_trie_build(mtx_walk_trie *t, mtx_walk_trie_word *list, uint32_t n);
void mtx_walk_trie_fini(mtx_walk_trie *t);
size_t mtx_walk_trie_size_bytes(const mtx_walk_trie *t);

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
