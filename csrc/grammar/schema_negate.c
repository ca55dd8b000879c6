// SPDX-License-Identifier: MIT
// "Not this schema" as alternatives: a value breaks a schema by breaking one of its keywords.
#include <string.h>

#include "grammar/schema.h"

#define MAX_VISITS 400  // schemas looked at for one negation
#define MAX_DEPTH 12

typedef struct {
  mtx_sc *s;
  uint32_t want;  // which alternative is written to out
  sc_conj *out;   // NULL: they are only counted
  uint32_t n;
  int n_visits;
  bool other;     // of another branch of oneOf, see SC_OTHER
  bool cannot;
} negation;

// A way to break the schema: what holds then, in one part or two.
static void way(negation *g, uint32_t part, uint32_t and_part) {
  if (g->n++ != g->want || !g->out) return;
  sc_add(g->s, g->out, part);
  if (and_part != part) sc_add(g->s, g->out, and_part);
}

static void alternative(negation *g, uint32_t node, uint32_t kind) { way(g, SC_PART(node, kind), SC_PART(node, kind)); }

static bool is_one_of(const char *key, const char *const *list) {
  for (; *list; list++)
    if (!strcmp(key, *list)) return true;
  return false;
}

static void walk(negation *g, uint32_t node, int depth);

// Number of ways to break a schema within another.
static uint32_t ways(negation *g, uint32_t node, int depth) {
  negation inner = {.s = g->s, .n_visits = g->n_visits, .want = UINT32_MAX};
  walk(&inner, node, depth + 1);
  g->n_visits = inner.n_visits;
  g->cannot |= inner.cannot;
  return inner.n;
}

static void walk_any_of(negation *g, uint32_t list, int depth) {
  bool every = true;
  for (uint32_t k = sc_node(g->s, list)->first; k != MTX_JSON_NONE; k = sc_node(g->s, k)->next) every &= ways(g, k, depth) > 0;
  if (!every || g->cannot) return;  // one branch takes everything
  if (g->n++ != g->want || !g->out) return;
  for (uint32_t k = sc_node(g->s, list)->first; k != MTX_JSON_NONE; k = sc_node(g->s, k)->next) sc_add(g->s, g->out, SC_PART(k, SC_NOT));
}

