// SPDX-License-Identifier: MIT
// What a schema says of the keys of an object.
#include "grammar/schema_object.h"

static uint32_t hash_text(const char *p, uint32_t n) {
  uint32_t h = 2166136261u;
  for (uint32_t i = 0; i < n; i++) h = (h ^ (uint8_t)p[i]) * 16777619u;
  return h ^ h >> 15;
}

enum { MAY_COME, MUST_COME, MUST_COME_IN_ORDER, MUST_NOT_COME };

static void add_name(sc_members *o, const char *p, uint32_t n, int when, uint32_t node) {
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
    sc_name *x = o->names + o->hash[h] - 1;
    if (x->n == n && !memcmp(x->text, p, n)) {
      x->required |= when == MUST_COME || when == MUST_COME_IN_ORDER;
      x->in_order |= when == MUST_COME_IN_ORDER;
      x->forbidden |= when == MUST_NOT_COME;
      return;
    }
  }
  if (!MTX_VEC_GROW(o, names, 1, SC_MAX_PROPERTIES)) {
    sc_fail(o->s, MTX_ELIMIT, node, "an object has more than %u properties", SC_MAX_PROPERTIES);
    return;
  }
  o->names[o->n_names++] = (sc_name){p, n, when == MUST_COME || when == MUST_COME_IN_ORDER, when == MUST_NOT_COME, when == MUST_COME_IN_ORDER};
  o->hash[h] = o->n_names;
}

// Lists of dependentRequired, and of dependencies in draft-07.
const char *const sc_depending[2] = {"dependentRequired", "dependencies"};

void sc_each_dependency(sc_members *o, void (*f)(sc_members *o, uint32_t member)) {
  mtx_sc *s = o->s;
  for (uint32_t i = 0; i < o->c->n; i++)
    for (int d = 0; d < 2; d++) {
      const uint32_t map = sc_keyword(s, o->c->v[i], sc_depending[d]);
      if (map == MTX_JSON_NONE || sc_node(s, map)->kind != MTX_JSON_OBJECT) continue;
      for (uint32_t m = sc_node(s, map)->first; m != MTX_JSON_NONE && !s->b->code; m = sc_node(s, m)->next)
        if (sc_node(s, m)->kind == MTX_JSON_ARRAY) f(o, m);
    }
}

static void add_dependency_names(sc_members *o, uint32_t member) {
  mtx_sc *s = o->s;
  add_name(o, s->j->pool + sc_node(s, member)->key, sc_node(s, member)->n_key, MAY_COME, member);
  for (uint32_t k = sc_node(s, member)->first; k != MTX_JSON_NONE && !s->b->code; k = sc_node(s, k)->next) {
    if (sc_node(s, k)->kind != MTX_JSON_STRING)
      sc_fail(s, MTX_EFORMAT, k, "dependentRequired must list strings");
    else
      add_name(o, sc_text(s, k), sc_node(s, k)->n_text, MAY_COME, k);
  }
}

// Is the schema one of a condition, as it stands in the text? What it requires is optional
// elsewhere, so nobody expects its keys in order.
static bool in_case(const mtx_sc *s, uint32_t node) {
  while (node) {
    const uint32_t parent = sc_node(s, node)->parent;
    if (sc_has_key(s, parent, "dependentSchemas") || sc_has_key(s, parent, "dependencies")) return true;
    if (sc_has_key(s, node, "then") || sc_has_key(s, node, "else") || sc_has_key(s, node, "if")) return !sc_has_key(s, parent, "properties");
    if (!sc_has_key(s, parent, "allOf")) return false;
    node = sc_node(s, parent)->parent;
  }
  return false;
}

void sc_gather_names(sc_members *o) {
  mtx_sc *s = o->s;
  for (uint32_t i = 0; i < o->c->n; i++) {
    uint32_t props = sc_keyword(s, o->c->v[i], "properties");
    if (props == MTX_JSON_NONE) continue;
    if (sc_node(s, props)->kind != MTX_JSON_OBJECT) sc_fail(s, MTX_EFORMAT, props, "properties must be an object");
    for (uint32_t k = sc_node(s, props)->first; k != MTX_JSON_NONE && !s->b->code; k = sc_node(s, k)->next)
      add_name(o, s->j->pool + sc_node(s, k)->key, sc_node(s, k)->n_key, MAY_COME, k);
  }
  for (uint32_t i = 0; i < o->c->n; i++) {
    uint32_t req = sc_keyword(s, o->c->v[i], "required");
    if (req == MTX_JSON_NONE || sc_node(s, req)->kind != MTX_JSON_ARRAY) continue;  // draft-03 had true here
    for (uint32_t k = sc_node(s, req)->first; k != MTX_JSON_NONE && !s->b->code; k = sc_node(s, k)->next) {
      if (sc_node(s, k)->kind != MTX_JSON_STRING)
        sc_fail(s, MTX_EFORMAT, k, "required must list strings");
      else
        add_name(o, sc_text(s, k), sc_node(s, k)->n_text, in_case(s, SC_NODE(o->c->v[i])) ? MUST_COME : MUST_COME_IN_ORDER, k);
    }
  }
  for (uint32_t i = 0; i < o->c->n && !s->b->code; i++) {
    const uint32_t kind = SC_KIND(o->c->v[i]), node = SC_NODE(o->c->v[i]);
    const mtx_jnode *n = sc_node(s, node);
    if (kind == SC_WITHOUT) add_name(o, s->j->pool + n->text, n->n_text, MUST_NOT_COME, node);
    if (kind == SC_LACKS || kind == SC_HAS || kind == SC_HASNOT)
      add_name(o, s->j->pool + n->key, n->n_key, kind == SC_LACKS ? MUST_NOT_COME : MUST_COME, node);
  }
  sc_each_dependency(o, add_dependency_names);
}

void sc_gather_object(sc_members *o) {
  mtx_sc *s = o->s;
  for (uint32_t i = 0; i < o->c->n && !s->b->code; i++) {
    const uint32_t part = o->c->v[i];
    uint32_t min = sc_count(s, part, "minProperties", 0), max = sc_count(s, part, "maxProperties", UINT32_MAX);
    if (min > o->min) o->min = min;
    if (max < o->max) o->max = max;
    sc_negated_counts(s, part, "minProperties", "maxProperties", &o->min, &o->max);
    uint32_t pats = sc_keyword(s, part, "patternProperties");
    uint32_t k = pats == MTX_JSON_NONE ? MTX_JSON_NONE : sc_node(s, pats)->first;
    for (; k != MTX_JSON_NONE && !s->b->code; k = sc_node(s, k)->next) {
      if (o->n_patterns == SC_MAX_PATTERNS) {
        sc_unenforced(s, k, "patternProperties", "more than four patterns for one object");
        break;
      }
      mtx_cdfa *d = sc_pattern_cdfa(s, k);
      if (d)
        o->patterns[o->n_patterns++] = (sc_key_pattern){k, part, d};
      else if (!s->b->code)
        sc_fail(s, MTX_ELIMIT, k, "a pattern of patternProperties needs too many states");
    }
  }
}

// propertyNames as an automaton, if it is only about the text.
void sc_gather_keys(sc_members *o) {
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
    if (SC_KIND(c.v[i]) != SC_BASE || (type != MTX_JSON_NONE && sc_node(s, type)->kind != MTX_JSON_STRING))
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
