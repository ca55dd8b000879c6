// SPDX-License-Identifier: MIT
// Parsing ECMA-262 patterns (section 22.2, flag u) to the tree of regex.h.
//
// More lenient than the standard in one point that schemas in the wild need:
// a '{' or '}' or ']' that begins no quantifier stands for itself.
#include "grammar/regex.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grammar/text.h"
#include "tok/unicode.h"

#define MAX_NESTING 200
#define MAX_RE_NODES 200000u
#define MAX_PROPERTIES 32u  // each is looked up for every code point

typedef struct {
  mtx_regex *re;
  const char *text;
  size_t len, at;
  mtx_code code;
  mtx_err *err;
  uint32_t n_properties;
  MTX_VEC(uint32_t, stack);
} parser;

__attribute__((format(printf, 4, 5))) static uint32_t bad(parser *p, mtx_code code, size_t at, const char *fmt, ...) {
  if (p->code) return 0;
  char msg[200];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(msg, sizeof msg, fmt, ap);
  va_end(ap);
  p->code = mtx_fail_at(p->err, code, NULL, NULL, at, "pattern: at position %zu: %s", at, msg);
  return 0;
}

static int peek(const parser *p) { return p->at < p->len ? (unsigned char)p->text[p->at] : -1; }
static bool looking_at(const parser *p, const char *s) {
  size_t n = strlen(s);
  return p->len - p->at >= n && !memcmp(p->text + p->at, s, n);
}

static uint32_t add(parser *p, re_node n) {
  if (p->code) return 0;
  if (!MTX_VEC_GROW(p->re, nodes, 1, MAX_RE_NODES)) return bad(p, MTX_ELIMIT, p->at, "the pattern is too large");
  p->re->nodes[p->re->n_nodes] = n;
  return p->re->n_nodes++;
}

static bool push(parser *p, uint32_t x) {
  if (!MTX_VEC_GROW(p, stack, 1, MAX_RE_NODES)) return bad(p, MTX_ELIMIT, p->at, "the pattern is too large");
  p->stack[p->n_stack++] = x;
  return true;
}

static uint32_t add_list(parser *p, uint8_t kind, uint32_t from) {
  uint32_t n = p->n_stack - from, x;
  if (p->code) return 0;
  if (n == 1) {
    x = p->stack[from];
  } else if (n == 0) {
    x = add(p, (re_node){.kind = RE_EMPTY});
  } else if (!MTX_VEC_GROW(p->re, kids, n, MAX_RE_NODES)) {
    return bad(p, MTX_ELIMIT, p->at, "the pattern is too large");
  } else {
    memcpy(p->re->kids + p->re->n_kids, p->stack + from, n * sizeof *p->stack);
    p->re->n_kids += n;
    x = add(p, (re_node){.kind = kind, .a = p->re->n_kids - n, .n = n});
  }
  p->n_stack = from;
  return x;
}

// ---- classes ------------------------------------------------------------------------

typedef struct {
  MTX_VEC(mtx_cprange, v);
} ranges;

static void put(parser *p, ranges *r, uint32_t lo, uint32_t hi) {
  if (!MTX_VEC_GROW(r, v, 1, 100000u)) {
    bad(p, MTX_ELIMIT, p->at, "the class is too large");
    return;
  }
  r->v[r->n_v++] = (mtx_cprange){lo, hi};
}

static int cmp_range(const void *x, const void *y) {
  const mtx_cprange *a = x, *b = y;
  return a->lo < b->lo ? -1 : a->lo > b->lo;
}

static void sort_ranges(ranges *r) {
  if (r->n_v) qsort(r->v, r->n_v, sizeof *r->v, cmp_range);
  uint32_t n = 0;
  for (uint32_t i = 0; i < r->n_v; i++) {
    if (n && r->v[i].lo <= r->v[n - 1].hi + 1) {
      if (r->v[i].hi > r->v[n - 1].hi) r->v[n - 1].hi = r->v[i].hi;
    } else {
      r->v[n++] = r->v[i];
    }
  }
  r->n_v = n;
}

static void put_negated(parser *p, ranges *r, ranges *not) {
  sort_ranges(not);
  uint32_t at = 0;
  for (uint32_t i = 0; i < not->n_v; i++) {
    if (not->v[i].lo > at) put(p, r, at, not->v[i].lo - 1);
    at = not->v[i].hi + 1;
  }
  if (at <= 0x10ffff) put(p, r, at, 0x10ffff);
}

