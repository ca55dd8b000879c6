// SPDX-License-Identifier: MIT
// Constrained output: what a model may say next, as a set of token ids.
//
// A grammar is compiled once (from GBNF, a JSON Schema, a regex or a list of
// choices) and is immutable afterwards; a trie is built once per vocabulary.
// A matcher is one position in one grammar: it says which tokens may come next
// and moves on by the token that was chosen. Grammar and trie may be shared by
// any number of matchers on any threads; one matcher belongs to one thread at
// a time.
//
// Exactness: a token is allowed if and only if its bytes keep the text a prefix
// of some text of the grammar, wherever the token starts and ends in it. Every
// state that a matcher can reach can be completed, so the mask never leads
// into a dead end (a vocabulary without single-byte tokens can: then it is empty).
#ifndef MTX_GRAMMAR_GRAMMAR_H
#define MTX_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct mtx_grammar mtx_grammar;
typedef struct mtx_vocab_trie mtx_vocab_trie;
typedef struct mtx_matcher mtx_matcher;

// Compile limits. A text or schema beyond them is refused with MTX_ELIMIT.
#define MTX_GRAMMAR_MAX_TEXT_BYTES (4u << 20)
#define MTX_GRAMMAR_MAX_STATES 200000u
#define MTX_GRAMMAR_MAX_RULES 50000u
#define MTX_GRAMMAR_MAX_REPEAT 1000000000u
#define MTX_GRAMMAR_MAX_COMPILE_MS 1000  // of the compiling thread's processor time

// ---- grammars ---------------------------------------------------------------

// GBNF as llama.cpp's grammars/README.md describes it, token references
// (<[id]>, <text>, and both with a leading !) included. Start rule: "root".
// err->offset is the byte at fault.
mtx_code mtx_grammar_compile_gbnf(const char *text, size_t len, mtx_grammar **out, mtx_err *err);

// A whole text that matches the regex as ECMA-262 (flag u) would match it
// somewhere in the text: JSON Schema's `pattern` meaning. ^ and $ anchor.
// Look-around, back-references, \b and Unicode properties other than the main categories
// (\p{L}, \p{Letter}) are MTX_EUNSUPPORTED with their position.
mtx_code mtx_grammar_compile_regex(const char *text, size_t len, mtx_grammar **out, mtx_err *err);

// Exactly one of n strings. Duplicates are fine; n == 0 is an error.
mtx_code mtx_grammar_compile_choice(const char *const *choices, const size_t *lens, size_t n,
                                    mtx_grammar **out, mtx_err *err);

typedef enum {
  MTX_WS_SPACE = 0,  // compact; one space may follow ':' and ','
  MTX_WS_NONE,       // compact
  MTX_WS_ANY,        // up to 64 blanks, tabs and line ends between tokens
} mtx_json_ws;

typedef struct mtx_schema_opts {
  mtx_json_ws ws;
  bool strict;     // refuse what cannot be enforced; otherwise it becomes a warning
  bool any_order;  // required keys in any order too (default: as the schema lists them)
  bool open_types; // without "type" every type may come, as the standard has it (default: the
                   // types its keywords speak of, which is what its author meant)
  bool open_keys;  // keys beside "properties" may come, as the standard has it (default: only
                   // where the schema says something of them)
} mtx_schema_opts;

// JSON Schema (2020-12, draft-07). Text must be UTF-8 JSON; key order counts:
// required keys come in the order of `properties`, optional ones anywhere
// between (up to 48 properties; above that all keys keep the schema's order).
// opts may be NULL. The schema `true` gives any JSON value ("JSON mode").
mtx_code mtx_grammar_compile_json_schema(const char *text, size_t len, const mtx_schema_opts *opts,
                                         mtx_grammar **out, mtx_err *err);

// GBNF whose rules `name` are JSON Schemas: the text uses them and defines them nowhere.
typedef struct mtx_schema_rule {
  const char *name, *text;
  size_t name_len, len;
  bool as_text;      // the strings of the schema, as they are instead of as JSON writes them
  const char *stop;  // as_text: none of them holds this (what ends them); stop_len 0: they may hold anything
  size_t stop_len;
  bool inside;       // the text is a regex: what it finds a match in, as it stands between the quotes of JSON
} mtx_schema_rule;
mtx_code mtx_grammar_compile_mixed(const char *text, size_t len, const mtx_schema_rule *schemas, size_t n_schemas,
                                   const mtx_schema_opts *opts, mtx_grammar **out, mtx_err *err);

