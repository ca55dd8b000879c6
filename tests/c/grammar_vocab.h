// SPDX-License-Identifier: MIT
// What the tests of masks share: a grammar that must compile, a made-up vocabulary and
// matchers in it.
#ifndef GRAMMAR_VOCAB_H
#define GRAMMAR_VOCAB_H

#include <stdlib.h>

#include "check.h"
#include "grammar/grammar.h"

static inline mtx_grammar *gbnf(const char *text) {
  mtx_err err = {0};
  mtx_grammar *g = NULL;
  mtx_grammar_compile_gbnf(text, strlen(text), &g, &err);
  CHECK(g, "%s: %s", text, err.msg);
  return g;
}

static uint64_t rng = 88172645463325252u;
static inline uint32_t rnd(uint32_t n) {
  rng ^= rng << 13;
  rng ^= rng >> 7;
  rng ^= rng << 17;
  return (uint32_t)((rng >> 11) % n);
}

#define N_VOCAB 1500
static char *pieces[N_VOCAB];
static uint32_t lens[N_VOCAB];
static uint8_t flags[N_VOCAB];
enum { TOK_EOG = 256, TOK_THINK, TOK_END_THINK };

static inline mtx_vocab_trie *make_trie(void) {
  static const char *const seeds[] = {
      "{\"", "\":", "\", \"", "\"}", "},", "\",", "[[", "]]", "],[", "aaaa", "aab", "ab", "abc", "\"a", "\"abc\":",
      "true", "false", "null", "- ", "\n- ", "one\n", "12", "345", "6+7", ")+(", "((", "))", "\xc3\xa9", "\xc3",
      "\xa9x", "\xe3\x81\xb2", "\xe3\x81", "\xb2\xe3", "\\n", "\\u00", "x\\", "nn", "  ", "name", "value\"", "end</think>",
      "</think>{", "</thi", "nk>", "nk>\n{\"", "think", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  uint32_t n = 0;
  for (; n < 256; n++) {
    pieces[n] = malloc(1);
    pieces[n][0] = (char)n;
    lens[n] = 1;
  }
  static const char *const control[] = {"<eos>", "<think>", "</think>"};
  for (int i = 0; i < 3; i++, n++) {
    pieces[n] = strdup(control[i]);
    lens[n] = (uint32_t)strlen(control[i]);
    flags[n] = i == 0 ? MTX_TRIE_EOG : MTX_TRIE_CONTROL;
  }
  for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++, n++) {
    pieces[n] = strdup(seeds[i]);
    lens[n] = (uint32_t)strlen(seeds[i]);
  }
  static const char alphabet[] = "abcx{}[]\":,\\n0123 -+()\n";
  for (; n < N_VOCAB; n++) {
    lens[n] = 2 + rnd(4);
    pieces[n] = malloc(lens[n]);
    for (uint32_t k = 0; k < lens[n]; k++) pieces[n][k] = alphabet[rnd(sizeof alphabet - 1)];
  }
  mtx_vocab_trie *t = NULL;
  mtx_err err;
  CHECK(!mtx_vocab_trie_new((const char *const *)pieces, lens, flags, N_VOCAB, &t, &err));
  return t;
}

static inline void free_pieces(void) {
  for (int i = 0; i < N_VOCAB; i++) free(pieces[i]);
}

// A matcher that has taken the n tokens.
static inline mtx_matcher *replay(mtx_grammar *g, mtx_vocab_trie *t, const mtx_matcher_opts *opts, const uint32_t *taken, int n) {
  mtx_matcher *m = NULL;
  mtx_err err;
  bool ok = !mtx_matcher_new(g, t, opts, &m, &err);
  for (int i = 0; i < n && ok; i++) ok = !mtx_matcher_accept_token(m, taken[i], &err);
  if (!ok) CHECK(false, "%s", err.msg);
  return m;
}

#endif
