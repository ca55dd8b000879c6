// SPDX-License-Identifier: MIT
// Parsing ECMA-262 patterns (section 22.2, flag u) to the tree of regex.h.
//
// More lenient than the standard in one point that schemas in the wild need:
// a '{' or '}' or ']' that begins no quantifier stands for itself.
#include "grammar/regex_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_NESTING 200
#define MAX_RE_NODES 200000u

uint32_t re_bad(re_parser *p, mtx_code code, size_t at, const char *fmt, ...) {
  if (p->code) return 0;
  char msg[200];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(msg, sizeof msg, fmt, ap);
  va_end(ap);
  p->code = mtx_fail_at(p->err, code, NULL, NULL, at, "pattern: at position %zu: %s", at, msg);
  return 0;
}

uint32_t re_add(re_parser *p, re_node n) {
  if (p->code) return 0;
  if (!MTX_VEC_GROW(p->re, nodes, 1, MAX_RE_NODES)) return re_bad(p, MTX_ELIMIT, p->at, "the pattern is too large");
  p->re->nodes[p->re->n_nodes] = n;
  return p->re->n_nodes++;
}

static bool push(re_parser *p, uint32_t x) {
  if (!MTX_VEC_GROW(p, stack, 1, MAX_RE_NODES)) return re_bad(p, MTX_ELIMIT, p->at, "the pattern is too large");
  p->stack[p->n_stack++] = x;
  return true;
}

static uint32_t add_list(re_parser *p, uint8_t kind, uint32_t from) {
  uint32_t n = p->n_stack - from, x;
  if (p->code) return 0;
  if (n == 1) {
    x = p->stack[from];
  } else if (n == 0) {
    x = re_add(p, (re_node){.kind = RE_EMPTY});
  } else if (!MTX_VEC_GROW(p->re, kids, n, MAX_RE_NODES)) {
    return re_bad(p, MTX_ELIMIT, p->at, "the pattern is too large");
  } else {
    memcpy(p->re->kids + p->re->n_kids, p->stack + from, n * sizeof *p->stack);
    p->re->n_kids += n;
    x = re_add(p, (re_node){.kind = kind, .a = p->re->n_kids - n, .n = n});
  }
  p->n_stack = from;
  return x;
}

static uint32_t read_alternatives(re_parser *p, int nesting);

static uint32_t read_group(re_parser *p, int nesting) {
  const size_t open = p->at++;
  if (nesting >= MAX_NESTING) return re_bad(p, MTX_ELIMIT, open, "groups are nested more than %d deep", MAX_NESTING);
  if (re_looking_at(p, "?=") || re_looking_at(p, "?!") || re_looking_at(p, "?<=") || re_looking_at(p, "?<!"))
    return re_bad(p, MTX_EUNSUPPORTED, open, "look-around is not supported");
  if (re_looking_at(p, "?:")) {
    p->at += 2;
  } else if (re_looking_at(p, "?<")) {
    const char *end = memchr(p->text + p->at, '>', p->len - p->at);
    if (!end) return re_bad(p, MTX_EFORMAT, open, "this group's name has no '>'");
    p->at = (size_t)(end - p->text) + 1;
  } else if (re_peek(p) == '?') {
    return re_bad(p, MTX_EUNSUPPORTED, open, "this kind of group is not supported");
  }
  uint32_t x = read_alternatives(p, nesting + 1);
  if (!p->code && re_peek(p) != ')') return re_bad(p, MTX_EFORMAT, open, "this group has no closing parenthesis");
  p->at++;
  return x;
}

static bool read_number(re_parser *p, size_t *at, uint32_t *n) {
  uint64_t v = 0;
  size_t from = *at;
  while (*at < p->len && p->text[*at] >= '0' && p->text[*at] <= '9') {
    if (v <= MTX_GRAMMAR_MAX_REPEAT) v = v * 10 + (uint64_t)(p->text[*at] - '0');
    ++*at;
  }
  if (v > MTX_GRAMMAR_MAX_REPEAT) re_bad(p, MTX_ELIMIT, from, "the count is too large");
  *n = (uint32_t)v;
  return *at > from;
}

