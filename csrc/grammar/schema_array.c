// SPDX-License-Identifier: MIT
// Arrays: prefixItems and items (a list of items in draft-07), lengths, items that differ.
#include <stdio.h>
#include <string.h>

#include "grammar/schema.h"

#define MAX_PREFIX 2000u

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

// Between min and max items satisfy the part.
static void count_hits(mtx_sc *s, sc_items *r, uint32_t part, uint32_t min, uint32_t max) {
  if (min == 0 && max == UINT32_MAX && !r->rest_differs) return;
  if (r->hit == MTX_JSON_NONE) {
    r->hit = part;
    r->max_hits = UINT32_MAX;
  } else if (r->hit != part) {
    sc_unenforced(s, SC_NODE(part), "contains", "another schema of this place counts items as well");
    return;
  }
  if (min > r->min_hits) r->min_hits = min;
  if (max < r->max_hits) r->max_hits = max;
}

static void gather_contains(mtx_sc *s, uint32_t part, sc_items *r) {
  const uint32_t c = sc_keyword(s, part, "contains"), few = sc_negated(s, part, "contains"), many = sc_negated(s, part, "maxContains"),
                 other = sc_negated(s, part, "items");
  if (c != MTX_JSON_NONE)
    count_hits(s, r, SC_PART(c, SC_ALL), sc_count(s, part, "minContains", 1), sc_count(s, part, "maxContains", UINT32_MAX));
  if (few != MTX_JSON_NONE)
    count_hits(s, r, SC_PART(few, SC_ALL), 0, sc_count(s, SC_PART(sc_node(s, few)->parent, SC_BASE), "minContains", 1) - 1);
  if (many != MTX_JSON_NONE) {
    const uint32_t schema = sc_node(s, many)->parent, max = sc_count(s, SC_PART(schema, SC_BASE), "maxContains", UINT32_MAX);
    count_hits(s, r, SC_PART(sc_get(s, schema, "contains"), SC_ALL), max == UINT32_MAX ? max : max + 1, UINT32_MAX);
  }
  if (other != MTX_JSON_NONE) count_hits(s, r, SC_PART(other, SC_NOT), 1, UINT32_MAX);
}

// Does at most one `contains` say which items it evaluates?
static bool knows_hits(const mtx_sc *s, const sc_conj *c) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->n; i++) n += sc_keyword(s, c->v[i], "contains") != MTX_JSON_NONE;
  return n < 2;
}

static sc_items gather_array(mtx_sc *s, const sc_conj *c) {
  sc_items r = {.max = UINT32_MAX, .hit = MTX_JSON_NONE};
  const bool known = knows_hits(s, c);
  for (uint32_t i = 0; i < c->n; i++) {
    const uint32_t rest = sc_keyword(s, c->v[i], "unevaluatedItems");
    if (rest != MTX_JSON_NONE && !known) sc_unenforced(s, rest, "unevaluatedItems", "more than one `contains` counts items");
    r.rest_differs |= rest != MTX_JSON_NONE && known;
  }
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t min = sc_count(s, c->v[i], "minItems", 0), max = sc_count(s, c->v[i], "maxItems", UINT32_MAX), prefix, rest;
    if (min > r.min) r.min = min;
    if (max < r.max) r.max = max;
    sc_negated_counts(s, c->v[i], "minItems", "maxItems", &r.min, &r.max);
    gather_contains(s, c->v[i], &r);
    item_keywords(s, c->v[i], &prefix, &rest);
    if (prefix != MTX_JSON_NONE && sc_node(s, prefix)->n_kids > r.n_prefix) r.n_prefix = sc_node(s, prefix)->n_kids;
  }
  return r;
}

sc_conj sc_item_conj(mtx_sc *s, const sc_conj *c, uint32_t i, uint32_t hit) {
  sc_conj out = {.n = 0};
  bool evaluates[SC_MAX_PARTS];
  for (uint32_t p = 0; p < c->n; p++) {
    const uint32_t contains = sc_keyword(s, c->v[p], "contains");
    uint32_t prefix, rest;
    item_keywords(s, c->v[p], &prefix, &rest);
    evaluates[p] = rest != MTX_JSON_NONE || (prefix != MTX_JSON_NONE && i < sc_node(s, prefix)->n_kids) ||
                   (contains != MTX_JSON_NONE && SC_PART(contains, SC_ALL) == hit);
    if (prefix != MTX_JSON_NONE && i < sc_node(s, prefix)->n_kids) {
      uint32_t k = sc_node(s, prefix)->first;
      for (uint32_t n = 0; n < i; n++) k = sc_node(s, k)->next;
      sc_add(s, &out, SC_PART(k, SC_ALL));
    } else if (rest != MTX_JSON_NONE) {
      sc_add(s, &out, SC_PART(rest, SC_ALL));
    }
  }
  if (knows_hits(s, c)) sc_add_unevaluated(s, c, "unevaluatedItems", evaluates, &out);
  return out;
}

static mtx_gx brackets(mtx_sc *s, mtx_gx items) {
  mtx_gb *b = s->b;
  return mtx_gx_cat(b, (mtx_gx[]){mtx_gx_lit(b, "[", 1), s->blank, items, s->blank, mtx_gx_lit(b, "]", 1)}, 5);
}

// ---- items that differ ------------------------------------------------------------------------