static uint32_t add_class(parser *p, ranges *r) {
  sort_ranges(r);
  uint32_t n = r->n_v, x = 0;
  if (!p->code) {
    if (!MTX_VEC_GROW(p->re, ranges, n, 400000u)) {
      bad(p, MTX_ELIMIT, p->at, "the pattern's classes are too large");
    } else {
      if (n) memcpy(p->re->ranges + p->re->n_ranges, r->v, n * sizeof *r->v);
      p->re->n_ranges += n;
      x = add(p, (re_node){.kind = RE_CLASS, .a = p->re->n_ranges - n, .n = n});
    }
  }
  free(r->v);
  return x;
}

static const struct {
  const char *name;
  uint8_t class;
} properties[] = {{"L", MTX_UNI_L},  {"Letter", MTX_UNI_L},      {"M", MTX_UNI_M}, {"Mark", MTX_UNI_M},   {"Combining_Mark", MTX_UNI_M}, {"N", MTX_UNI_N}, {"Number", MTX_UNI_N},
                  {"P", MTX_UNI_P},  {"Punctuation", MTX_UNI_P}, {"S", MTX_UNI_S}, {"Symbol", MTX_UNI_S}, {"White_Space", MTX_UNI_WS}};

// \p{Letter} and the other main categories, of Unicode 15.1; p->at is left at the brace
// that closes it, as the other shorthands leave it at their letter.
static void put_property(parser *p, ranges *set) {
  const size_t at = p->at - 1;
  const char *name = p->text + p->at + 2, *end = p->at + 1 < p->len ? memchr(p->text + p->at, '}', p->len - p->at) : NULL;
  if (!end || p->text[p->at + 1] != '{') {
    bad(p, MTX_EFORMAT, at, "a Unicode property is written \\p{Letter}");
    return;
  }
  const size_t n = (size_t)(end - name);
  p->at = (size_t)(end - p->text);
  if (p->n_properties++ == MAX_PROPERTIES) {
    bad(p, MTX_ELIMIT, at, "more than %u Unicode properties", MAX_PROPERTIES);
    return;
  }
  for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
    if (strlen(properties[i].name) != n || memcmp(properties[i].name, name, n)) continue;
    for (uint32_t c = 0, from = 0; c <= 0x110000; c++) {
      const bool in = c < 0x110000 && mtx_uni_class(c) & properties[i].class;
      if (!in && from < c) put(p, set, from, c - 1);
      if (!in) from = c + 1;
    }
    return;
  }
  bad(p, MTX_EUNSUPPORTED, at, "of the Unicode properties (\\p) only L, M, N, P, S and White_Space are supported; write the ranges");
}

