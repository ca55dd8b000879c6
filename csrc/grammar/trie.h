// SPDX-License-Identifier: MIT
// The byte trie over a vocabulary, laid out for walking.
//
// Nodes are in depth-first order in parallel arrays: a walk reads memory
// forwards, and skipping a subtree is one assignment. Tokens are sorted by
// their bytes, so those of a subtree are neighbours too.
#ifndef MTX_GRAMMAR_TRIE_H
#define MTX_GRAMMAR_TRIE_H

#include <stdatomic.h>

#include "grammar/grammar.h"

#define MTX_TRIE_MAX_PIECE 4096u  // a longer piece is refused

struct mtx_vocab_trie {
  atomic_int refs_held;
  uint64_t serial;    // tells tries apart after one was freed
  uint32_t n_tokens;
  char *bytes;        // all pieces, one after the other
  uint32_t *offsets;  // [n_tokens + 1] into bytes
  uint8_t *flags;     // [n_tokens]
  uint32_t n_eog, *eog;
  uint32_t n_control, *control;
  // nodes; 0 is the root
  uint32_t n_nodes;
  uint8_t *byte;      // [n_nodes]
  uint32_t *end;      // [n_nodes] first node after the subtree
  uint16_t *depth;    // [n_nodes]
  uint32_t *tok;      // [n_nodes + 1] tokens that end at i: order[tok[i] .. tok[i + 1])
  uint32_t *order;    // token ids by their bytes; control, EOG and empty ones left out
  uint32_t max_depth;
};

#endif
