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

static void alternative(negation *g, uint32_t node, uint32_t kind) {
  if (g->n++ == g->want && g->out) sc_add(g->s, g->out, SC_PART(node, kind));
}

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

static bool is_fixed(const mtx_sc *s, uint32_t schema) {
  return sc_node(s, schema)->kind == MTX_JSON_OBJECT && (sc_get(s, schema, "const") != MTX_JSON_NONE || sc_get(s, schema, "enum") != MTX_JSON_NONE);
}

static void walk_keyword(negation *g, uint32_t k, int depth) {
  static const char *const texts[] = {"pattern", NULL};
  static const char *const numbers[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", NULL};
  static const char *const sets[] = {"type", "const", NULL};
  static const char *const hard[] = {"items", "additionalItems", "prefixItems", "additionalProperties", "patternProperties", "propertyNames",
                                     "contains", "uniqueItems", "oneOf", "dependentRequired", "dependentSchemas", "dependencies", "nullable",
                                     "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", NULL};
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
  } else if (!strcmp(key, "if")) {
    g->cannot |= sc_get(s, n->parent, "then") != MTX_JSON_NONE || sc_get(s, n->parent, "else") != MTX_JSON_NONE;
  } else if (is_one_of(key, hard)) {
    const bool off = !strcmp(key, "uniqueItems") || !strcmp(key, "nullable");
    const bool nothing = n->kind == (off ? MTX_JSON_FALSE : MTX_JSON_TRUE) || (!off && n->kind == MTX_JSON_OBJECT && !n->n_kids);
    g->cannot |= !nothing || !strcmp(key, "contains");
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
