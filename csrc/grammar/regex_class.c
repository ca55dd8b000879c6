// SPDX-License-Identifier: MIT
// Of a pattern: what stands for one character. Classes, escapes and shorthands
// become sorted ranges of code points.
#include "grammar/regex_parse.h"

#include <string.h>

#include "grammar/text.h"
#include "tok/unicode.h"

#define MAX_PROPERTIES 32u  // each is looked up for every code point

typedef struct {
  MTX_VEC(mtx_cprange, v);
} ranges;

static void put(re_parser *p, ranges *r, uint32_t lo, uint32_t hi) {
  if (!MTX_VEC_GROW(r, v, 1, 100000u)) {
    re_bad(p, MTX_ELIMIT, p->at, "the class is too large");
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

static void put_negated(re_parser *p, ranges *r, ranges *not) {
  sort_ranges(not);
  uint32_t at = 0;
  for (uint32_t i = 0; i < not->n_v; i++) {
    if (not->v[i].lo > at) put(p, r, at, not->v[i].lo - 1);
    at = not->v[i].hi + 1;
  }
  if (at <= 0x10ffff) put(p, r, at, 0x10ffff);
}

static uint32_t add_class(re_parser *p, ranges *r) {
  sort_ranges(r);
  uint32_t n = r->n_v, x = 0;
  if (!p->code) {
    if (!MTX_VEC_GROW(p->re, ranges, n, 400000u)) {
      re_bad(p, MTX_ELIMIT, p->at, "the pattern's classes are too large");
    } else {
      if (n) memcpy(p->re->ranges + p->re->n_ranges, r->v, n * sizeof *r->v);
      p->re->n_ranges += n;
      x = re_add(p, (re_node){.kind = RE_CLASS, .a = p->re->n_ranges - n, .n = n});
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
static void put_property(re_parser *p, ranges *set) {
  const size_t at = p->at - 1;
  const char *name = p->text + p->at + 2, *end = p->at + 1 < p->len ? memchr(p->text + p->at, '}', p->len - p->at) : NULL;
  if (!end || p->text[p->at + 1] != '{') {
    re_bad(p, MTX_EFORMAT, at, "a Unicode property is written \\p{Letter}");
    return;
  }
  const size_t n = (size_t)(end - name);
  p->at = (size_t)(end - p->text);
  if (p->n_properties++ == MAX_PROPERTIES) {
    re_bad(p, MTX_ELIMIT, at, "more than %u Unicode properties", MAX_PROPERTIES);
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
  re_bad(p, MTX_EUNSUPPORTED, at, "of the Unicode properties (\\p) only L, M, N, P, S and White_Space are supported; write the ranges");
}

// \d \w \s \p and their complements; ECMA's \w is ASCII, \s has all of Unicode's spaces.
static bool put_shorthand(re_parser *p, ranges *r, int c) {
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

static uint32_t read_u(re_parser *p, size_t at) {
  uint32_t c = 0, low;
  if (re_peek(p) == '{') {
    size_t from = ++p->at;
    while (mtx_hex_digit((char)(re_peek(p) < 0 ? 0 : re_peek(p))) >= 0 && c <= 0x10ffff)
      c = c << 4 | (uint32_t)mtx_hex_digit(p->text[p->at++]);
    if (p->at == from || re_peek(p) != '}' || c > 0x10ffff) return re_bad(p, MTX_EFORMAT, at, "\\u{...} needs a code point");
    p->at++;
  } else {
    if (!mtx_hex_get(p->text + p->at, p->len - p->at, 4, &c))
      return re_bad(p, MTX_EFORMAT, at, "\\u needs four hexadecimal digits");
    p->at += 4;
    if (c >= 0xd800 && c <= 0xdbff && re_looking_at(p, "\\u") &&
        mtx_hex_get(p->text + p->at + 2, p->len - p->at - 2, 4, &low) && low >= 0xdc00 && low <= 0xdfff) {
      p->at += 6;
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
  }
  return c;
}

// The character an escape stands for; p->at is behind the backslash.
static uint32_t read_escape(re_parser *p, bool in_class) {
  const size_t at = p->at - 1;
  int c = re_peek(p);
  uint32_t v;
  if (c < 0) return re_bad(p, MTX_EFORMAT, at, "the pattern ends with a backslash");
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
        return re_bad(p, MTX_EFORMAT, at, "\\x needs two hexadecimal digits");
      p->at += 2;
      return v;
    case 'c':
      v = (uint32_t)(re_peek(p) < 0 ? 0 : re_peek(p));
      if (!((v | 32) >= 'a' && (v | 32) <= 'z')) return re_bad(p, MTX_EFORMAT, at, "\\c needs a letter");
      p->at++;
      return v & 31;
    case '0':
      if (!(re_peek(p) >= '0' && re_peek(p) <= '9')) return 0;
      return re_bad(p, MTX_EUNSUPPORTED, at, "octal escapes are not supported; use \\xHH");
    case 'b':
      if (in_class) return 8;
      return re_bad(p, MTX_EUNSUPPORTED, at, "word boundaries (\\b) are not supported");
    case 'B': return re_bad(p, MTX_EUNSUPPORTED, at, "word boundaries (\\B) are not supported");
    case 'k': return re_bad(p, MTX_EUNSUPPORTED, at, "back-references are not supported");
    default: break;
  }
  if (c >= '1' && c <= '9') return re_bad(p, MTX_EUNSUPPORTED, at, "back-references are not supported");
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return re_bad(p, MTX_EFORMAT, at, "unknown escape \\%c", c);
  if (c < 0x80) return (uint32_t)c;
  p->at--;
  size_t k = mtx_utf8_get(p->text + p->at, p->len - p->at, &v);
  if (!k) return re_bad(p, MTX_EFORMAT, p->at, "the pattern is not UTF-8 here");
  p->at += k;
  return v;
}

// One member of a class. False: it was a shorthand and is already in r.
static bool read_member(re_parser *p, ranges *r, uint32_t *c) {
  if (re_peek(p) == '\\') {
    p->at++;
    if (re_peek(p) >= 0 && put_shorthand(p, r, re_peek(p))) {
      p->at++;
      return false;
    }
    *c = read_escape(p, true);
    return true;
  }
  size_t k = mtx_utf8_get(p->text + p->at, p->len - p->at, c);
  if (!k) re_bad(p, MTX_EFORMAT, p->at, "the pattern is not UTF-8 here");
  p->at += k ? k : 1;
  return true;
}

uint32_t re_read_class(re_parser *p) {
  const size_t open = p->at++;
  bool negated = re_peek(p) == '^';
  p->at += negated;
  ranges r = {0}, out = {0};
  while (!p->code && re_peek(p) != ']') {
    if (re_peek(p) < 0) {
      re_bad(p, MTX_EFORMAT, open, "this class has no closing bracket");
      break;
    }
    const size_t at = p->at;
    uint32_t lo = 0, hi;
    if (!read_member(p, &r, &lo)) continue;
    hi = lo;
    if (re_peek(p) == '-' && p->at + 1 < p->len && p->text[p->at + 1] != ']') {
      p->at++;
      if (!read_member(p, &r, &hi)) {  // [a-\d]: the dash is a character
        put(p, &r, '-', '-');
        hi = lo;
      } else if (!p->code && hi < lo) {
        re_bad(p, MTX_EFORMAT, at, "the range runs backwards");
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

uint32_t re_read_dot(re_parser *p) {
  ranges r = {0}, lines = {0};
  p->at++;
  put(p, &lines, '\n', '\n');
  put(p, &lines, '\r', '\r');
  put(p, &lines, 0x2028, 0x2029);
  put_negated(p, &r, &lines);
  free(lines.v);
  return add_class(p, &r);
}

uint32_t re_read_char(re_parser *p) {
  ranges r = {0};
  uint32_t v;
  if (re_peek(p) == '\\') {
    p->at++;
    if (re_peek(p) >= 0 && put_shorthand(p, &r, re_peek(p))) {
      p->at++;
      return add_class(p, &r);
    }
    v = read_escape(p, false);
  } else {
    size_t k = mtx_utf8_get(p->text + p->at, p->len - p->at, &v);
    if (!k) return re_bad(p, MTX_EFORMAT, p->at, "the pattern is not UTF-8 here");
    p->at += k;
  }
  put(p, &r, v, v);
  return add_class(p, &r);
}
