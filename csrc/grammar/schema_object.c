// SPDX-License-Identifier: MIT
// Objects: declared keys, keys by pattern, other keys, and which must come.
//
// The members become a SET rule (automaton.h): required keys in the schema's
// order, optional ones anywhere between, none twice. Other keys are "any text
// but the declared ones", as an automaton, so a declared key can never slip
// through with another value.
#include <string.h>

#include "grammar/schema.h"

#define MAX_PROPERTIES 2000u
#define MAX_PATTERNS 4u

typedef struct {
  const char *text;
  uint32_t n;
  bool required;
} name_of;

typedef struct {
  uint32_t node;  // the pattern's schema; its key is the pattern
  uint32_t part;
  mtx_cdfa *d;
} key_pattern;

typedef struct {
  mtx_sc *s;
  const sc_conj *c;
  MTX_VEC(name_of, names);
  uint32_t *hash, n_hash;
  key_pattern patterns[MAX_PATTERNS];
  uint32_t n_patterns;
  mtx_cdfa *allowed;  // propertyNames, NULL: all
  uint32_t min, max;
  MTX_VEC(gb_item, items);
} object;

static uint32_t hash_text(const char *p, uint32_t n) {
  uint32_t h = 2166136261u;
  for (uint32_t i = 0; i < n; i++) h = (h ^ (uint8_t)p[i]) * 16777619u;
  return h ^ h >> 15;
}

static void add_name(object *o, const char *p, uint32_t n, bool required, uint32_t node) {
  if (!o->hash) {
    o->n_hash = 2 * 4096;
    o->hash = calloc(o->n_hash, sizeof *o->hash);
    if (!o->hash) {
      mtx_gb_fail(o->s->b, MTX_ENOMEM, 0, "out of memory");
      return;
    }
  }
  uint32_t h = hash_text(p, n) & (o->n_hash - 1);
  for (; o->hash[h]; h = (h + 1) & (o->n_hash - 1)) {
    name_of *x = o->names + o->hash[h] - 1;
    if (x->n == n && !memcmp(x->text, p, n)) {
      x->required |= required;
      return;
    }
  }
  if (!MTX_VEC_GROW(o, names, 1, MAX_PROPERTIES)) {
    sc_fail(o->s, MTX_ELIMIT, node, "an object has more than %u properties", MAX_PROPERTIES);
    return;
  }
  o->names[o->n_names++] = (name_of){p, n, required};
  o->hash[h] = o->n_names;
}

static void gather_names(object *o) {
  mtx_sc *s = o->s;
  for (uint32_t i = 0; i < o->c->n; i++) {
    uint32_t props = sc_keyword(s, o->c->v[i], "properties");
    if (props == MTX_JSON_NONE) continue;
    if (sc_node(s, props)->kind != MTX_JSON_OBJECT) sc_fail(s, MTX_EFORMAT, props, "properties must be an object");
    for (uint32_t k = sc_node(s, props)->first; k != MTX_JSON_NONE && !s->b->code; k = sc_node(s, k)->next)
      add_name(o, s->j->pool + sc_node(s, k)->key, sc_node(s, k)->n_key, false, k);
  }
  for (uint32_t i = 0; i < o->c->n; i++) {
    uint32_t req = sc_keyword(s, o->c->v[i], "required");
    if (req == MTX_JSON_NONE || sc_node(s, req)->kind != MTX_JSON_ARRAY) continue;  // draft-03 had true here
    for (uint32_t k = sc_node(s, req)->first; k != MTX_JSON_NONE && !s->b->code; k = sc_node(s, k)->next) {
      if (sc_node(s, k)->kind != MTX_JSON_STRING)
        sc_fail(s, MTX_EFORMAT, k, "required must list strings");
      else
        add_name(o, sc_text(s, k), sc_node(s, k)->n_text, true, k);
    }
  }
}

