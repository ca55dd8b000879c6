// SPDX-License-Identifier: MIT
// Any bytes as GBNF, JSON Schema, the same for plain text, or regex; what compiles is walked: masks are
// asked for, a token of the mask must be accepted, another one must not.
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

// Tokens that lie across the borders of strings, keys, items and repetitions.
static const char *const words[] = {"{\"", "\":", "\": \"", "\", \"", "\"}", "\"},", "}}", "]]", "],[", ", ", "true", "null", "10", "-1", ".5", "e+",
                                    "aa", "aaaa", "aaaaaaaaaaaaaaaaaaaaaaaa", "ab", "abc", "ba\"", "\"a\"", "\\n", "\\\"", "\\u00", "  ", "\n- ",
                                    "\xc3\xa9", "\xa9x", "\xe2\x82", "\xac\xe2", "xyz", "x,x,x", "::=", "end\n"};
enum { N_WORDS_LISTED = sizeof words / sizeof *words, TOK_END = 256 + N_WORDS_LISTED, N_TOKENS, N_WORDS = (N_TOKENS + 63) / 64 };

static mtx_vocab_trie *byte_trie(void) {
  static char bytes[256];
  const char *pieces[N_TOKENS];
  uint32_t lens[N_TOKENS];
  uint8_t flags[N_TOKENS] = {0};
  for (int i = 0; i < 256; i++) bytes[i] = (char)i, pieces[i] = &bytes[i], lens[i] = 1;
  for (int i = 0; i < N_WORDS_LISTED; i++) pieces[256 + i] = words[i], lens[256 + i] = (uint32_t)strlen(words[i]);
  pieces[TOK_END] = "", lens[TOK_END] = 0;
  flags[TOK_END] = MTX_TRIE_CONTROL | MTX_TRIE_EOG;
  mtx_vocab_trie *t = NULL;
  if (mtx_vocab_trie_new(pieces, lens, flags, N_TOKENS, &t, NULL) != MTX_OK) abort();
  return t;
}

static void walk(mtx_grammar *g, mtx_vocab_trie *trie, uint32_t seed) {
  mtx_matcher *m = NULL;
  if (mtx_matcher_new(g, trie, NULL, &m, NULL) != MTX_OK) return;
  for (int step = 0; step < 24; step++) {
    uint64_t bits[N_WORDS];
    char text[64];
    mtx_matcher_describe(m, text, sizeof text);
    if (mtx_matcher_mask(m, bits, NULL) != MTX_OK) break;
    uint32_t allowed = UINT32_MAX, refused = UINT32_MAX;
    for (uint32_t k = 0; k < N_TOKENS; k++) {
      seed = seed * 1664525u + 1013904223u;
      uint32_t id = (k + seed / 65536) % N_TOKENS;
      if (bits[id / 64] >> (id % 64) & 1) allowed = id;
      else if (id != TOK_END) refused = id;
    }
    if (refused != UINT32_MAX && mtx_matcher_accept_token(m, refused, NULL) == MTX_OK) abort();
    if (allowed == UINT32_MAX || allowed == TOK_END) break;
    if (mtx_matcher_accept_token(m, allowed, NULL) != MTX_OK) abort();
  }
  mtx_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static mtx_vocab_trie *trie;
  if (!trie) trie = byte_trie();
  if (size < 2) return 0;
  mtx_grammar *g = NULL;
  mtx_err err;
  const char *text = (const char *)data + 1;
  mtx_code code;
  const mtx_schema_rule rule = {.name = "t", .name_len = 1, .text = text, .len = size - 1, .as_text = true, .stop = "</p>", .stop_len = data[0] & 16 ? 4 : 0};
  if (data[0] % 4 == 3) code = mtx_grammar_compile_mixed("root ::= t \"</p>\"", 17, &rule, 1, NULL, &g, &err);
  else if (data[0] % 4 == 0) code = mtx_grammar_compile_gbnf(text, size - 1, &g, &err);
  else if (data[0] % 4 == 1) code = mtx_grammar_compile_json_schema(text, size - 1, NULL, &g, &err);
  else code = mtx_grammar_compile_regex(text, size - 1, &g, &err);
  if (code != MTX_OK) {
    if (err.code != code) abort();
    return 0;
  }
  for (size_t i = 0; i < mtx_grammar_n_warnings(g); i++)
    if (!mtx_grammar_get_warning(g, i)) abort();
  walk(g, trie, (uint32_t)size);
  mtx_grammar_unref(g);
  return 0;
}