// None of the branches, or two of them.
static void walk_one_of(negation *g, uint32_t list, int depth) {
  mtx_sc *s = g->s;
  walk_any_of(g, list, depth);
  for (uint32_t i = sc_node(s, list)->first; i != MTX_JSON_NONE && g->n <= SC_MAX_CASES; i = sc_node(s, i)->next)
    for (uint32_t k = sc_node(s, i)->next; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
      if (!sc_disjoint(s, i, k, 0)) way(g, SC_PART(i, SC_ALL), SC_PART(k, SC_ALL));
}

static void walk_if(negation *g, uint32_t cond, int depth) {
  const uint32_t schema = sc_node(g->s, cond)->parent, then = sc_get(g->s, schema, "then"), other = sc_get(g->s, schema, "else");
  if (then != MTX_JSON_NONE && ways(g, then, depth)) way(g, SC_PART(cond, SC_ALL), SC_PART(then, SC_NOT));
  if (other != MTX_JSON_NONE && ways(g, other, depth) && ways(g, cond, depth)) way(g, SC_PART(cond, SC_NOT), SC_PART(other, SC_NOT));
}

// dependentRequired, dependentSchemas and dependencies: a key comes, and what depends on it does not hold.
static void walk_dependent(negation *g, uint32_t map, int depth) {
  mtx_sc *s = g->s;
  g->cannot |= sc_node(s, map)->kind != MTX_JSON_OBJECT;
  for (uint32_t m = sc_node(s, map)->first; m != MTX_JSON_NONE && !g->cannot; m = sc_node(s, m)->next) {
    if (sc_node(s, m)->kind != MTX_JSON_ARRAY) {
      if (ways(g, m, depth)) way(g, SC_PART(m, SC_HAS), SC_PART(m, SC_NOT));
      continue;
    }
    for (uint32_t k = sc_node(s, m)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
      if (sc_node(s, k)->kind == MTX_JSON_STRING) way(g, SC_PART(m, SC_HAS), SC_PART(k, SC_WITHOUT));
  }
}

// Too few items that are meant, or too many.
static void walk_contains(negation *g, uint32_t k) {
  const uint32_t part = SC_PART(sc_node(g->s, k)->parent, SC_BASE), most = sc_keyword(g->s, part, "maxContains");
  if (sc_count(g->s, part, "minContains", 1)) alternative(g, k, SC_NEG);
  if (most != MTX_JSON_NONE) alternative(g, most, SC_NEG);
}

static bool is_fixed(const mtx_sc *s, uint32_t schema) {
  return sc_node(s, schema)->kind == MTX_JSON_OBJECT && (sc_get(s, schema, "const") != MTX_JSON_NONE || sc_get(s, schema, "enum") != MTX_JSON_NONE);
}

static void walk_keyword(negation *g, uint32_t k, int depth) {
  static const char *const texts[] = {"pattern", NULL};
  static const char *const numbers[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", NULL};
  static const char *const sets[] = {"type", "const", NULL};
  static const char *const depending[] = {"dependentRequired", "dependentSchemas", "dependencies", NULL};
  static const char *const hard[] = {"additionalItems", "prefixItems", "additionalProperties", "patternProperties", "propertyNames",
                                     "uniqueItems", "nullable", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", NULL};
  mtx_sc *s = g->s;
  const mtx_jnode *n = sc_node(s, k);
  const char *key = s->j->pool + n->key;
  uint32_t target;
  if (is_one_of(key, sets) || (is_one_of(key, texts) && n->kind == MTX_JSON_STRING) || (is_one_of(key, numbers) && n->kind == MTX_JSON_NUMBER) ||
      (!strcmp(key, "enum") && n->kind == MTX_JSON_ARRAY)) {
    alternative(g, k, SC_NEG);
  } else if (is_one_of(key, texts) || is_one_of(key, numbers) || !strcmp(key, "enum")) {
    g->cannot = true;
  } else if (!strcmp(key, "format")) {
    const sc_format *f = n->kind == MTX_JSON_STRING ? sc_find_format(sc_text(s, k)) : NULL;
    g->cannot |= !f || f->max;
    alternative(g, k, SC_NEG);
  } else if (!strcmp(key, "required") && n->kind == MTX_JSON_ARRAY) {
    for (uint32_t i = n->first; i != MTX_JSON_NONE; i = sc_node(s, i)->next)
      if (sc_node(s, i)->kind == MTX_JSON_STRING) alternative(g, i, SC_WITHOUT);
  } else if (!strcmp(key, "properties") && n->kind == MTX_JSON_OBJECT) {
    for (uint32_t i = n->first; i != MTX_JSON_NONE && !g->cannot; i = sc_node(s, i)->next)
      if (ways(g, i, depth) && (!g->other || is_fixed(s, i))) alternative(g, i, SC_HASNOT);
  } else if (!strcmp(key, "not")) {
    alternative(g, k, SC_ALL);
  } else if (!strcmp(key, "allOf")) {
    for (uint32_t i = n->first; i != MTX_JSON_NONE; i = sc_node(s, i)->next) walk(g, i, depth + 1);
  } else if (!strcmp(key, "anyOf")) {
    walk_any_of(g, k, depth);
  } else if (!strcmp(key, "$ref")) {
    if ((target = sc_resolve(s, k)) != MTX_JSON_NONE) walk(g, target, depth + 1);
  } else if (!strcmp(key, "oneOf")) {
    walk_one_of(g, k, depth);
  } else if (!strcmp(key, "if")) {
    walk_if(g, k, depth);
  } else if (is_one_of(key, depending)) {
    walk_dependent(g, k, depth);
  } else if (!strcmp(key, "contains")) {
    walk_contains(g, k);
  } else if (!strcmp(key, "items") && n->kind != MTX_JSON_ARRAY && sc_get(s, n->parent, "prefixItems") == MTX_JSON_NONE) {
    if (ways(g, k, depth)) alternative(g, k, SC_NEG);
  } else if (!strcmp(key, "items")) {
    g->cannot = true;
  } else if (is_one_of(key, hard)) {
    const bool off = !strcmp(key, "uniqueItems") || !strcmp(key, "nullable");
    const bool nothing = n->kind == (off ? MTX_JSON_FALSE : MTX_JSON_TRUE) || (!off && n->kind == MTX_JSON_OBJECT && !n->n_kids);
    g->cannot |= !nothing;
  }
}

static void walk(negation *g, uint32_t node, int depth) {
  const mtx_jnode *n = sc_node(g->s, node);
  if (g->n_visits++ > MAX_VISITS || depth > MAX_DEPTH || g->s->b->code) g->cannot = true;
  if (g->cannot || n->kind == MTX_JSON_TRUE) return;
  if (n->kind == MTX_JSON_FALSE) {
    g->n++;  // whatever comes
    return;
  }
  g->cannot = n->kind != MTX_JSON_OBJECT;
  const uint32_t ref = g->s->draft7 && n->kind == MTX_JSON_OBJECT ? sc_get(g->s, node, "$ref") : MTX_JSON_NONE;
  if (ref != MTX_JSON_NONE) {
    walk_keyword(g, ref, depth);
    return;
  }
  for (uint32_t k = n->first; k != MTX_JSON_NONE && !g->cannot; k = sc_node(g->s, k)->next) walk_keyword(g, k, depth);
}

int sc_negation(mtx_sc *s, uint32_t part, uint32_t want, sc_conj *out) {
  negation g = {.s = s, .want = want, .out = out, .other = SC_KIND(part) == SC_OTHER};
  walk(&g, SC_NODE(part), 0);
  return g.cannot || g.n > SC_MAX_CASES ? -1 : (int)g.n;
}
