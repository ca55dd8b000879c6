// SPDX-License-Identifier: MIT
// The scanners that pre-tokenizer rules are made of, and the table of rules.
#ifndef MTX_TOK_PRETOK_RULES_H
#define MTX_TOK_PRETOK_RULES_H

#include "tok/pretok.h"

// A pass. `match` gives the end of the match that starts at i inside the piece
// [begin, end), or i where there is none (code points without a match gather
// into pieces of their own). A pass with `cut` instead cuts a piece itself.
typedef struct mtx_pass {
  size_t (*match)(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const struct mtx_pass *p);
  mtx_code (*cut)(const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err);
  const void *arg;
} mtx_pass;

struct mtx_pretok_rule {
  const mtx_pass *pass;
  size_t n_passes;
};

mtx_code mtx_cuts_push(mtx_cuts *c, size_t end, mtx_err *err);

// pretok_runs.c: runs of one set of code points.
typedef struct {
  uint8_t mask;               // member if its class meets the mask
  const char *ascii;          // or it is one of these ASCII characters
  const uint32_t (*range)[2]; // or it lies in one of these ranges
  size_t n_ranges;
  bool negate;
} mtx_set;
typedef enum { MTX_LEAD_NONE, MTX_LEAD_SPACE, MTX_LEAD_WS } mtx_lead;
typedef struct {
  mtx_set set;
  mtx_lead lead;      // one character that may stand before the run
  uint32_t min, max;  // length of the run; max 0: any
} mtx_run;
size_t mtx_match_run(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p);
size_t mtx_match_youtu(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p);
size_t mtx_match_chameleon_mark(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p);
size_t mtx_match_chameleon_space(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p);
mtx_code mtx_cut_trailing_space(const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err);
mtx_code mtx_cut_newlines(const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err);
mtx_code mtx_cut_digit_thirds(const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err);
mtx_code mtx_cut_afmoe_digits(const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err);
mtx_code mtx_cut_aya_digits(const mtx_pretok_view *v, size_t begin, size_t end, mtx_cuts *out, mtx_err *err);

// pretok_words.c: the family of GPT-2, cl100k and o200k expressions.
typedef enum { MTX_BODY_L, MTX_BODY_LM, MTX_BODY_CASE, MTX_BODY_CASE_M, MTX_BODY_PHRASE, MTX_BODY_KIMI } mtx_body;
typedef enum { MTX_TAIL_NONE, MTX_TAIL_NL, MTX_TAIL_NL_SLASH, MTX_TAIL_ONE_NL_SLASH } mtx_tail;
typedef struct {
  bool contraction;     // 's 't 're 've 'm 'll 'd in any case, before all else
  bool suffix;          // the same, at the end of a word
  bool ascii_punct;     // one ASCII punctuation mark glued to the ASCII letters behind it
  uint8_t lead_not;     // a word may start with one character that is no CR, LF or of these classes
  mtx_body body;
  uint32_t digits;      // longest run of numbers; 0: numbers are not this expression's matter
  bool symbols;         // punctuation is [P S]+; else it is everything not in punct_not
  uint8_t punct_not;
  mtx_tail tail;        // what punctuation takes along
  bool single_newline;  // CR and LF one at a time, without the spaces before
  bool space_ladder;    // runs of spaces in powers of two
} mtx_words;
size_t mtx_match_words(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p);
size_t mtx_match_gpt2(const mtx_pretok_view *v, size_t i, size_t begin, size_t end, const mtx_pass *p);

#endif
