// SPDX-License-Identifier: MIT
// GBNF texts into rules.
//
// Syntax as documented in llama.cpp's grammars/README.md: literals, classes,
// groups, alternatives, repetition, comments, token references. Stricter in
// one point: a rule defined twice is an error here, because the first
// definition would silently be lost.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grammar/build.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "grammar/text.h"

#define MAX_NESTING 200

typedef struct {
  mtx_gb *b;
  const char *text;
  size_t len, at;
  uint32_t *table;  // hash of rule names to rule + 1
  uint32_t n_table;
  MTX_VEC(mtx_gx, stack);  // pieces of the sequences and alternatives being read
} gbnf;

__attribute__((format(printf, 3, 4))) static mtx_gx bad(gbnf *p, size_t at, const char *fmt, ...) {
  char msg[200];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(msg, sizeof msg, fmt, ap);
  va_end(ap);
  size_t line = 1, col = 1;
  for (size_t i = 0; i < at && i < p->len; i++) {
    col++;
    if (p->text[i] == '\n') line++, col = 1;
  }
  mtx_gb_fail(p->b, MTX_EFORMAT, at, "line %zu, column %zu: %s", line, col, msg);
  return MTX_GX_NEVER;
}

static int peek(const gbnf *p) { return p->at < p->len ? (unsigned char)p->text[p->at] : -1; }

static void skip_space(gbnf *p, bool lines) {
  for (;;) {
    int c = peek(p);
    if (c == '#') {
      while (p->at < p->len && p->text[p->at] != '\n' && p->text[p->at] != '\r') p->at++;
    } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
      p->at++;
    } else {
      return;
    }
  }
}

static bool is_word(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static size_t read_word(gbnf *p, const char **word) {
  *word = p->text + p->at;
  size_t from = p->at;
  while (is_word(peek(p))) p->at++;
  return p->at - from;
}

static uint32_t hash_name(const char *s, size_t n) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)s[i]) * 16777619u;
  return h ^ h >> 15;
}

static uint32_t find_rule(gbnf *p, const char *name, size_t n) {
  uint32_t h = hash_name(name, n) & (p->n_table - 1);
  for (; p->table[h]; h = (h + 1) & (p->n_table - 1)) {
    const gb_rule *r = p->b->rules + p->table[h] - 1;
    if (r->n_name == n && !memcmp(p->b->text + r->name, name, n)) return p->table[h] - 1;
  }
  uint32_t r = mtx_gb_rule(p->b, name, n);
  if (!p->b->code) p->table[h] = r + 1;
  return r;
}

// One character of a literal or class, escapes resolved.
static uint32_t read_char(gbnf *p) {
  uint32_t c = 0;
  if (peek(p) != '\\') {
    size_t k = mtx_utf8_get(p->text + p->at, p->len - p->at, &c);
    if (!k) bad(p, p->at, "the text is not UTF-8 here");
    p->at += k ? k : 1;
    return c;
  }
  size_t at = p->at++;
  int e = peek(p);
  p->at++;
  size_t digits = e == 'x' ? 2 : e == 'u' ? 4 : e == 'U' ? 8 : 0;
  if (digits) {
    if (p->at > p->len || !mtx_hex_get(p->text + p->at, p->len - p->at, digits, &c) || c > 0x10ffff ||
        (c >= 0xd800 && c <= 0xdfff)) {
      bad(p, at, "\\%c needs %zu hexadecimal digits of a code point", e, digits);
      return 0;
    }
    p->at += digits;
    return c;
  }
  switch (e) {
    case 't': return '\t';
    case 'r': return '\r';
    case 'n': return '\n';
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
    case '/': return (uint32_t)e;
    default: bad(p, at, "unknown escape; use \\n, \\t, \\r, \\\\, \\\", \\[, \\], \\xXX, \\uXXXX or \\UXXXXXXXX"); return 0;
  }
}

