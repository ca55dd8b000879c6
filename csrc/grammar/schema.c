// SPDX-License-Identifier: MIT
// Conjunctions of schema parts into rules: alternatives, fixed values, and what each type allows.
#include "grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sc_fail(mtx_sc *s, mtx_code code, uint32_t node, const char *fmt, ...) {
  char msg[300];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(msg, sizeof msg, fmt, ap);
  va_end(ap);
  mtx_gb_fail(s->b, code, node < s->j->n_nodes ? sc_node(s, node)->offset : 0, "schema: %s", msg);
}

void sc_unenforced(mtx_sc *s, uint32_t node, const char *keyword, const char *why) {
  if (s->opts.strict)
    sc_fail(s, MTX_EUNSUPPORTED, node, "%s cannot be enforced (%s)", keyword, why);
  else
    mtx_gb_warn(s->b, "%s at byte %u is not enforced: %s", keyword, sc_node(s, node)->offset, why);
}

uint32_t sc_keyword(const mtx_sc *s, uint32_t part, const char *key) {
  return (part & 3) == SC_BASE ? sc_get(s, SC_NODE(part), key) : MTX_JSON_NONE;
}

uint32_t sc_count(mtx_sc *s, uint32_t part, const char *key, uint32_t fallback) {
  uint32_t n = sc_keyword(s, part, key);
  if (n == MTX_JSON_NONE) return fallback;
  mtx_decimal d;
  bool ok = sc_node(s, n)->kind == MTX_JSON_NUMBER && mtx_decimal_read(sc_text(s, n), sc_node(s, n)->n_text, &d) &&
            !d.negative && mtx_decimal_is_integer(&d);
  if (!ok) {
    sc_fail(s, MTX_EFORMAT, n, "%s must be a whole number, 0 or more", key);
    return fallback;
  }
  uint64_t v = 0;
  for (int i = 0; i < d.n_int; i++)
    if (v < UINT32_MAX) v = v * 10 + (uint64_t)(d.digits[i] - '0');
  if (v <= MTX_GRAMMAR_MAX_REPEAT) return (uint32_t)v;
  if (fallback == UINT32_MAX) return fallback;  // an upper bound nobody reaches
  sc_fail(s, MTX_ELIMIT, n, "%s is too large (limit %u)", key, MTX_GRAMMAR_MAX_REPEAT);
  return fallback;
}

// Candidates of enum and const, filtered by everything else that holds.
static bool enumerated(mtx_sc *s, const sc_conj *c, mtx_gx *out) {
  uint32_t list = MTX_JSON_NONE, single = MTX_JSON_NONE;
  for (uint32_t i = 0; i < c->n && single == MTX_JSON_NONE; i++) {
    single = sc_keyword(s, c->v[i], "const");
    uint32_t e = sc_keyword(s, c->v[i], "enum");
    if (e == MTX_JSON_NONE) continue;
    if (sc_node(s, e)->kind != MTX_JSON_ARRAY) sc_fail(s, MTX_EFORMAT, e, "enum must be a list");
    list = e;
  }
  if (single == MTX_JSON_NONE && list == MTX_JSON_NONE) return false;
  struct {
    MTX_VEC(mtx_gx, v);
  } alts = {0};
  uint32_t i = single != MTX_JSON_NONE ? single : sc_node(s, list)->first;
  uint32_t k = 0;
  for (; i != MTX_JSON_NONE && !s->b->code; i = i == single ? MTX_JSON_NONE : sc_node(s, i)->next) {
    bool ok = true;
    for (uint32_t p = 0; p < c->n && ok; p++)
      if ((c->v[p] & 3) == SC_BASE) ok = sc_holds(s, i, SC_NODE(c->v[p]), 0);
    if (ok && MTX_VEC_GROW(&alts, v, 1, 1000000u)) alts.v[alts.n_v++] = sc_literal(s, i);
    if (!(++k & 255)) mtx_gb_in_time(s->b);
  }
  *out = mtx_gx_alt(s->b, alts.v, alts.n_v);
  free(alts.v);
  return true;
}

static void warn_general(mtx_sc *s, const sc_conj *c) {
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t no = sc_keyword(s, c->v[i], "not"), cond = sc_keyword(s, c->v[i], "if");
    if (no != MTX_JSON_NONE && !(sc_node(s, no)->kind == MTX_JSON_OBJECT && sc_node(s, no)->n_kids == 1 &&
                                 sc_get(s, no, "type") != MTX_JSON_NONE) && sc_node(s, no)->kind != MTX_JSON_FALSE)
      sc_unenforced(s, no, "not", "a grammar cannot say what a value is not");
    if (cond != MTX_JSON_NONE && (sc_keyword(s, c->v[i], "then") != MTX_JSON_NONE ||
                                  sc_keyword(s, c->v[i], "else") != MTX_JSON_NONE))
      sc_unenforced(s, cond, "if", "conditions are not supported; use anyOf");
  }
}