// What the grammar does not enforce, one sentence each; borrowed from g.
size_t mtx_grammar_n_warnings(const mtx_grammar *g);
const char *mtx_grammar_get_warning(const mtx_grammar *g, size_t i);

// Bytes the compiled grammar holds, without mask caches.
size_t mtx_grammar_size_bytes(const mtx_grammar *g);

mtx_grammar *mtx_grammar_ref(mtx_grammar *g);
void mtx_grammar_unref(mtx_grammar *g);  // NULL is fine

// ---- vocabulary -------------------------------------------------------------

#define MTX_TRIE_CONTROL 1u  // never allowed for its bytes, only by a token reference
#define MTX_TRIE_EOG 2u      // ends the generation: allowed exactly when complete

// pieces[i], lens[i]: the bytes that token i adds to the text; copied. Empty
// pieces are never allowed. flags may be NULL (all 0). n >= 1.
mtx_code mtx_vocab_trie_new(const char *const *pieces, const uint32_t *lens, const uint8_t *flags,
                            uint32_t n, mtx_vocab_trie **out, mtx_err *err);
// Computes what every JSON grammar needs of a vocabulary (the insides of strings and
// keys), so that no request has to: 10 to 20 ms at 150,000 tokens. May be left out.
mtx_code mtx_vocab_trie_warm(mtx_vocab_trie *t, mtx_err *err);
uint32_t mtx_vocab_trie_n_tokens(const mtx_vocab_trie *t);
mtx_vocab_trie *mtx_vocab_trie_ref(mtx_vocab_trie *t);
void mtx_vocab_trie_unref(mtx_vocab_trie *t);  // NULL is fine

// ---- matcher ----------------------------------------------------------------

// A matcher may start in free text and be held to the grammar only after one
// of the triggers has been emitted ("</think>", "<tool_call>").
typedef struct mtx_matcher_opts {
  const char *const *triggers;
  const size_t *trigger_lens;
  size_t n_triggers;          // 0: constrained from the first byte
  bool trigger_optional;      // the generation may end before a trigger
  // The free text is entered only by this text ("<think>"); any other start is held to the grammar
  // from its first byte. Needs triggers. opening_len 0: the matcher starts inside the free text.
  const char *opening;
  size_t opening_len;
  bool skip_ws;               // up to 8 blanks or line ends may precede the constrained text
} mtx_matcher_opts;

// trie may be NULL: then only bytes can be matched. opts may be NULL.
// Takes its own references on both.
mtx_code mtx_matcher_new(mtx_grammar *g, mtx_vocab_trie *trie, const mtx_matcher_opts *opts,
                         mtx_matcher **out, mtx_err *err);
void mtx_matcher_free(mtx_matcher *m);  // NULL is fine

// Writes one bit per token, bit i%64 of bits[i/64]; (n_tokens + 63) / 64 words.
// MTX_ELIMIT: the grammar is so ambiguous here that the work bound was met.
mtx_code mtx_matcher_mask(mtx_matcher *m, uint64_t *bits, mtx_err *err);

// Moves on by one token. MTX_EINVAL: not allowed, the matcher is unchanged.
mtx_code mtx_matcher_accept_token(mtx_matcher *m, uint32_t id, mtx_err *err);

// Moves on by bytes; *n_ok (may be NULL) is how many were taken. MTX_EINVAL:
// byte *n_ok cannot come here; the matcher then stands before that byte.
mtx_code mtx_matcher_accept_bytes(mtx_matcher *m, const char *bytes, size_t len, size_t *n_ok,
                                  mtx_err *err);

bool mtx_matcher_complete(const mtx_matcher *m);  // the text so far is a whole text of the grammar
bool mtx_matcher_waiting(const mtx_matcher *m);   // in free text before a trigger

// Names of the rules the matcher stands in, innermost first, for diagnostics:
// "object > items > root". Always terminated.
void mtx_matcher_describe(const mtx_matcher *m, char *dst, size_t cap);

#endif
