// SPDX-License-Identifier: MIT
// ECMA-262 regular expressions (flag u), as far as they are regular.
//
// Parsed to a small tree; then either one deterministic automaton (cdfa.h:
// anchors anywhere, search meaning) or, when large counts would make that
// too big, an expression with counted loops (whole-text patterns only).
#ifndef MTX_GRAMMAR_REGEX_H
#define MTX_GRAMMAR_REGEX_H

#include "grammar/build.h"
#include "grammar/cdfa.h"

enum { RE_EMPTY, RE_CLASS, RE_CAT, RE_ALT, RE_REP, RE_BOL, RE_EOL };

typedef struct {
  uint8_t kind;
  uint32_t a, n;      // CLASS: ranges (sorted, merged); CAT, ALT: kids; REP: child in a
  uint32_t min, max;  // REP; max MTX_REP_INF: no bound
} re_node;

typedef struct {
  MTX_VEC(re_node, nodes);
  MTX_VEC(uint32_t, kids);
  MTX_VEC(mtx_cprange, ranges);
  uint32_t root;
} mtx_regex;

// err->offset is the byte at fault. MTX_EUNSUPPORTED: well-formed but not regular.
mtx_code mtx_regex_parse(const char *text, size_t len, mtx_regex *out, mtx_err *err);
void mtx_regex_fini(mtx_regex *re);

// All texts in which the regex matches somewhere (search) or as a whole.
// NULL: too large or out of memory.
mtx_cdfa *mtx_regex_cdfa(const mtx_regex *re);

// Whole texts of a regex of the form ^...$ without other anchors, counts kept
// as loops. False if the regex is not of that form.
bool mtx_regex_gx(mtx_gb *b, const mtx_regex *re, bool json, mtx_gx *out);

// Either of the two, inside a JSON string or plain. MTX_GX_NEVER with the
// builder failed when neither works.
mtx_gx mtx_regex_expression(mtx_gb *b, const char *text, size_t len, bool json);

#endif