static bool forbidden(const mtx_sc *s, const sc_conj *c) {
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t no = sc_keyword(s, c->v[i], "not");
    if (no != MTX_JSON_NONE && (sc_node(s, no)->kind == MTX_JSON_TRUE ||
                                (sc_node(s, no)->kind == MTX_JSON_OBJECT && sc_node(s, no)->n_kids == 0)))
      return true;
  }
  return false;
}

static uint32_t first_group(const sc_conj *c) {
  for (uint32_t i = 0; i < c->n; i++)
    if ((c->v[i] & 3) >= SC_ANY) return i;
  return UINT32_MAX;
}

static void check_one_of(mtx_sc *s, uint32_t list) {
  for (uint32_t i = sc_node(s, list)->first; i != MTX_JSON_NONE; i = sc_node(s, i)->next)
    for (uint32_t k = sc_node(s, i)->next; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
      if (!sc_disjoint(s, i, k, 0)) {
        sc_unenforced(s, list, "oneOf", "its branches may overlap, so it is treated as anyOf");
        return;
      }
}

// The conjunction's first group, one alternative per branch.
static mtx_gx alternatives(mtx_sc *s, const sc_conj *c, uint32_t i_group, const char *name, size_t n_name) {
  const uint32_t part = c->v[i_group], node = SC_NODE(part);
  const bool one = (part & 3) == SC_ONE;
  const uint32_t list = sc_get(s, node, one ? "oneOf" : "anyOf");
  if (sc_node(s, list)->kind != MTX_JSON_ARRAY || sc_node(s, list)->n_kids > 2000) {
    sc_fail(s, MTX_EFORMAT, list, "anyOf and oneOf must be lists of at most 2000 schemas");
    return MTX_GX_NEVER;
  }
  if (one && sc_node(s, list)->n_kids <= 64)
    check_one_of(s, list);
  else if (one)
    sc_unenforced(s, list, "oneOf", "it has many branches and is treated as anyOf");
  mtx_gx x[2000];
  uint32_t n = 0;
  for (uint32_t b = sc_node(s, list)->first; b != MTX_JSON_NONE && !s->b->code; b = sc_node(s, b)->next) {
    sc_conj branch = {.n = 0};
    for (uint32_t i = 0; i < c->n; i++) {
      if (i == i_group)
        sc_add(s, &branch, SC_PART(b, SC_ALL));
      else
        sc_add(s, &branch, c->v[i]);
    }
    x[n++] = sc_value(s, &branch, name, n_name);
  }
  return mtx_gx_alt(s->b, x, n);
}

static mtx_gx by_type(mtx_sc *s, const sc_conj *c, uint32_t types) {
  mtx_gx x[8];
  uint32_t n = 0;
  if (types & SC_OBJ) x[n++] = sc_object(s, c);
  if (types & SC_ARR) x[n++] = sc_array(s, c);
  if (types & SC_STR) x[n++] = sc_string(s, c);
  if (types & (SC_NUM | SC_INT)) x[n++] = sc_number(s, c, !(types & SC_NUM));
  if (types & SC_BOOL) {
    x[n++] = mtx_gx_lit(s->b, "true", 4);
    x[n++] = mtx_gx_lit(s->b, "false", 5);
  }
  if (types & SC_NULL) x[n++] = mtx_gx_lit(s->b, "null", 4);
  return mtx_gx_alt(s->b, x, n);
}

static mtx_gx build(mtx_sc *s, const sc_conj *c, const char *name, size_t n_name) {
  uint32_t group = first_group(c);
  if (group != UINT32_MAX) return alternatives(s, c, group, name, n_name);
  if (forbidden(s, c)) return MTX_GX_NEVER;
  warn_general(s, c);
  mtx_gx x;
  if (enumerated(s, c, &x)) return x;
  const uint32_t types = sc_types(s, c);
  sc_warn_types(s, c, types);
  return by_type(s, c, types);
}

// Scalars are written where they stand; everything that can nest is a rule.
static bool is_scalar(mtx_sc *s, const sc_conj *c) {
  if (first_group(c) != UINT32_MAX) return false;
  for (uint32_t i = 0; i < c->n; i++)
    if (sc_keyword(s, c->v[i], "const") != MTX_JSON_NONE) return true;
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t e = sc_keyword(s, c->v[i], "enum");
    if (e != MTX_JSON_NONE) return sc_node(s, e)->n_kids <= 16;
  }
  return !(sc_types(s, c) & (SC_OBJ | SC_ARR));
}

static bool says_nothing(const mtx_sc *s, const sc_conj *c) {
  static const char *const notes[] = {"title",   "description", "default", "examples", "$comment", "$schema", "$id", "$defs",
                                      "definitions", "deprecated", "readOnly", "writeOnly", "$anchor"};
  for (uint32_t i = 0; i < c->n; i++) {
    if ((c->v[i] & 3) != SC_BASE) return false;
    for (uint32_t k = sc_node(s, SC_NODE(c->v[i]))->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next) {
      bool note = false;
      for (size_t j = 0; j < sizeof notes / sizeof *notes && !note; j++)
        note = !strcmp(s->j->pool + sc_node(s, k)->key, notes[j]);
      if (!note) return false;
    }
  }
  return true;
}

