// SPDX-License-Identifier: MIT
// Objects: declared keys, keys by pattern, other keys, and which must come.
//
// The members become a SET rule (automaton.h): required keys in the schema's
// order, optional ones anywhere between, none twice. Other keys are "any text
// but the declared ones", as an automaton, so a declared key can never slip
// through with another value.
#include <string.h>

#include "grammar/schema_object.h"

// ---- one member -----------------------------------------------------------------------------

static bool key_allowed(const sc_members *o, const sc_name *n) {
  return !o->allowed || mtx_cdfa_match(o->allowed, n->text, n->n);
}

// What holds for the value under a key: `matched` has a bit per pattern of
// o->patterns the key matches; name is NULL for keys that are not declared.
static sc_conj member_conj(sc_members *o, const sc_name *name, uint32_t matched) {
  mtx_sc *s = o->s;
  sc_conj out = {.n = 0};
  bool evaluates[SC_MAX_PARTS];
  for (uint32_t i = 0; i < o->c->n; i++) {
    const uint32_t part = o->c->v[i];
    bool found = false;
    if (SC_KIND(part) == SC_HASNOT && name && sc_node(s, SC_NODE(part))->n_key == name->n &&
        !memcmp(s->j->pool + sc_node(s, SC_NODE(part))->key, name->text, name->n))
      sc_add(s, &out, SC_PART(SC_NODE(part), SC_NOT));
    uint32_t props = sc_keyword(s, part, "properties"), extra = sc_keyword(s, part, "additionalProperties");
    if (name && props != MTX_JSON_NONE) {
      uint32_t k = mtx_json_get_n(s->j, props, name->text, name->n);
      if (k != MTX_JSON_NONE) sc_add(s, &out, SC_PART(k, SC_ALL)), found = true;
    }
    for (uint32_t p = 0; p < o->n_patterns; p++)
      if (o->patterns[p].part == part && matched >> p & 1)
        sc_add(s, &out, SC_PART(o->patterns[p].node, SC_ALL)), found = true;
    if (!found && extra != MTX_JSON_NONE) sc_add(s, &out, SC_PART(extra, SC_ALL)), found = true;
    evaluates[i] = found;
  }
  sc_add_unevaluated(s, o->c, "unevaluatedProperties", evaluates, &out);
  return out;
}

static void add_member(sc_members *o, mtx_gx key, mtx_gx value, const char *name, size_t n_name, int32_t item) {
  mtx_gb *b = o->s->b;
  uint32_t r = mtx_gb_rule(b, name, n_name);
  mtx_gb_define(b, r, mtx_gx_cat(b, (mtx_gx[]){key, o->s->colon, value}, 3));
  if (b->code || !MTX_VEC_GROW(o, items, 1, SC_MAX_PROPERTIES + 64)) return;
  o->items[o->n_items++] = (gb_item){r, item};
}

// False: a required key cannot be given.
static bool declared_members(sc_members *o) {
  mtx_sc *s = o->s;
  uint32_t n = 0;
  for (uint32_t i = 0; i < o->n_names && !s->b->code; i++) {
    sc_name name = o->names[i];
    uint32_t matched = 0;
    for (uint32_t p = 0; p < o->n_patterns; p++)
      if (mtx_cdfa_match(o->patterns[p].d, name.text, name.n)) matched |= 1u << p;
    sc_conj c = member_conj(o, &name, matched);
    mtx_gx value = !name.forbidden && key_allowed(o, &name) ? sc_value(s, &c, name.text, name.n) : MTX_GX_NEVER;
    if (value == MTX_GX_NEVER) {
      if (name.required) return false;
      continue;
    }
    // the names that can occur stay in front, in order: their index is the item's
    sc_name kept = o->names[n];
    o->names[n] = name;
    if (n != i) o->names[i] = kept;
    add_member(o, sc_string_literal(s, name.text, name.n), value, name.text, name.n, (int32_t)n);
    n++;
  }
  return true;
}

