// SPDX-License-Identifier: MIT
// What every grammar fuzz target does once a grammar compiled: masks and steps
// under a byte vocabulary, checked against each other.
#ifndef MTX_TESTS_FUZZ_GRAMMAR_BODY_H
#define MTX_TESTS_FUZZ_GRAMMAR_BODY_H

#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

enum { FUZZ_TOKENS = 258 };  // 256 bytes, one long token, one end token

static inline mtx_vocab_trie *fuzz_trie(void) {
  static char bytes[256];
  static const char *pieces[FUZZ_TOKENS];
  static uint32_t lens[FUZZ_TOKENS];
  static uint8_t flags[FUZZ_TOKENS];
  static mtx_vocab_trie *t;
  if (t) return t;
  for (int i = 0; i < 256; i++) bytes[i] = (char)i, pieces[i] = bytes + i, lens[i] = 1;
  pieces[256] = "\":aa", lens[256] = 4;
  pieces[257] = "<eos>", lens[257] = 5, flags[257] = MTX_TRIE_EOG;
  if (mtx_vocab_trie_new(pieces, lens, flags, FUZZ_TOKENS, &t, NULL)) abort();
  return t;
}

// Follows the mask, steered by steer[0..n); takes g.
static inline void fuzz_walk(mtx_grammar *g, const uint8_t *steer, size_t n) {
  mtx_matcher *m;
  mtx_err err;
  if (mtx_matcher_new(g, fuzz_trie(), NULL, &m, &err) == MTX_OK) {
    for (size_t i = 0; i < n && i < 24; i++) {
      uint64_t bits[(FUZZ_TOKENS + 63) / 64];
      if (mtx_matcher_mask(m, bits, &err)) break;
      uint32_t first = steer[i], id = FUZZ_TOKENS;
      for (uint32_t k = 0; k < FUZZ_TOKENS && id == FUZZ_TOKENS; k++) {
        uint32_t c = (first + k) % FUZZ_TOKENS;
        if (bits[c >> 6] >> (c & 63) & 1) id = c;
      }
      if (id == FUZZ_TOKENS) break;
      mtx_code code = mtx_matcher_accept_token(m, id, &err);
      if (code == MTX_EINVAL) abort();  // the mask promised it
      if (code || id == 257) break;
    }
    mtx_matcher_free(m);
  }
  mtx_grammar_unref(g);
}

#endif