mtx_gx sc_value(mtx_sc *s, const sc_conj *c, const char *name, size_t n_name) {
  sc_conj flat_c = *c;
  sc_flatten(s, &flat_c);
  if (s->b->code || flat_c.never) return MTX_GX_NEVER;
  if (says_nothing(s, &flat_c)) return sc_any(s);
  bool is_new;
  sc_memo *m = sc_intern(s, &flat_c, &is_new);
  if (!m) return MTX_GX_NEVER;
  if (!is_new) return m->x;
  const uint32_t i = (uint32_t)(m - s->memos);
  if (is_scalar(s, &flat_c)) {
    mtx_gx x = build(s, &flat_c, name, n_name);
    s->memos[i].x = x;
    return x;
  }
  uint32_t rule = mtx_gb_rule(s->b, name, n_name);
  mtx_gx x = mtx_gx_ref(s->b, rule);
  s->memos[i].rule = rule;
  s->memos[i].x = x;
  return x;
}

// Bodies of rules are built from a queue, so nesting costs no C stack.
static void build_all(mtx_sc *s) {
  for (; s->i_build < s->n_memos && mtx_gb_in_time(s->b); s->i_build++) {
    const sc_memo m = s->memos[s->i_build];
    if (m.rule == UINT32_MAX) continue;
    sc_conj c = {.n = m.n};
    memcpy(c.v, s->parts + m.at + m.n, m.n * sizeof *c.v);
    char name[80];
    const gb_rule r = s->b->rules[m.rule];
    size_t n = r.n_name < sizeof name ? r.n_name : sizeof name;
    memcpy(name, s->b->text + r.name, n);
    mtx_gb_define(s->b, m.rule, build(s, &c, name, n));
  }
}

static void shared_blanks(mtx_sc *s) {
  mtx_gb *b = s->b;
  const mtx_cprange ws[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
  s->blank = s->space = MTX_GX_EMPTY;
  if (s->opts.ws == MTX_WS_SPACE) s->space = mtx_gx_rep(b, mtx_gx_lit(b, " ", 1), 0, 1);
  if (s->opts.ws == MTX_WS_ANY) s->blank = s->space = mtx_gx_rep(b, mtx_gx_class(b, ws, 3, false), 0, 64);
  s->comma = mtx_gx_cat(b, (mtx_gx[]){s->blank, mtx_gx_lit(b, ",", 1), s->space}, 3);
  s->colon = mtx_gx_cat(b, (mtx_gx[]){s->blank, mtx_gx_lit(b, ":", 1), s->space}, 3);
}

mtx_code mtx_schema_define(mtx_gb *b, uint32_t rule, const char *text, size_t len, const mtx_schema_opts *opts, mtx_err *err) {
  if (len > MTX_GRAMMAR_MAX_TEXT_BYTES)
    return mtx_fail(err, MTX_ELIMIT, "the schema has more than %u bytes", MTX_GRAMMAR_MAX_TEXT_BYTES);
  mtx_json j;
  mtx_code code = mtx_json_parse(text, len, &j, err);
  if (code) return code;
  mtx_sc s = {.b = b, .j = &j};
  if (opts) s.opts = *opts;
  uint32_t version = j.nodes[0].kind == MTX_JSON_OBJECT ? mtx_json_get(&j, 0, "$schema") : MTX_JSON_NONE;
  if (version != MTX_JSON_NONE && j.nodes[version].kind == MTX_JSON_STRING)
    s.draft7 = strstr(j.pool + j.nodes[version].text, "draft-0") != NULL;
  shared_blanks(&s);
  sc_conj c = {.n = 1, .v = {SC_PART(0, SC_ALL)}};
  mtx_gx value = sc_value(&s, &c, "value", 5);
  mtx_gb_define(b, rule, value);
  build_all(&s);
  mtx_json_fini(&j);
  free(s.parts);
  free(s.memos);
  free(s.hash);
  free(s.lengths);
  return MTX_OK;
}

mtx_code mtx_grammar_compile_json_schema(const char *text, size_t len, const mtx_schema_opts *opts, mtx_grammar **out,
                                         mtx_err *err) {
  *out = NULL;
  mtx_gb b;
  mtx_gb_init(&b);
  b.cycle = "schema: $ref leads back to itself without any content (at %.*s)";
  uint32_t root = mtx_gb_rule(&b, "root", 4);
  mtx_code code = mtx_schema_define(&b, root, text, len, opts, err);
  if (!code) code = mtx_gb_finish(&b, root, out, err);
  mtx_gb_fini(&b);
  return code;
}
