// SPDX-License-Identifier: MIT
// Pre-tokenizers: where byte-level BPE may not merge across.
//
// A pre-tokenizer is named by `tokenizer.ggml.pre`. About sixty names stand for
// some thirty rules; a rule is a list of passes, each of which cuts the pieces
// of the pass before into smaller ones. The upstream tokenizers write them as
// regular expressions; here every pass is a scanner that looks at each code
// point a bounded number of times, so time is linear on any input.
#ifndef MTX_TOK_PRETOK_H
#define MTX_TOK_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "tok/unicode.h"

// The text as code points, n of each: cls is their mtx_uni_class.
typedef struct {
  const uint32_t *cp;
  const uint8_t *cls;
  size_t n;
} mtx_pretok_view;

// Cut positions: ascending ends of pieces, in code points; the last is the text's end.
typedef struct { uint32_t *ptr; size_t len, cap; } mtx_cuts;

typedef struct mtx_pretok_rule mtx_pretok_rule;

enum {  // what a name says beside its rule
  MTX_PRE_IGNORE_MERGES = 1,  // a piece that is a whole token is taken as it is
  MTX_PRE_ADD_BOS = 2,        // BOS is added unless the file says otherwise
  MTX_PRE_KEEP_SPACES = 4,    // no clean-up of spaces before punctuation when decoding
  MTX_PRE_ADD_SEP = 8,
  MTX_PRE_NO_BOS = 16,        // there is no default BOS id
  MTX_PRE_RAW = 32,           // tokens are raw UTF-8, not the GPT-2 byte alphabet
  MTX_PRE_ESCAPE = 64,        // spaces are written U+2581 in tokens
  MTX_PRE_GEMMA4 = 128,       // a run of newlines that is a token is taken whole; BOS is always added
};

typedef struct {
  const char *name;
  const mtx_pretok_rule *rule;
  unsigned flags;
} mtx_pretok;

// NULL when no such name is known. The name need not be terminated.
const mtx_pretok *mtx_pretok_find(const char *name, size_t len);
// All names in table order; NULL past the end. For tests and `mtx info`.
const mtx_pretok *mtx_pretok_at(size_t i);

// Cuts the text. `out` and `tmp` are reused between calls; the result is in
// *out. Errors: MTX_ENOMEM.
mtx_code mtx_pretok_split(const mtx_pretok_rule *rule, const mtx_pretok_view *v, mtx_cuts *out, mtx_cuts *tmp, mtx_err *err);
// The same for valid UTF-8 of at most 1 GiB, for tests and tools: appends the
// pieces' ends, in bytes. Errors: MTX_EINVAL (no UTF-8), MTX_ELIMIT, MTX_ENOMEM.
mtx_code mtx_pretok_text(const mtx_pretok *p, const char *text, size_t n, mtx_ids *ends, mtx_err *err);
void mtx_cuts_fini(mtx_cuts *c);

#endif