static mtx_gx read_literal(gbnf *p) {
  const size_t open = p->at++;
  size_t n = 0, cap = 64;
  char *buf = malloc(cap);
  while (buf && !p->b->code && peek(p) != '"') {
    if (p->at >= p->len) {
      bad(p, open, "this literal has no closing quote");
      break;
    }
    if (n + 4 > cap) {
      char *more = realloc(buf, cap *= 2);
      if (!more) break;
      buf = more;
    }
    n += mtx_utf8_put(read_char(p), buf + n);
  }
  p->at++;
  mtx_gx x = mtx_gx_lit(p->b, buf ? buf : "", n);
  if (!buf) mtx_gb_fail(p->b, MTX_ENOMEM, open, "out of memory");
  free(buf);
  return x;
}

static mtx_gx read_class(gbnf *p) {
  const size_t open = p->at++;
  bool negated = peek(p) == '^';
  p->at += negated;
  struct {
    MTX_VEC(mtx_cprange, v);
  } r = {0};
  while (!p->b->code && peek(p) != ']') {
    if (p->at >= p->len) {
      bad(p, open, "this class has no closing bracket");
      break;
    }
    size_t at = p->at;
    uint32_t lo = read_char(p), hi = lo;
    if (peek(p) == '-' && p->at + 1 < p->len && p->text[p->at + 1] != ']') {
      p->at++;
      hi = read_char(p);
      if (!p->b->code && hi < lo) bad(p, at, "this range runs backwards");
    }
    if (!MTX_VEC_GROW(&r, v, 1, 100000u)) {
      bad(p, at, "this class is too large");
      break;
    }
    r.v[r.n_v++] = (mtx_cprange){lo, hi};
  }
  p->at++;
  mtx_gx x = mtx_gx_class(p->b, r.v, r.n_v, negated);
  free(r.v);
  return x;
}

static bool add_ref(gbnf *p, gr_token_ref ref) {
  mtx_gb *b = p->b;
  if (b->code) return false;
  if (!MTX_VEC_GROW(b, refs, 1, 10000u)) {
    mtx_gb_fail(b, MTX_ELIMIT, p->at, "the grammar names more than 10000 tokens");
    return false;
  }
  b->refs[b->n_refs++] = ref;
  return true;
}

static mtx_gx read_token(gbnf *p) {
  const size_t open = p->at;
  bool negated = peek(p) == '!';
  p->at += negated;
  if (peek(p) != '<') return bad(p, open, "'!' must stand before a token: !<[id]> or !<text>");
  const size_t lt = p->at++;
  gr_token_ref ref = {0};
  if (peek(p) == '[') {
    p->at++;
    uint64_t id = 0;
    size_t from = p->at;
    while (peek(p) >= '0' && peek(p) <= '9' && id <= UINT32_MAX) id = id * 10 + (uint64_t)(p->text[p->at++] - '0');
    if (p->at == from || id > INT32_MAX || p->at + 1 >= p->len || memcmp(p->text + p->at, "]>", 2))
      return bad(p, open, "a token id is written <[123]>");
    p->at += 2;
    ref = (gr_token_ref){.by_id = true, .id = (uint32_t)id};
  } else {
    while (p->at < p->len && p->text[p->at] != '>' && p->text[p->at] != '\n') p->at++;
    if (peek(p) != '>' || p->at == lt + 1) return bad(p, open, "this token has no closing '>'");
    p->at++;
    ref.n_text = (uint32_t)(p->at - lt);
    ref.text = mtx_gb_text(p->b, p->text + lt, ref.n_text);
  }
  if (!add_ref(p, ref)) return MTX_GX_NEVER;
  return mtx_gx_token(p->b, p->b->n_refs - 1, negated);
}

static bool read_count(gbnf *p, uint32_t *n) {
  uint64_t v = 0;
  size_t from = p->at;
  while (peek(p) >= '0' && peek(p) <= '9' && v <= MTX_GRAMMAR_MAX_REPEAT) v = v * 10 + (uint64_t)(p->text[p->at++] - '0');
  if (v > MTX_GRAMMAR_MAX_REPEAT) bad(p, from, "a repetition count above %u is too large", MTX_GRAMMAR_MAX_REPEAT);
  *n = (uint32_t)v;
  return p->at > from && !p->b->code;
}