static void gather_rules(object *o) {
  mtx_sc *s = o->s;
  for (uint32_t i = 0; i < o->c->n && !s->b->code; i++) {
    const uint32_t part = o->c->v[i];
    uint32_t min = sc_count(s, part, "minProperties", 0), max = sc_count(s, part, "maxProperties", UINT32_MAX);
    if (min > o->min) o->min = min;
    if (max < o->max) o->max = max;
    uint32_t pats = sc_keyword(s, part, "patternProperties");
    uint32_t k = pats == MTX_JSON_NONE ? MTX_JSON_NONE : sc_node(s, pats)->first;
    for (; k != MTX_JSON_NONE && !s->b->code; k = sc_node(s, k)->next) {
      if (o->n_patterns == MAX_PATTERNS) {
        sc_unenforced(s, k, "patternProperties", "more than four patterns for one object");
        break;
      }
      mtx_cdfa *d = sc_pattern_cdfa(s, k);
      if (d)
        o->patterns[o->n_patterns++] = (key_pattern){k, part, d};
      else if (!s->b->code)
        sc_fail(s, MTX_ELIMIT, k, "a pattern of patternProperties needs too many states");
    }
    static const char *const unsupported[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    for (size_t u = 0; u < 3; u++)
      if (sc_keyword(s, part, unsupported[u]) != MTX_JSON_NONE)
        sc_unenforced(s, sc_keyword(s, part, unsupported[u]), unsupported[u], "a grammar does not relate keys to each other");
  }
}

// propertyNames as an automaton, if it is only about the text.
static void gather_key_rule(object *o) {
  mtx_sc *s = o->s;
  sc_conj c = {.n = 0};
  uint32_t node = MTX_JSON_NONE;
  for (uint32_t i = 0; i < o->c->n; i++) {
    uint32_t n = sc_keyword(s, o->c->v[i], "propertyNames");
    if (n != MTX_JSON_NONE) sc_add(s, &c, SC_PART(node = n, SC_ALL));
  }
  if (node == MTX_JSON_NONE) return;
  sc_flatten(s, &c);
  bool ok = true;
  for (uint32_t i = 0; i < c.n && !c.never; i++) {
    const uint32_t one = sc_keyword(s, c.v[i], "const"), type = sc_keyword(s, c.v[i], "type");
    const uint32_t list = one != MTX_JSON_NONE ? one : sc_keyword(s, c.v[i], "enum");
    const char *words[256];
    size_t lens[256], n = 0;
    if ((c.v[i] & 3) != SC_BASE || (type != MTX_JSON_NONE && sc_node(s, type)->kind != MTX_JSON_STRING))
      ok = false;
    else if (type != MTX_JSON_NONE && strcmp(sc_text(s, type), "string"))
      c.never = true;
    if (!ok || list == MTX_JSON_NONE) continue;
    for (uint32_t k = list == one ? one : sc_node(s, list)->first; k != MTX_JSON_NONE && n < 256; k = k == one ? MTX_JSON_NONE : sc_node(s, k)->next)
      if (sc_node(s, k)->kind == MTX_JSON_STRING) words[n] = sc_text(s, k), lens[n++] = sc_node(s, k)->n_text;
    mtx_cdfa *w = n < 256 ? mtx_cdfa_words(words, lens, n) : NULL;
    mtx_cdfa *both = w && o->allowed ? mtx_cdfa_and(o->allowed, w) : NULL;
    if (o->allowed) {
      mtx_cdfa_free(o->allowed);
      mtx_cdfa_free(w);
      w = both;
    }
    o->allowed = w;
    ok = w != NULL;
  }
  mtx_cdfa *text = ok && !c.never ? sc_string_cdfa(s, &c, &ok) : NULL;
  if (ok && text && o->allowed) {
    mtx_cdfa *both = mtx_cdfa_and(o->allowed, text);
    mtx_cdfa_free(o->allowed);
    mtx_cdfa_free(text);
    text = NULL;
    ok = (o->allowed = both) != NULL;
  } else if (ok && text) {
    o->allowed = text;
    text = NULL;
  }
  mtx_cdfa_free(text);
  if (c.never) {
    mtx_cdfa_free(o->allowed);
    o->allowed = mtx_cdfa_words(NULL, NULL, 0);
  }
  if (!ok && !s->b->code) sc_unenforced(s, node, "propertyNames", "only pattern, format, lengths and enum are supported there");
}

// ---- one member -----------------------------------------------------------------------------

static bool key_allowed(const object *o, const name_of *n) {
  return !o->allowed || mtx_cdfa_match(o->allowed, n->text, n->n);
}

// What holds for the value under a key: `matched` has a bit per pattern of
// o->patterns the key matches; name is NULL for keys that are not declared.
static sc_conj member_conj(object *o, const name_of *name, uint32_t matched) {
  mtx_sc *s = o->s;
  sc_conj out = {.n = 0};
  bool evaluated = false;
  uint32_t unevaluated = MTX_JSON_NONE;
  for (uint32_t i = 0; i < o->c->n; i++) {
    const uint32_t part = o->c->v[i];
    bool found = false;
    uint32_t props = sc_keyword(s, part, "properties"), extra = sc_keyword(s, part, "additionalProperties");
    if (name && props != MTX_JSON_NONE) {
      uint32_t k = mtx_json_get_n(s->j, props, name->text, name->n);
      if (k != MTX_JSON_NONE) sc_add(s, &out, SC_PART(k, SC_ALL)), found = true;
    }
    for (uint32_t p = 0; p < o->n_patterns; p++)
      if (o->patterns[p].part == part && matched >> p & 1)
        sc_add(s, &out, SC_PART(o->patterns[p].node, SC_ALL)), found = true;
    if (!found && extra != MTX_JSON_NONE) sc_add(s, &out, SC_PART(extra, SC_ALL)), found = true;
    evaluated |= found;
    uint32_t u = sc_keyword(s, part, "unevaluatedProperties");
    if (u != MTX_JSON_NONE) unevaluated = u;
    if (u != MTX_JSON_NONE && i > 0) sc_unenforced(s, u, "unevaluatedProperties", "it also counts the keys of the schemas around it");
  }
  if (!evaluated && unevaluated != MTX_JSON_NONE) sc_add(s, &out, SC_PART(unevaluated, SC_ALL));
  return out;
}

static void add_member(object *o, mtx_gx key, mtx_gx value, const char *name, size_t n_name, int32_t item) {
  mtx_gb *b = o->s->b;
  uint32_t r = mtx_gb_rule(b, name, n_name);
  mtx_gb_define(b, r, mtx_gx_cat(b, (mtx_gx[]){key, o->s->colon, value}, 3));
  if (b->code || !MTX_VEC_GROW(o, items, 1, MAX_PROPERTIES + 64)) return;
  o->items[o->n_items++] = (gb_item){r, item};
}

// False: a required key cannot be given.
static bool declared_members(object *o) {
  mtx_sc *s = o->s;
  uint32_t n = 0;
  for (uint32_t i = 0; i < o->n_names && !s->b->code; i++) {
    name_of name = o->names[i];
    uint32_t matched = 0;
    for (uint32_t p = 0; p < o->n_patterns; p++)
      if (mtx_cdfa_match(o->patterns[p].d, name.text, name.n)) matched |= 1u << p;
    sc_conj c = member_conj(o, &name, matched);
    mtx_gx value = key_allowed(o, &name) ? sc_value(s, &c, name.text, name.n) : MTX_GX_NEVER;
    if (value == MTX_GX_NEVER) {
      if (name.required) return false;
      continue;
    }
    // the names that can occur stay in front, in order: their index is the item's
    name_of kept = o->names[n];
    o->names[n] = name;
    if (n != i) o->names[i] = kept;
    add_member(o, sc_string_literal(s, name.text, name.n), value, name.text, name.n, (int32_t)n);
    n++;
  }
  return true;
}

// Texts that are no declared key, are allowed, and match exactly these patterns.
static mtx_cdfa *other_keys(object *o, uint32_t matched) {
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
static bool lists_every_key(const object *o) {
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

static void other_members(object *o) {
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

// ---- the set ---------------------------------------------------------------------------------

// The original positions matter to `required`; items carry the kept index.
static bool make_set(object *o, gr_set *set) {
  mtx_sc *s = o->s;
  uint32_t n_declared = 0, n_required = 0;
  bool extras = false;
  for (uint32_t i = 0; i < o->n_items; i++) {
    if (o->items[i].item == GR_EXTRA)
      extras = true;
    else
      n_required += o->names[n_declared++].required;
  }
  *set = (gr_set){.min = o->min, .max = o->max, .any_order = s->opts.any_order};
  if (n_required > o->max || (!extras && n_declared < o->min)) return false;
  const bool counted = o->min > n_required || o->max != UINT32_MAX;
  if (extras && o->min > 1 && o->min > n_required)
    sc_unenforced(s, SC_NODE(o->c->v[0]), "minProperties", "a key that is not declared might be repeated");
  if ((o->min > 60000 || (o->max != UINT32_MAX && o->max > 60000)) && extras) {
    sc_unenforced(s, SC_NODE(o->c->v[0]), "minProperties/maxProperties", "the count is too large");
    set->min = 0;
    set->max = UINT32_MAX;
  }
  if (n_declared <= GR_SET_BITS) {
    for (uint32_t i = 0; i < n_declared; i++)
      if (o->names[i].required) set->required |= 1ull << i;
    return true;
  }
  if (counted) sc_unenforced(s, SC_NODE(o->c->v[0]), "minProperties/maxProperties", "the object has many properties");
  set->ordered = true;
  set->next_required = s->b->n_set_next;
  set->n_next = n_declared + 1;
  if (!MTX_VEC_GROW(s->b, set_next, n_declared + 1, 4u << 20)) {
    sc_fail(s, MTX_ELIMIT, SC_NODE(o->c->v[0]), "too many properties in all");
    return false;
  }
  uint32_t next = UINT32_MAX;
  for (uint32_t i = n_declared + 1; i-- > 0;) {
    if (i < n_declared && o->names[i].required) next = i;
    s->b->set_next[set->next_required + i] = next;
  }
  s->b->n_set_next += n_declared + 1;
  return true;
}

static mtx_gx assemble(object *o) {
  mtx_sc *s = o->s;
  mtx_gb *b = s->b;
  if (!declared_members(o)) return MTX_GX_NEVER;
  other_members(o);
  gr_set set;
  if (b->code || !make_set(o, &set)) return MTX_GX_NEVER;
  bool empty_ok = o->min == 0;
  for (uint32_t i = 0; i < o->n_names && i < o->n_items && o->items[i].item != GR_EXTRA; i++) empty_ok &= !o->names[i].required;
  mtx_gx members = empty_ok ? MTX_GX_EMPTY : MTX_GX_NEVER;
  if (o->n_items && o->max > 0) {
    uint32_t r = mtx_gb_rule(b, "members", 7);
    mtx_gb_define_set(b, r, &set, o->items, o->n_items, s->comma);
    members = mtx_gx_rep(b, mtx_gx_ref(b, r), !empty_ok, 1);
  }
  return mtx_gx_cat(b, (mtx_gx[]){mtx_gx_lit(b, "{", 1), s->blank, members, s->blank, mtx_gx_lit(b, "}", 1)}, 5);
}

mtx_gx sc_object(mtx_sc *s, const sc_conj *c) {
  object o = {.s = s, .c = c, .max = UINT32_MAX};
  gather_names(&o);
  gather_rules(&o);
  if (!s->b->code) gather_key_rule(&o);
  mtx_gx x = s->b->code ? MTX_GX_NEVER : assemble(&o);
  for (uint32_t i = 0; i < o.n_patterns; i++) mtx_cdfa_free(o.patterns[i].d);
  mtx_cdfa_free(o.allowed);
  free(o.names);
  free(o.hash);
  free(o.items);
  return x;
}