// Texts that are no declared key, are allowed, and match exactly these patterns.
static mtx_cdfa *other_keys(sc_members *o, uint32_t matched) {
  const char **words = malloc((o->n_names + 1) * sizeof *words);
  size_t *lens = malloc((o->n_names + 1) * sizeof *lens);
  mtx_cdfa *d = mtx_cdfa_any(), *w = NULL;
  if (words && lens) {
    for (uint32_t i = 0; i < o->n_names; i++) words[i] = o->names[i].text, lens[i] = o->names[i].n;
    w = mtx_cdfa_words(words, lens, o->n_names);
  }
  free(words);
  free(lens);
  for (uint32_t p = 0; p < o->n_patterns + 2 && d; p++) {
    const mtx_cdfa *other = p < o->n_patterns ? o->patterns[p].d : p == o->n_patterns ? w : o->allowed;
    if (p == o->n_patterns + 1 && !o->allowed) break;
    bool keep = p < o->n_patterns ? matched >> p & 1 : p == o->n_patterns + 1;
    mtx_cdfa *next = other ? keep ? mtx_cdfa_and(d, other) : mtx_cdfa_minus(d, other) : NULL;
    mtx_cdfa_free(d);
    d = next;
  }
  mtx_cdfa_free(w);
  if (!d) sc_fail(o->s, MTX_ELIMIT, SC_NODE(o->c->v[0]), "the keys of an object need too many states");
  return d;
}

// Whoever lists `properties` and says nothing of other keys has listed them all, unless
// minProperties cannot be had from those.
static bool lists_every_key(const sc_members *o) {
  static const char *const of_others[] = {"additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "if",
                                          "dependentSchemas",     "dependentRequired", "dependencies"};
  if (o->s->opts.open_keys || o->min > o->n_items) return false;
  bool listed = false;
  for (uint32_t i = 0; i < o->c->n; i++) {
    listed |= sc_keyword(o->s, o->c->v[i], "properties") != MTX_JSON_NONE;
    for (size_t k = 0; k < sizeof of_others / sizeof *of_others; k++)
      if (sc_keyword(o->s, o->c->v[i], of_others[k]) != MTX_JSON_NONE) return false;
  }
  return listed;
}

static void other_members(sc_members *o) {
  mtx_sc *s = o->s;
  if (lists_every_key(o)) return;
  for (uint32_t matched = 0; matched < 1u << o->n_patterns && !s->b->code; matched++) {
    sc_conj c = member_conj(o, NULL, matched);
    mtx_gx value = sc_value(s, &c, "value", 5);
    if (value == MTX_GX_NEVER) continue;
    mtx_gx key;
    if (o->n_names == 0 && o->n_patterns == 0 && !o->allowed) {
      sc_conj nothing = {.n = 0};
      key = sc_string(s, &nothing);
    } else {
      mtx_cdfa *d = other_keys(o, matched);
      if (!d || mtx_cdfa_is_empty(d)) {
        mtx_cdfa_free(d);
        continue;
      }
      key = sc_quoted_leaf(s, mtx_gx_dfa(s->b, d, true));
    }
    add_member(o, key, value, "other key", 9, GR_EXTRA);
  }
}

static mtx_gx assemble(sc_members *o) {
  mtx_sc *s = o->s;
  mtx_gb *b = s->b;
  if (o->min > o->max || !declared_members(o)) return MTX_GX_NEVER;
  other_members(o);
  sc_gather_needs(o);
  gr_set set;
  if (b->code || !sc_make_set(o, &set)) return MTX_GX_NEVER;
  bool empty_ok = o->min == 0;
  for (uint32_t i = 0; i < o->n_known; i++) empty_ok &= !o->names[i].required;
  mtx_gx members = empty_ok ? MTX_GX_EMPTY : MTX_GX_NEVER;
  if (o->n_items && o->max > 0) {
    uint32_t r = mtx_gb_rule(b, "members", 7);
    mtx_gb_define_set(b, r, &set, o->items, o->n_items, s->comma);
    members = mtx_gx_rep(b, mtx_gx_ref(b, r), !empty_ok, 1);
  }
  return mtx_gx_cat(b, (mtx_gx[]){mtx_gx_lit(b, "{", 1), s->blank, members, s->blank, mtx_gx_lit(b, "}", 1)}, 5);
}

mtx_gx sc_object(mtx_sc *s, const sc_conj *c) {
  sc_members o = {.s = s, .c = c, .max = UINT32_MAX};
  sc_gather_names(&o);
  sc_gather_object(&o);
  if (!s->b->code) sc_gather_keys(&o);
  mtx_gx x = s->b->code ? MTX_GX_NEVER : assemble(&o);
  for (uint32_t i = 0; i < o.n_patterns; i++) mtx_cdfa_free(o.patterns[i].d);
  mtx_cdfa_free(o.allowed);
  free(o.names);
  free(o.hash);
  free(o.items);
  return x;
}
