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
  return SC_KIND(part) == SC_BASE ? sc_get(s, SC_NODE(part), key) : MTX_JSON_NONE;
}

uint32_t sc_negated(const mtx_sc *s, uint32_t part, const char *key) {
  const uint32_t node = SC_NODE(part);
  return SC_KIND(part) == SC_NEG && !strcmp(s->j->pool + sc_node(s, node)->key, key) ? node : MTX_JSON_NONE;
}

void sc_each_excluded(mtx_sc *s, uint32_t part, void (*f)(mtx_sc *s, uint32_t value, void *ctx), void *ctx) {
  const uint32_t one = sc_negated(s, part, "const"), list = sc_negated(s, part, "enum");
  if (one != MTX_JSON_NONE) f(s, one, ctx);
  if (list == MTX_JSON_NONE) return;
  for (uint32_t k = sc_node(s, list)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next) f(s, k, ctx);
}

static uint32_t count_of(mtx_sc *s, uint32_t n, const char *key, uint32_t fallback) {
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

uint32_t sc_count(mtx_sc *s, uint32_t part, const char *key, uint32_t fallback) {
  const uint32_t n = sc_keyword(s, part, key);
  return n == MTX_JSON_NONE ? fallback : count_of(s, n, key, fallback);
}

void sc_negated_counts(mtx_sc *s, uint32_t part, const char *min_key, const char *max_key, uint32_t *min, uint32_t *max) {
  const uint32_t below = sc_negated(s, part, min_key), above = sc_negated(s, part, max_key);
  if (below != MTX_JSON_NONE) {
    const uint32_t n = count_of(s, below, min_key, 0);
    if (n == 0) *min = UINT32_MAX;
    if (n == 0 || n - 1 < *max) *max = n ? n - 1 : 0;
  }
  if (above != MTX_JSON_NONE) {
    const uint32_t n = count_of(s, above, max_key, UINT32_MAX);
    if (n >= *min) *min = n == UINT32_MAX ? n : n + 1;
    if (n == UINT32_MAX) *max = 0;
  }
}

// Does the value satisfy the part? A way to break a schema holds for all that break it: the
// other ways are alternatives beside this one.
static bool holds_part(mtx_sc *s, uint32_t value, uint32_t part) {
  const uint32_t node = SC_NODE(part);
  uint32_t schema = sc_node(s, node)->parent;
  switch (SC_KIND(part)) {
    case SC_BASE:
    case SC_ANY:
    case SC_ONE:
    case SC_IF: return sc_holds(s, value, node, 0);
    case SC_OTHER:
    case SC_NOT: return !sc_holds(s, value, node, 0);
    case SC_NEG: return !sc_holds(s, value, schema, 0);
    case SC_HASNOT:
    case SC_WITHOUT:  // a member of `properties`, an entry of `required` or of a list of dependentRequired
      schema = sc_node(s, schema)->parent;
      if (sc_has_key(s, schema, "dependentRequired") || sc_has_key(s, schema, "dependencies")) schema = sc_node(s, schema)->parent;
      return !sc_holds(s, value, schema, 0);
    default: return true;
  }
}

bool sc_candidates(mtx_sc *s, const sc_conj *c, sc_nodes *out) {
  uint32_t list = MTX_JSON_NONE, single = MTX_JSON_NONE;
  for (uint32_t i = 0; i < c->n && single == MTX_JSON_NONE; i++) {
    single = sc_keyword(s, c->v[i], "const");
    uint32_t e = sc_keyword(s, c->v[i], "enum");
    if (e == MTX_JSON_NONE) continue;
    if (sc_node(s, e)->kind != MTX_JSON_ARRAY) sc_fail(s, MTX_EFORMAT, e, "enum must be a list");
    list = e;
  }
  if (single == MTX_JSON_NONE && list == MTX_JSON_NONE) return false;
  uint32_t i = single != MTX_JSON_NONE ? single : sc_node(s, list)->first;
  uint32_t k = 0;
  for (; i != MTX_JSON_NONE && !s->b->code; i = i == single ? MTX_JSON_NONE : sc_node(s, i)->next) {
    bool ok = true;
    for (uint32_t p = 0; p < c->n && ok; p++) ok = holds_part(s, i, c->v[p]);
    if (ok && MTX_VEC_GROW(out, v, 1, 1000000u)) out->v[out->n_v++] = i;
    if (!(++k & 255)) mtx_gb_in_time(s->b);
  }
  return true;
}

static bool enumerated(mtx_sc *s, const sc_conj *c, mtx_gx *out) {
  sc_nodes values = {0};
  if (!sc_candidates(s, c, &values)) return false;
  for (uint32_t i = 0; i < values.n_v; i++) values.v[i] = sc_literal(s, values.v[i]);
  *out = mtx_gx_alt(s->b, values.v, values.n_v);
  free(values.v);
  return true;
}

static uint32_t first_group(const sc_conj *c) {
  for (uint32_t i = 0; i < c->n; i++)
    if (SC_KIND(c->v[i]) == SC_ANY || SC_KIND(c->v[i]) == SC_ONE) return i;
  return UINT32_MAX;
}

#define MAX_EXACT_BRANCHES 64u

// Should branch k of oneOf be excluded where branch i is meant?
static bool must_exclude(mtx_sc *s, uint32_t i, uint32_t k) { return i != k && !sc_disjoint(s, i, k, 0); }

// May values that two branches take be kept out? A warning otherwise.
static bool one_of_is_exact(mtx_sc *s, uint32_t list, uint32_t kind) {
  const char *why = s->b->with_cases ? NULL : "the schema is too large for it, so it is treated as anyOf";
  if (sc_node(s, list)->n_kids > MAX_EXACT_BRANCHES) why = "it has many branches and is treated as anyOf";
  for (uint32_t i = sc_node(s, list)->first; i != MTX_JSON_NONE && !why && mtx_gb_in_time(s->b); i = sc_node(s, i)->next)
    for (uint32_t k = sc_node(s, list)->first; k != MTX_JSON_NONE && !why; k = sc_node(s, k)->next) {
      if (!must_exclude(s, i, k)) continue;
      const int ways = sc_negation(s, SC_PART(k, kind), 0, NULL), all = sc_negation(s, SC_PART(k, SC_NOT), 0, NULL);
      if (ways < 0 || (ways == 0 && all > 0)) why = "its branches may overlap, so it is treated as anyOf";
    }
  if (why) sc_unenforced(s, list, "oneOf", why);
  return !why;
}

// The conjunction's first group, one alternative per branch.
static mtx_gx alternatives(mtx_sc *s, const sc_conj *c, uint32_t i_group, const char *name, size_t n_name) {
  const uint32_t part = c->v[i_group], node = SC_NODE(part);
  const bool one = SC_KIND(part) == SC_ONE;
  const uint32_t list = sc_get(s, node, one ? "oneOf" : "anyOf");
  if (sc_node(s, list)->kind != MTX_JSON_ARRAY || sc_node(s, list)->n_kids > 2000) {
    sc_fail(s, MTX_EFORMAT, list, "anyOf and oneOf must be lists of at most 2000 schemas");
    return MTX_GX_NEVER;
  }
  const uint32_t other = s->opts.open_keys ? SC_NOT : SC_OTHER;
  const bool exact = one && one_of_is_exact(s, list, other);
  s->b->used_cases |= exact;
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
    for (uint32_t k = sc_node(s, list)->first; exact && k != MTX_JSON_NONE; k = sc_node(s, k)->next)
      if (must_exclude(s, b, k)) sc_add(s, &branch, SC_PART(k, other));
    x[n++] = sc_value(s, &branch, name, n_name);
  }
  return mtx_gx_alt(s->b, x, n);
}