// uniqueItems of the conjunction, if it asks for something; MTX_JSON_NONE otherwise.
static uint32_t asks_unique(const mtx_sc *s, const sc_conj *c) {
  for (uint32_t i = 0; i < c->n; i++) {
    const uint32_t u = sc_keyword(s, c->v[i], "uniqueItems");
    if (u != MTX_JSON_NONE && sc_node(s, u)->kind == MTX_JSON_TRUE) return u;
  }
  return MTX_JSON_NONE;
}

// The values an item can have, each written out; false: they are not listed, or too many to remember.
static bool listed_items(mtx_sc *s, sc_conj *item, mtx_gx out[GR_SET_BITS], uint32_t *n) {
  static const struct {
    uint32_t type;
    const char *text;
  } words[] = {{SC_BOOL, "true"}, {SC_BOOL, "false"}, {SC_NULL, "null"}};
  sc_nodes values = {0};
  uint32_t first[GR_SET_BITS];
  bool known = sc_candidates(s, item, &values), plain = !known;
  *n = 0;
  for (uint32_t i = 0; i < item->n && plain; i++) plain = SC_KIND(item->v[i]) == SC_BASE;
  const uint32_t types = plain ? sc_types(s, item) : SC_EVERY;
  if (!known && !(types & ~(SC_BOOL | SC_NULL))) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      if (types & words[i].type) out[(*n)++] = mtx_gx_lit(s->b, words[i].text, strlen(words[i].text));
    return true;
  }
  for (uint32_t i = 0; known && i < values.n_v; i++) {
    uint32_t k = 0;
    while (k < *n && !mtx_json_equal(s->j, values.v[i], first[k])) k++;
    if (k < *n) {
      out[k] = mtx_gx_alt2(s->b, out[k], sc_literal(s, values.v[i]));  // 1.0 for 1
    } else if ((known = *n < GR_SET_BITS)) {
      first[*n] = values.v[i];
      out[(*n)++] = sc_literal(s, values.v[i]);
    }
  }
  free(values.v);
  return known;
}

// The items as a set whose members come at most once, in any order.
static bool unique_items(mtx_sc *s, const sc_conj *c, const sc_items *r, mtx_gx *out) {
  mtx_gb *b = s->b;
  mtx_gx value[GR_SET_BITS];
  gb_item items[GR_SET_BITS];
  uint32_t n;
  sc_conj item = sc_item_conj(s, c, UINT32_MAX, MTX_JSON_NONE);
  sc_flatten(s, &item);
  if (r->n_prefix || r->hit != MTX_JSON_NONE || item.never || !listed_items(s, &item, value, &n)) return false;
  *out = MTX_GX_NEVER;
  if (n < r->min) return true;
  *out = MTX_GX_EMPTY;
  if (!n) return true;
  for (uint32_t i = 0; i < n; i++) items[i] = (gb_item){mtx_gb_rule_of(b, value[i], "item"), (int32_t)i};
  const uint32_t rule = mtx_gb_rule(b, "items", 5);
  mtx_gb_define_set(b, rule, &(gr_set){.min = r->min, .max = r->max}, items, n, s->comma);
  *out = mtx_gx_rep(b, mtx_gx_ref(b, rule), r->min > 0, 1);
  return true;
}

// ---- the list -----------------------------------------------------------------------------------

static mtx_gx item_value(mtx_sc *s, const sc_conj *c, const sc_items *r, uint32_t i, const char *name, size_t n_name) {
  sc_conj item = sc_item_conj(s, c, i, MTX_JSON_NONE);
  mtx_gx x = sc_value(s, &item, name, n_name);
  if (r->hit == MTX_JSON_NONE || !r->rest_differs) return x;
  item = sc_item_conj(s, c, i, r->hit);
  sc_add(s, &item, r->hit);
  return mtx_gx_alt2(s->b, x, sc_value(s, &item, name, n_name));
}

static mtx_gx plain_items(mtx_sc *s, const sc_conj *c, sc_items r) {
  mtx_gb *b = s->b;
  mtx_gx item = item_value(s, c, &r, UINT32_MAX, "item", 4), tail;
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
    char name[24];
    int n = snprintf(name, sizeof name, "item %u", i);
    mtx_gx x = mtx_gx_cat2(b, item_value(s, c, &r, i, name, (size_t)n), tail);
    if (i) x = mtx_gx_cat2(b, s->comma, x);
    tail = mtx_gx_rep(b, x, i < r.min, 1);
  }
  return tail;
}

mtx_gx sc_array(mtx_sc *s, const sc_conj *c) {
  sc_items r = gather_array(s, c);
  mtx_gx items;
  if (r.n_prefix > MAX_PREFIX) {
    sc_fail(s, MTX_ELIMIT, SC_NODE(c->v[0]), "more than %u leading items", MAX_PREFIX);
    return MTX_GX_NEVER;
  }
  if (r.n_prefix > r.max) r.n_prefix = r.max;
  if (r.min > r.max || (r.hit != MTX_JSON_NONE && r.min_hits > r.max_hits) || s->b->code) return MTX_GX_NEVER;
  const uint32_t unique = r.max > 1 ? asks_unique(s, c) : MTX_JSON_NONE;
  if (unique != MTX_JSON_NONE) {
    if (unique_items(s, c, &r, &items)) return brackets(s, items);
    sc_unenforced(s, unique, "uniqueItems", "only items of an enum of at most 48 values, true, false and null are remembered");
  }
  if (r.hit == MTX_JSON_NONE || !sc_counted_items(s, c, &r, &items)) items = plain_items(s, c, r);
  return brackets(s, items);
}
