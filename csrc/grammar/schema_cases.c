// SPDX-License-Identifier: MIT
// Conditions (if, dependentSchemas, not) as cases: each says everything that holds in it.
//
// "if A then B else C" is (A and B) or (not A and C). A place with several conditions has the
// cases of all of them; those that contradict themselves are dropped on the way, which is
// what keeps a list of conditions on one key, the usual kind, at one case a condition.
#include <string.h>

#include "grammar/schema.h"

typedef struct {
  mtx_sc *s;
  sc_conj list[SC_MAX_CASES];
  uint32_t n, max;
  bool too_many;
} cases;

static const char *key_of(const mtx_sc *s, uint32_t part, uint32_t *n) {
  const mtx_jnode *x = sc_node(s, SC_NODE(part));
  const bool is_text = SC_KIND(part) == SC_WITHOUT;
  *n = is_text ? x->n_text : x->n_key;
  return s->j->pool + (is_text ? x->text : x->key);
}

static bool same_key(const mtx_sc *s, uint32_t part, const char *key, uint32_t n) {
  uint32_t n_part;
  const char *p = key_of(s, part, &n_part);
  return n_part == n && !memcmp(p, key, n);
}

static bool is_required(const mtx_sc *s, const sc_conj *c, const char *key, uint32_t n) {
  for (uint32_t i = 0; i < c->n; i++) {
    const uint32_t kind = SC_KIND(c->v[i]), req = sc_keyword(s, c->v[i], "required");
    if ((kind == SC_HAS || kind == SC_HASNOT) && same_key(s, c->v[i], key, n)) return true;
    if (req == MTX_JSON_NONE || sc_node(s, req)->kind != MTX_JSON_ARRAY) continue;
    for (uint32_t k = sc_node(s, req)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
      if (sc_node(s, k)->kind == MTX_JSON_STRING && sc_node(s, k)->n_text == n && !memcmp(sc_text(s, k), key, n)) return true;
  }
  return false;
}

// Do all values that x lists satisfy y?
static bool lies_within(mtx_sc *s, uint32_t x, uint32_t y) {
  if (sc_node(s, x)->kind != MTX_JSON_OBJECT) return false;
  const uint32_t one = sc_get(s, x, "const"), list = sc_get(s, x, "enum");
  if (one != MTX_JSON_NONE) return sc_holds(s, one, y, 0);
  if (list == MTX_JSON_NONE || sc_node(s, list)->kind != MTX_JSON_ARRAY) return false;
  for (uint32_t k = sc_node(s, list)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
    if (!sc_holds(s, k, y, 0)) return false;
  return true;
}

// Can the value under a required key not be what member (of `properties`, or excluded
// by a condition) and the other parts say of it?
static bool member_contradicts(mtx_sc *s, const sc_conj *c, uint32_t member, bool excluded) {
  const char *key = s->j->pool + sc_node(s, member)->key;
  const uint32_t n = sc_node(s, member)->n_key;
  for (uint32_t i = 0; i < c->n; i++) {
    const uint32_t props = sc_keyword(s, c->v[i], "properties");
    const uint32_t other = props == MTX_JSON_NONE ? MTX_JSON_NONE : mtx_json_get_n(s->j, props, key, n);
    if (other == MTX_JSON_NONE || other == member) continue;
    if (excluded ? lies_within(s, other, member) : sc_disjoint(s, other, member, 0)) return true;
  }
  return false;
}

#define FEW_MEMBERS 4u  // that the schema of a condition has

static bool contradicts(mtx_sc *s, const sc_conj *c) {
  const uint32_t types = sc_types(s, c);
  if (!types) return true;
  if (types != SC_OBJ) return false;
  for (uint32_t i = 0; i < c->n; i++) {
    const uint32_t kind = SC_KIND(c->v[i]), props = sc_keyword(s, c->v[i], "properties");
    uint32_t n;
    const char *key = key_of(s, c->v[i], &n);
    if ((kind == SC_LACKS || kind == SC_WITHOUT) && is_required(s, c, key, n)) return true;
    if (kind == SC_HASNOT && member_contradicts(s, c, SC_NODE(c->v[i]), true)) return true;
    if (props == MTX_JSON_NONE || sc_node(s, props)->n_kids > FEW_MEMBERS) continue;
    for (uint32_t k = sc_node(s, props)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
      if (is_required(s, c, s->j->pool + sc_node(s, k)->key, sc_node(s, k)->n_key) && member_contradicts(s, c, k, false)) return true;
  }
  return false;
}

static uint32_t first_condition(const sc_conj *c) {
  for (uint32_t kind = SC_IF; kind <= SC_NOT; kind++)
    for (uint32_t i = 0; i < c->n; i++)
      if (SC_KIND(c->v[i]) == kind) return i;
  return UINT32_MAX;
}

// Adds what the condition's case i says; false: it has no such case.
static bool add_case(mtx_sc *s, uint32_t part, uint32_t i, sc_conj *c) {
  const uint32_t node = SC_NODE(part);
  switch (SC_KIND(part)) {
    case SC_IF: {
      if (i > 1) return false;
      const uint32_t next = sc_get(s, node, i ? "else" : "then");
      sc_add(s, c, SC_PART(sc_get(s, node, "if"), i ? SC_NOT : SC_ALL));
      if (next != MTX_JSON_NONE) sc_add(s, c, SC_PART(next, SC_ALL));
      return true;
    }
    case SC_DEPENDS:
      if (i > 1) return false;
      sc_add(s, c, SC_PART(node, i ? SC_HAS : SC_LACKS));
      if (i) sc_add(s, c, SC_PART(node, SC_ALL));
      return true;
    default: return (int)i < sc_negation(s, part, i, c);
  }
}

#define MAX_NESTED 64

static void split(cases *k, const sc_conj *c, int depth) {
  mtx_sc *s = k->s;
  if (c->never || s->b->code || k->too_many || contradicts(s, c) || !mtx_gb_in_time(s->b)) return;
  const uint32_t at = first_condition(c);
  if (at == UINT32_MAX || k->n == k->max || depth > MAX_NESTED) {
    k->too_many = at != UINT32_MAX || k->n == k->max;
    if (!k->too_many) k->list[k->n++] = *c;
    return;
  }
  for (uint32_t i = 0;; i++) {
    sc_conj one = {.n = 0};
    for (uint32_t p = 0; p < c->n; p++)
      if (p != at) sc_add(s, &one, c->v[p]);
    if (!add_case(s, c->v[at], i, &one)) return;
    sc_flatten(s, &one);
    split(k, &one, depth + 1);
  }
}

bool sc_has_conditions(const sc_conj *c) { return first_condition(c) != UINT32_MAX; }

static void warn(mtx_sc *s, uint32_t part) {
  const mtx_jnode *n = sc_node(s, SC_NODE(part));
  const char *keyword = SC_KIND(part) == SC_IF ? "if" : SC_KIND(part) == SC_DEPENDS ? "dependentSchemas" : SC_KIND(part) == SC_OTHER ? "oneOf" : "not";
  sc_unenforced(s, SC_KIND(part) == SC_DEPENDS ? n->parent : SC_NODE(part), keyword, "the conditions of this place make too many cases");
}

static uint32_t n_conditions(const sc_conj *c) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->n; i++) n += SC_KIND(c->v[i]) >= SC_IF && SC_KIND(c->v[i]) <= SC_NOT;
  return n;
}

// Takes the last condition out, with a warning; false: there is none.
static bool drop_condition(mtx_sc *s, sc_conj *c) {
  for (uint32_t i = c->n; i-- > 0;) {
    if (SC_KIND(c->v[i]) < SC_IF || SC_KIND(c->v[i]) > SC_NOT) continue;
    warn(s, c->v[i]);
    memmove(c->v + i, c->v + i + 1, (--c->n - i) * sizeof *c->v);
    return true;
  }
  return false;
}

#define FEW_CASES 16u  // of conditions that do not exclude each other

mtx_gx sc_cases(mtx_sc *s, const sc_conj *c, const char *name, size_t n_name) {
  cases *k = calloc(1, sizeof *k);
  if (!k) {
    mtx_gb_fail(s->b, MTX_ENOMEM, 0, "out of memory");
    return MTX_GX_NEVER;
  }
  k->s = s;
  k->max = SC_MAX_CASES;
  s->b->used_cases = true;
  sc_conj kept = *c;
  split(k, &kept, 0);
  while (k->too_many && drop_condition(s, &kept)) {
    while (n_conditions(&kept) > FEW_CASES) drop_condition(s, &kept);
    *k = (cases){.s = s, .max = FEW_CASES};
    split(k, &kept, 0);
  }
  mtx_gx x[SC_MAX_CASES];
  const bool itself = k->n == 1 && !sc_has_conditions(&kept);  // not a place of its own
  for (uint32_t i = 0; i < k->n; i++) x[i] = itself ? sc_build(s, &kept, name, n_name) : sc_value(s, &k->list[i], name, n_name);
  mtx_gx all = mtx_gx_alt(s->b, x, k->n);
  free(k);
  return all;
}