#define KIND_BIT(kind) (1u << (kind))

static void note_excluded(mtx_sc *s, uint32_t value, void *kinds) { *(uint32_t *)kinds |= KIND_BIT(sc_node(s, value)->kind); }

static mtx_gx by_type(mtx_sc *s, const sc_conj *c, uint32_t types) {
  mtx_gx x[8];
  uint32_t n = 0;
  if (s->as_text) types &= SC_STR;
  if (types & SC_OBJ) x[n++] = sc_object(s, c);
  if (types & SC_ARR) x[n++] = sc_array(s, c);
  if (types & SC_STR) x[n++] = sc_string(s, c);
  if (types & (SC_NUM | SC_INT)) x[n++] = sc_number(s, c, types);
  uint32_t excluded = 0;
  for (uint32_t i = 0; i < c->n; i++) sc_each_excluded(s, c->v[i], note_excluded, &excluded);
  if ((types & SC_BOOL) && !(excluded & KIND_BIT(MTX_JSON_TRUE))) x[n++] = mtx_gx_lit(s->b, "true", 4);
  if ((types & SC_BOOL) && !(excluded & KIND_BIT(MTX_JSON_FALSE))) x[n++] = mtx_gx_lit(s->b, "false", 5);
  if ((types & SC_NULL) && !(excluded & KIND_BIT(MTX_JSON_NULL))) x[n++] = mtx_gx_lit(s->b, "null", 4);
  if (((types & SC_ARR) && (excluded & KIND_BIT(MTX_JSON_ARRAY))) || ((types & SC_OBJ) && (excluded & KIND_BIT(MTX_JSON_OBJECT))))
    for (uint32_t i = 0; i < c->n; i++)
      if (SC_KIND(c->v[i]) == SC_NEG) sc_unenforced(s, SC_NODE(c->v[i]), "not", "arrays and objects are not kept from single values");
  return mtx_gx_alt(s->b, x, n);
}