static mtx_gx read_repeat(gbnf *p, mtx_gx x) {
  const size_t open = p->at;
  int c = peek(p);
  p->at++;
  if (c != '{') return mtx_gx_rep(p->b, x, c == '+', c == '?' ? 1 : MTX_REP_INF);
  uint32_t min, max;
  skip_space(p, true);
  if (!read_count(p, &min)) return bad(p, open, "a repetition is written {m}, {m,} or {m,n}");
  max = min;
  skip_space(p, true);
  if (peek(p) == ',') {
    p->at++;
    skip_space(p, true);
    if (peek(p) == '}')
      max = MTX_REP_INF;
    else if (!read_count(p, &max))
      return bad(p, open, "a repetition is written {m}, {m,} or {m,n}");
    skip_space(p, true);
  }
  if (peek(p) != '}') return bad(p, open, "this repetition has no closing brace");
  p->at++;
  if (max < min) return bad(p, open, "the repetition's maximum is below its minimum");
  return mtx_gx_rep(p->b, x, min, max);
}

static bool push(gbnf *p, mtx_gx x) {
  if (!MTX_VEC_GROW(p, stack, 1, 2000000u)) {
    mtx_gb_fail(p->b, MTX_ELIMIT, p->at, "the grammar is too large");
    return false;
  }
  p->stack[p->n_stack++] = x;
  return true;
}

static mtx_gx read_alternatives(gbnf *p, int nesting);

// One symbol without its repetition; false at the end of the sequence.
static bool read_symbol(gbnf *p, int nesting, mtx_gx *x) {
  int c = peek(p);
  if (c == '"') {
    *x = read_literal(p);
  } else if (c == '[') {
    *x = read_class(p);
  } else if (c == '.') {
    p->at++;
    *x = mtx_gx_class(p->b, NULL, 0, true);
  } else if (c == '<' || c == '!') {
    *x = read_token(p);
  } else if (c == '(') {
    size_t open = p->at++;
    if (nesting >= MAX_NESTING) {
      *x = bad(p, open, "groups are nested more than %d deep", MAX_NESTING);
      return true;
    }
    skip_space(p, true);
    *x = read_alternatives(p, nesting + 1);
    if (!p->b->code && peek(p) != ')') bad(p, open, "this group has no closing parenthesis");
    p->at++;
  } else if (is_word(c)) {
    const char *name;
    size_t n = read_word(p, &name);
    *x = mtx_gx_ref(p->b, find_rule(p, name, n));
  } else {
    return false;
  }
  return true;
}

// The inside of a string, as a rule of its own, is a leaf, whose masks are cheap (mask.h), and no less definite.
static void outline_insides(gbnf *p, uint32_t from) {
  for (uint32_t i = from; i + 1 < p->n_stack && !p->b->code; i++)
    if (mtx_gx_is_inside(p->b, p->stack[i], p->stack[i + 1])) p->stack[i] = mtx_gx_ref(p->b, mtx_gb_rule_of(p->b, p->stack[i], "text"));
}

static mtx_gx read_sequence(gbnf *p, int nesting) {
  const uint32_t from = p->n_stack;
  mtx_gx x;
  while (!p->b->code) {
    int c = peek(p);
    if (c == '*' || c == '+' || c == '?' || c == '{') {
      if (p->n_stack == from) return bad(p, p->at, "there is nothing before '%c' to repeat", c);
      p->stack[p->n_stack - 1] = read_repeat(p, p->stack[p->n_stack - 1]);
    } else if (!read_symbol(p, nesting, &x) || !push(p, x)) {
      break;
    }
    skip_space(p, nesting > 0);
  }
  if (!p->n_stack) return MTX_GX_EMPTY;
  outline_insides(p, from);
  x = mtx_gx_cat(p->b, p->stack + from, p->n_stack - from);
  p->n_stack = from;
  return x;
}

