// SPDX-License-Identifier: MIT
// Reading a pattern: what regex.c (the syntax) and regex_class.c (one character) share.
#ifndef MTX_GRAMMAR_REGEX_PARSE_H
#define MTX_GRAMMAR_REGEX_PARSE_H

#include <string.h>

#include "grammar/regex.h"

typedef struct {
  mtx_regex *re;
  const char *text;
  size_t len, at;
  mtx_code code;
  mtx_err *err;
  uint32_t n_properties;
  MTX_VEC(uint32_t, stack);
} re_parser;

static inline int re_peek(const re_parser *p) { return p->at < p->len ? (unsigned char)p->text[p->at] : -1; }
static inline bool re_looking_at(const re_parser *p, const char *s) {
  size_t n = strlen(s);
  return p->len - p->at >= n && !memcmp(p->text + p->at, s, n);
}

// Records the first failure; returns 0.
uint32_t re_bad(re_parser *p, mtx_code code, size_t at, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
uint32_t re_add(re_parser *p, re_node n);  // the new node's number

// Each reads what stands at p->at and gives its RE_CLASS node.
uint32_t re_read_class(re_parser *p);  // [...]
uint32_t re_read_dot(re_parser *p);    // every character but line ends
uint32_t re_read_char(re_parser *p);   // itself, or an escape

#endif