mtx_gx sc_build(mtx_sc *s, const sc_conj *c, const char *name, size_t n_name) {
  mtx_gx x;
  if (enumerated(s, c, &x)) return x;
  uint32_t group = first_group(c);
  if (group != UINT32_MAX) return alternatives(s, c, group, name, n_name);
  if (sc_has_conditions(c)) return sc_cases(s, c, name, n_name);
  return by_type(s, c, sc_types(s, c));
}

// Scalars are written where they stand; everything that can nest is a rule.
static bool is_scalar(mtx_sc *s, const sc_conj *c) {
  for (uint32_t i = 0; i < c->n; i++)
    if (sc_keyword(s, c->v[i], "const") != MTX_JSON_NONE) return true;
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t e = sc_keyword(s, c->v[i], "enum");
    if (e != MTX_JSON_NONE) return sc_node(s, e)->n_kids <= 16;
  }
  return first_group(c) == UINT32_MAX && !sc_has_conditions(c) && !(sc_types(s, c) & (SC_OBJ | SC_ARR));
}

static bool says_nothing(const mtx_sc *s, const sc_conj *c) {
  static const char *const notes[] = {"title",   "description", "default", "examples", "$comment", "$schema", "$id", "$defs",
                                      "definitions", "deprecated", "readOnly", "writeOnly", "$anchor"};
  for (uint32_t i = 0; i < c->n; i++) {
    if (SC_KIND(c->v[i]) != SC_BASE) return false;
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
    mtx_gx x = sc_build(s, &flat_c, name, n_name);
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
    mtx_gb_define(s->b, m.rule, sc_build(s, &c, name, n));
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

mtx_code mtx_schema_define(mtx_gb *b, uint32_t rule, const mtx_schema_rule *schema, const mtx_schema_opts *opts, mtx_err *err) {
  if (schema->len > MTX_GRAMMAR_MAX_TEXT_BYTES)
    return mtx_fail(err, MTX_ELIMIT, "the schema has more than %u bytes", MTX_GRAMMAR_MAX_TEXT_BYTES);
  mtx_json j;
  mtx_code code = mtx_json_parse(schema->text, schema->len, &j, err);
  if (code) return code;
  mtx_sc s = {.b = b, .j = &j, .as_text = schema->as_text};
  if (s.as_text && schema->stop_len) s.texts = sc_texts_without(&s, schema->stop, schema->stop_len);
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
  mtx_cdfa_free(s.texts);
  return MTX_OK;
}

mtx_code mtx_grammar_compile_json_schema(const char *text, size_t len, const mtx_schema_opts *opts, mtx_grammar **out,
                                         mtx_err *err) {
  *out = NULL;
  mtx_gb b;
  mtx_gb_init(&b);
  b.cycle = "schema: $ref leads back to itself without any content (at %.*s)";
  mtx_code code;
  do {
    uint32_t root = mtx_gb_rule(&b, "root", 4);
    code = mtx_schema_define(&b, root, &(mtx_schema_rule){.text = text, .len = len}, opts, err);
    if (!code) code = mtx_gb_finish(&b, root, out, err);
  } while (code && mtx_gb_again(&b));
  mtx_gb_fini(&b);
  return code;
}