static mtx_gx read_alternatives(gbnf *p, int nesting) {
  const uint32_t from = p->n_stack;
  if (!push(p, read_sequence(p, nesting))) return MTX_GX_NEVER;
  while (!p->b->code && peek(p) == '|') {
    p->at++;
    skip_space(p, true);
    if (!push(p, read_sequence(p, nesting))) break;
  }
  mtx_gx x = mtx_gx_alt(p->b, p->stack + from, p->n_stack - from);
  p->n_stack = from;
  return x;
}

static void read_rule(gbnf *p) {
  const size_t at = p->at;
  const char *name;
  size_t n = read_word(p, &name);
  if (!n) {
    bad(p, at, "a rule must begin with its name");
    return;
  }
  skip_space(p, false);
  if (p->len - p->at < 3 || memcmp(p->text + p->at, "::=", 3)) {
    bad(p, p->at, "expected ::= after the rule's name");
    return;
  }
  p->at += 3;
  skip_space(p, true);
  uint32_t r = find_rule(p, name, n);
  if (!p->b->code && p->b->rules[r].defined) bad(p, at, "rule %.*s is defined twice", (int)(n < 100 ? n : 100), name);
  mtx_gx x = read_alternatives(p, 0);
  if (p->b->code) return;
  int c = peek(p);
  if (c >= 0 && c != '\n' && c != '\r') {
    bad(p, p->at, "unexpected character; a rule ends with its line");
    return;
  }
  mtx_gb_define(p->b, r, x);
  skip_space(p, true);
}

static mtx_code compile_mixed(mtx_gb *b, const char *text, size_t len, const mtx_schema_rule *schemas, size_t n_schemas,
                              const mtx_schema_opts *opts, mtx_grammar **out, mtx_err *err) {
  gbnf p = {.b = b, .text = text, .len = len, .n_table = 1u << 17};
  p.table = calloc(p.n_table, sizeof *p.table);
  if (!p.table) mtx_gb_fail(b, MTX_ENOMEM, 0, "out of memory");
  skip_space(&p, true);
  while (!b->code && p.at < len) {
    read_rule(&p);
    mtx_gb_in_time(b);
  }
  uint32_t root = b->code ? 0 : find_rule(&p, "root", 4);
  if (!b->code && !b->rules[root].defined)
    mtx_gb_fail(b, MTX_EFORMAT, 0, "the grammar has no rule named root");
  mtx_code code = MTX_OK;
  for (size_t i = 0; i < n_schemas && !b->code && !code; i++) {
    uint32_t r = find_rule(&p, schemas[i].name, schemas[i].name_len);
    if (b->code) break;
    if (b->rules[r].defined)
      mtx_gb_fail(b, MTX_EINVAL, 0, "rule %.*s is a schema and is also defined", (int)schemas[i].name_len, schemas[i].name);
    else if (schemas[i].inside)
      mtx_gb_define(b, r, mtx_regex_expression(b, schemas[i].text, schemas[i].len, true));
    else
      code = mtx_schema_define(b, r, schemas + i, opts, err);
  }
  free(p.table);
  free(p.stack);
  if (!code) code = mtx_gb_finish(b, root, out, err);
  return code;
}

mtx_code mtx_grammar_compile_mixed(const char *text, size_t len, const mtx_schema_rule *schemas, size_t n_schemas,
                                   const mtx_schema_opts *opts, mtx_grammar **out, mtx_err *err) {
  *out = NULL;
  if (len > MTX_GRAMMAR_MAX_TEXT_BYTES)
    return mtx_fail(err, MTX_ELIMIT, "the grammar has more than %u bytes", MTX_GRAMMAR_MAX_TEXT_BYTES);
  mtx_gb b;
  mtx_gb_init(&b);
  mtx_code code;
  do
    code = compile_mixed(&b, text, len, schemas, n_schemas, opts, out, err);
  while (code && mtx_gb_again(&b));
  mtx_gb_fini(&b);
  return code;
}

mtx_code mtx_grammar_compile_gbnf(const char *text, size_t len, mtx_grammar **out, mtx_err *err) {
  return mtx_grammar_compile_mixed(text, len, NULL, 0, NULL, out, err);
}