// Is there a quantifier here? Reads it; a '{' that begins none is left alone.
static bool read_quantifier(re_parser *p, uint32_t *min, uint32_t *max) {
  int c = re_peek(p);
  const size_t open = p->at;
  if (c == '*' || c == '+' || c == '?') {
    *min = c == '+';
    *max = c == '?' ? 1 : MTX_REP_INF;
    p->at++;
  } else if (c == '{') {
    size_t at = p->at + 1;
    if (!read_number(p, &at, min)) return false;
    *max = *min;
    if (at < p->len && p->text[at] == ',') {
      at++;
      if (!read_number(p, &at, max)) *max = MTX_REP_INF;
    }
    if (at >= p->len || p->text[at] != '}') return false;
    p->at = at + 1;
    if (*max < *min) re_bad(p, MTX_EFORMAT, open, "the maximum is below the minimum");
  } else {
    return false;
  }
  if (re_peek(p) == '?') p->at++;  // lazy or greedy is the same set of texts
  return !p->code;
}

static uint32_t read_atom(re_parser *p, int nesting) {
  int c = re_peek(p);
  uint32_t min, max;
  if (c == '(') return read_group(p, nesting);
  if (c == '[') return re_read_class(p);
  if (c == '.') return re_read_dot(p);
  if (c == '^' || c == '$') {
    p->at++;
    return re_add(p, (re_node){.kind = c == '^' ? RE_BOL : RE_EOL});
  }
  if (read_quantifier(p, &min, &max) || p->code) {
    p->at--;
    return re_bad(p, MTX_EFORMAT, p->at, "there is nothing before this quantifier to repeat");
  }
  return re_read_char(p);
}

static uint32_t read_sequence(re_parser *p, int nesting) {
  const uint32_t from = p->n_stack;
  while (!p->code && re_peek(p) >= 0 && re_peek(p) != '|' && re_peek(p) != ')') {
    uint32_t x = read_atom(p, nesting), min, max;
    if (!p->code && read_quantifier(p, &min, &max)) {
      uint8_t kind = p->re->nodes[x].kind;
      if (kind == RE_BOL || kind == RE_EOL) return re_bad(p, MTX_EFORMAT, p->at, "an anchor cannot be repeated");
      x = re_add(p, (re_node){.kind = RE_REP, .a = x, .min = min, .max = max});
    }
    if (!p->code) push(p, x);
  }
  return add_list(p, RE_CAT, from);
}

static uint32_t read_alternatives(re_parser *p, int nesting) {
  const uint32_t from = p->n_stack;
  push(p, read_sequence(p, nesting));
  while (!p->code && re_peek(p) == '|') {
    p->at++;
    uint32_t x = read_sequence(p, nesting);
    if (!p->code) push(p, x);
  }
  return add_list(p, RE_ALT, from);
}

mtx_code mtx_regex_parse(const char *text, size_t len, mtx_regex *out, mtx_err *err) {
  memset(out, 0, sizeof *out);
  re_parser p = {.re = out, .text = text, .len = len, .err = err};
  if (len > 65536) re_bad(&p, MTX_ELIMIT, 0, "the pattern is longer than 65536 bytes");
  if (!p.code) out->root = read_alternatives(&p, 0);
  if (!p.code && p.at < len) re_bad(&p, MTX_EFORMAT, p.at, "this parenthesis closes no group");
  free(p.stack);
  if (p.code) mtx_regex_fini(out);
  return p.code;
}

void mtx_regex_fini(mtx_regex *re) {
  free(re->nodes);
  free(re->kids);
  free(re->ranges);
  memset(re, 0, sizeof *re);
}
