// SPDX-License-Identifier: MIT
// Arrays: prefixItems and items (a list of items in draft-07), lengths.
#include <stdio.h>

#include "grammar/schema.h"

#define MAX_PREFIX 2000u

typedef struct {
  uint32_t min, max, n_prefix;
} array_rules;

// The list of a part's leading item schemas and the schema of the rest;
// MTX_JSON_NONE where the part says nothing.
static void item_keywords(const mtx_sc *s, uint32_t part, uint32_t *prefix, uint32_t *rest) {
  *prefix = sc_keyword(s, part, "prefixItems");
  *rest = sc_keyword(s, part, "items");
  if (*rest != MTX_JSON_NONE && sc_node(s, *rest)->kind == MTX_JSON_ARRAY) {
    *prefix = *rest;
    *rest = sc_keyword(s, part, "additionalItems");
  }
}

static void warn_array(mtx_sc *s, uint32_t part, uint32_t max) {
  uint32_t u = sc_keyword(s, part, "uniqueItems"), c = sc_keyword(s, part, "contains"), n = sc_keyword(s, part, "unevaluatedItems");
  if (u != MTX_JSON_NONE && sc_node(s, u)->kind == MTX_JSON_TRUE && max > 1)
    sc_unenforced(s, u, "uniqueItems", "a grammar does not remember earlier items");
  if (c != MTX_JSON_NONE) sc_unenforced(s, c, "contains", "a grammar cannot wait for one item of many");
  if (n != MTX_JSON_NONE && sc_node(s, n)->kind != MTX_JSON_TRUE)
    sc_unenforced(s, n, "unevaluatedItems", "not supported; use items");
}

static array_rules gather_array(mtx_sc *s, const sc_conj *c) {
  array_rules r = {0, UINT32_MAX, 0};
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t min = sc_count(s, c->v[i], "minItems", 0), max = sc_count(s, c->v[i], "maxItems", UINT32_MAX), prefix, rest;
    if (min > r.min) r.min = min;
    if (max < r.max) r.max = max;
    item_keywords(s, c->v[i], &prefix, &rest);
    if (prefix != MTX_JSON_NONE && sc_node(s, prefix)->n_kids > r.n_prefix) r.n_prefix = sc_node(s, prefix)->n_kids;
  }
  for (uint32_t i = 0; i < c->n; i++) warn_array(s, c->v[i], r.max);
  return r;
}

// Conjunction of item i; i past every prefix gives the rest's.
static sc_conj item_conj(mtx_sc *s, const sc_conj *c, uint32_t i) {
  sc_conj out = {.n = 0};
  for (uint32_t p = 0; p < c->n; p++) {
    uint32_t prefix, rest;
    item_keywords(s, c->v[p], &prefix, &rest);
    if (prefix != MTX_JSON_NONE && i < sc_node(s, prefix)->n_kids) {
      uint32_t k = sc_node(s, prefix)->first;
      for (uint32_t n = 0; n < i; n++) k = sc_node(s, k)->next;
      sc_add(s, &out, SC_PART(k, SC_ALL));
    } else if (rest != MTX_JSON_NONE) {
      sc_add(s, &out, SC_PART(rest, SC_ALL));
    }
  }
  return out;
}

mtx_gx sc_array(mtx_sc *s, const sc_conj *c) {
  mtx_gb *b = s->b;
  array_rules r = gather_array(s, c);
  if (r.n_prefix > MAX_PREFIX) {
    sc_fail(s, MTX_ELIMIT, SC_NODE(c->v[0]), "more than %u leading items", MAX_PREFIX);
    return MTX_GX_NEVER;
  }
  if (r.n_prefix > r.max) r.n_prefix = r.max;
  sc_conj rest = item_conj(s, c, UINT32_MAX);
  mtx_gx item = sc_value(s, &rest, "item", 4), tail;
  if (item == MTX_GX_NEVER && r.max > r.n_prefix) r.max = r.n_prefix;
  if (r.min > r.max || b->code) return MTX_GX_NEVER;
  const uint32_t min = r.min > r.n_prefix ? r.min - r.n_prefix : 0;
  const uint32_t max = r.max == UINT32_MAX ? r.max : r.max - r.n_prefix;
  mtx_gx next = mtx_gx_cat2(b, s->comma, item);
  if (r.n_prefix || max == 0)
    tail = mtx_gx_rep(b, next, min, max);
  else
    tail = mtx_gx_rep(b, mtx_gx_cat2(b, item, mtx_gx_rep(b, next, min ? min - 1 : 0, max == UINT32_MAX ? max : max - 1)), min > 0, 1);
  for (uint32_t i = r.n_prefix; i-- > 0 && !b->code;) {
    sc_conj ci = item_conj(s, c, i);
    char name[24];
    int n = snprintf(name, sizeof name, "item %u", i);
    mtx_gx x = mtx_gx_cat2(b, sc_value(s, &ci, name, (size_t)n), tail);
    if (i) x = mtx_gx_cat2(b, s->comma, x);
    tail = mtx_gx_rep(b, x, i < r.min, 1);
  }
  return mtx_gx_cat(b, (mtx_gx[]){mtx_gx_lit(b, "[", 1), s->blank, tail, s->blank, mtx_gx_lit(b, "]", 1)}, 5);
}