// \d \w \s \p and their complements; ECMA's \w is ASCII, \s has all of Unicode's spaces.
static bool put_shorthand(parser *p, ranges *r, int c) {
  ranges set = {0};
  switch (c | 32) {
    case 'd': put(p, &set, '0', '9'); break;
    case 'w':
      put(p, &set, '0', '9');
      put(p, &set, 'A', 'Z');
      put(p, &set, '_', '_');
      put(p, &set, 'a', 'z');
      break;
    case 's': {
      static const mtx_cprange space[] = {{9, 13},         {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680},
                                          {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                          {0x3000, 0x3000}, {0xfeff, 0xfeff}};
      for (size_t i = 0; i < sizeof space / sizeof *space; i++) put(p, &set, space[i].lo, space[i].hi);
      break;
    }
    case 'p': put_property(p, &set); break;
    default: return false;
  }
  if (c < 'a')
    put_negated(p, r, &set);
  else
    for (uint32_t i = 0; i < set.n_v; i++) put(p, r, set.v[i].lo, set.v[i].hi);
  free(set.v);
  return true;
}

static uint32_t read_u(parser *p, size_t at) {
  uint32_t c = 0, low;
  if (peek(p) == '{') {
    size_t from = ++p->at;
    while (mtx_hex_digit((char)(peek(p) < 0 ? 0 : peek(p))) >= 0 && c <= 0x10ffff)
      c = c << 4 | (uint32_t)mtx_hex_digit(p->text[p->at++]);
    if (p->at == from || peek(p) != '}' || c > 0x10ffff) return bad(p, MTX_EFORMAT, at, "\\u{...} needs a code point");
    p->at++;
  } else {
    if (!mtx_hex_get(p->text + p->at, p->len - p->at, 4, &c))
      return bad(p, MTX_EFORMAT, at, "\\u needs four hexadecimal digits");
    p->at += 4;
    if (c >= 0xd800 && c <= 0xdbff && looking_at(p, "\\u") &&
        mtx_hex_get(p->text + p->at + 2, p->len - p->at - 2, 4, &low) && low >= 0xdc00 && low <= 0xdfff) {
      p->at += 6;
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
  }
  return c;
}

// The character an escape stands for; p->at is behind the backslash.
static uint32_t read_escape(parser *p, bool in_class) {
  const size_t at = p->at - 1;
  int c = peek(p);
  uint32_t v;
  if (c < 0) return bad(p, MTX_EFORMAT, at, "the pattern ends with a backslash");
  p->at++;
  switch (c) {
    case 't': return 9;
    case 'n': return 10;
    case 'v': return 11;
    case 'f': return 12;
    case 'r': return 13;
    case 'u': return read_u(p, at);
    case 'x':
      if (!mtx_hex_get(p->text + p->at, p->len - p->at, 2, &v))
        return bad(p, MTX_EFORMAT, at, "\\x needs two hexadecimal digits");
      p->at += 2;
      return v;
    case 'c':
      v = (uint32_t)(peek(p) < 0 ? 0 : peek(p));
      if (!((v | 32) >= 'a' && (v | 32) <= 'z')) return bad(p, MTX_EFORMAT, at, "\\c needs a letter");
      p->at++;
      return v & 31;
    case '0':
      if (!(peek(p) >= '0' && peek(p) <= '9')) return 0;
      return bad(p, MTX_EUNSUPPORTED, at, "octal escapes are not supported; use \\xHH");
    case 'b':
      if (in_class) return 8;
      return bad(p, MTX_EUNSUPPORTED, at, "word boundaries (\\b) are not supported");
    case 'B': return bad(p, MTX_EUNSUPPORTED, at, "word boundaries (\\B) are not supported");
    case 'k': return bad(p, MTX_EUNSUPPORTED, at, "back-references are not supported");
    default: break;
  }
  if (c >= '1' && c <= '9') return bad(p, MTX_EUNSUPPORTED, at, "back-references are not supported");
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return bad(p, MTX_EFORMAT, at, "unknown escape \\%c", c);
  if (c < 0x80) return (uint32_t)c;
  p->at--;
  size_t k = mtx_utf8_get(p->text + p->at, p->len - p->at, &v);
  if (!k) return bad(p, MTX_EFORMAT, p->at, "the pattern is not UTF-8 here");
  p->at += k;
  return v;
}

// One member of a class. False: it was a shorthand and is already in r.
static bool read_member(parser *p, ranges *r, uint32_t *c) {
  if (peek(p) == '\\') {
    p->at++;
    if (peek(p) >= 0 && put_shorthand(p, r, peek(p))) {
      p->at++;
      return false;
    }
    *c = read_escape(p, true);
    return true;
  }
  size_t k = mtx_utf8_get(p->text + p->at, p->len - p->at, c);
  if (!k) bad(p, MTX_EFORMAT, p->at, "the pattern is not UTF-8 here");
  p->at += k ? k : 1;
  return true;
}

static uint32_t read_class(parser *p) {
  const size_t open = p->at++;
  bool negated = peek(p) == '^';
  p->at += negated;
  ranges r = {0}, out = {0};
  while (!p->code && peek(p) != ']') {
    if (peek(p) < 0) {
      bad(p, MTX_EFORMAT, open, "this class has no closing bracket");
      break;
    }
    const size_t at = p->at;
    uint32_t lo = 0, hi;
    if (!read_member(p, &r, &lo)) continue;
    hi = lo;
    if (peek(p) == '-' && p->at + 1 < p->len && p->text[p->at + 1] != ']') {
      p->at++;
      if (!read_member(p, &r, &hi)) {  // [a-\d]: the dash is a character
        put(p, &r, '-', '-');
        hi = lo;
      } else if (!p->code && hi < lo) {
        bad(p, MTX_EFORMAT, at, "the range runs backwards");
      }
    }
    put(p, &r, lo, hi);
  }
  p->at++;
  if (!negated) return add_class(p, &r);
  put_negated(p, &out, &r);
  free(r.v);
  return add_class(p, &out);
}

// ---- the rest of the syntax --------------------------------------------------------------

static uint32_t read_alternatives(parser *p, int nesting);

static uint32_t read_group(parser *p, int nesting) {
  const size_t open = p->at++;
  if (nesting >= MAX_NESTING) return bad(p, MTX_ELIMIT, open, "groups are nested more than %d deep", MAX_NESTING);
  if (looking_at(p, "?=") || looking_at(p, "?!") || looking_at(p, "?<=") || looking_at(p, "?<!"))
    return bad(p, MTX_EUNSUPPORTED, open, "look-around is not supported");
  if (looking_at(p, "?:")) {
    p->at += 2;
  } else if (looking_at(p, "?<")) {
    const char *end = memchr(p->text + p->at, '>', p->len - p->at);
    if (!end) return bad(p, MTX_EFORMAT, open, "this group's name has no '>'");
    p->at = (size_t)(end - p->text) + 1;
  } else if (peek(p) == '?') {
    return bad(p, MTX_EUNSUPPORTED, open, "this kind of group is not supported");
  }
  uint32_t x = read_alternatives(p, nesting + 1);
  if (!p->code && peek(p) != ')') return bad(p, MTX_EFORMAT, open, "this group has no closing parenthesis");
  p->at++;
  return x;
}

static bool read_number(parser *p, size_t *at, uint32_t *n) {
  uint64_t v = 0;
  size_t from = *at;
  while (*at < p->len && p->text[*at] >= '0' && p->text[*at] <= '9') {
    if (v <= MTX_GRAMMAR_MAX_REPEAT) v = v * 10 + (uint64_t)(p->text[*at] - '0');
    ++*at;
  }
  if (v > MTX_GRAMMAR_MAX_REPEAT) bad(p, MTX_ELIMIT, from, "the count is too large");
  *n = (uint32_t)v;
  return *at > from;
}

// Is there a quantifier here? Reads it; a '{' that begins none is left alone.
static bool read_quantifier(parser *p, uint32_t *min, uint32_t *max) {
  int c = peek(p);
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
    if (*max < *min) bad(p, MTX_EFORMAT, open, "the maximum is below the minimum");
  } else {
    return false;
  }
  if (peek(p) == '?') p->at++;  // lazy or greedy is the same set of texts
  return !p->code;
}

static uint32_t read_atom(parser *p, int nesting) {
  int c = peek(p);
  ranges r = {0};
  uint32_t min, max, v;
  if (c == '(') return read_group(p, nesting);
  if (c == '[') return read_class(p);
  if (c == '^' || c == '$') {
    p->at++;
    return add(p, (re_node){.kind = c == '^' ? RE_BOL : RE_EOL});
  }
  if (c == '.') {
    p->at++;
    ranges lines = {0};
    put(p, &lines, '\n', '\n');
    put(p, &lines, '\r', '\r');
    put(p, &lines, 0x2028, 0x2029);
    put_negated(p, &r, &lines);
    free(lines.v);
    return add_class(p, &r);
  }
  if (read_quantifier(p, &min, &max) || p->code) {
    p->at--;
    return bad(p, MTX_EFORMAT, p->at, "there is nothing before this quantifier to repeat");
  }
  if (c == '\\') {
    p->at++;
    if (peek(p) >= 0 && put_shorthand(p, &r, peek(p))) {
      p->at++;
      return add_class(p, &r);
    }
    v = read_escape(p, false);
  } else {
    size_t k = mtx_utf8_get(p->text + p->at, p->len - p->at, &v);
    if (!k) return bad(p, MTX_EFORMAT, p->at, "the pattern is not UTF-8 here");
    p->at += k;
  }
  put(p, &r, v, v);
  return add_class(p, &r);
}

static uint32_t read_sequence(parser *p, int nesting) {
  const uint32_t from = p->n_stack;
  while (!p->code && peek(p) >= 0 && peek(p) != '|' && peek(p) != ')') {
    uint32_t x = read_atom(p, nesting), min, max;
    if (!p->code && read_quantifier(p, &min, &max)) {
      uint8_t kind = p->re->nodes[x].kind;
      if (kind == RE_BOL || kind == RE_EOL) return bad(p, MTX_EFORMAT, p->at, "an anchor cannot be repeated");
      x = add(p, (re_node){.kind = RE_REP, .a = x, .min = min, .max = max});
    }
    if (!p->code) push(p, x);
  }
  return add_list(p, RE_CAT, from);
}

static uint32_t read_alternatives(parser *p, int nesting) {
  const uint32_t from = p->n_stack;
  push(p, read_sequence(p, nesting));
  while (!p->code && peek(p) == '|') {
    p->at++;
    uint32_t x = read_sequence(p, nesting);
    if (!p->code) push(p, x);
  }
  return add_list(p, RE_ALT, from);
}

mtx_code mtx_regex_parse(const char *text, size_t len, mtx_regex *out, mtx_err *err) {
  memset(out, 0, sizeof *out);
  parser p = {.re = out, .text = text, .len = len, .err = err};
  if (len > 65536) bad(&p, MTX_ELIMIT, 0, "the pattern is longer than 65536 bytes");
  if (!p.code) out->root = read_alternatives(&p, 0);
  if (!p.code && p.at < len) bad(&p, MTX_EFORMAT, p.at, "this parenthesis closes no group");
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
