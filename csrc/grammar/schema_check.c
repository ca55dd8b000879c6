// SPDX-License-Identifier: MIT
// Checking given JSON values against schemas: filters enum and const, and
// tells whether branches of oneOf can overlap.
#include <string.h>

#include "grammar/schema.h"

#define MAX_DEPTH 120

static uint32_t type_of(const mtx_sc *s, uint32_t v) {
  mtx_decimal d;
  switch (sc_node(s, v)->kind) {
    case MTX_JSON_NULL: return SC_NULL;
    case MTX_JSON_TRUE:
    case MTX_JSON_FALSE: return SC_BOOL;
    case MTX_JSON_STRING: return SC_STR;
    case MTX_JSON_ARRAY: return SC_ARR;
    case MTX_JSON_OBJECT: return SC_OBJ;
    default:
      return mtx_decimal_read(sc_text(s, v), sc_node(s, v)->n_text, &d) && !mtx_decimal_is_integer(&d) ? SC_NUM : SC_INT;
  }
}

static uint32_t own_types(mtx_sc *s, uint32_t schema) {
  uint32_t type = sc_get(s, schema, "type"), bits = 0;
  if (type == MTX_JSON_NONE) return SC_EVERY;
  uint32_t i = sc_node(s, type)->kind == MTX_JSON_ARRAY ? sc_node(s, type)->first : type;
  for (; i != MTX_JSON_NONE; i = i == type ? MTX_JSON_NONE : sc_node(s, i)->next)
    if (sc_node(s, i)->kind == MTX_JSON_STRING) bits |= sc_type_bit(sc_text(s, i));
  uint32_t nullable = sc_get(s, schema, "nullable");
  if (nullable != MTX_JSON_NONE && sc_node(s, nullable)->kind == MTX_JSON_TRUE) bits |= SC_NULL;
  return bits;
}

static bool holds_number(mtx_sc *s, uint32_t v, uint32_t schema) {
  static const struct {
    const char *key;
    int side;
    bool open;
  } keys[] = {{"minimum", 1, false}, {"maximum", -1, false}, {"exclusiveMinimum", 1, true}, {"exclusiveMaximum", -1, true}};
  mtx_decimal x, b;
  if (!mtx_decimal_read(sc_text(s, v), sc_node(s, v)->n_text, &x)) return true;
  for (int i = 0; i < 4; i++) {
    uint32_t n = sc_get(s, schema, keys[i].key);
    if (n == MTX_JSON_NONE || sc_node(s, n)->kind != MTX_JSON_NUMBER || !mtx_decimal_read(sc_text(s, n), sc_node(s, n)->n_text, &b)) continue;
    int cmp = mtx_decimal_cmp(&x, &b) * keys[i].side;
    if (cmp < 0 || (cmp == 0 && keys[i].open)) return false;
  }
  uint32_t m = sc_get(s, schema, "multipleOf");
  if (m == MTX_JSON_NONE || sc_node(s, m)->kind != MTX_JSON_NUMBER || !mtx_decimal_read(sc_text(s, m), sc_node(s, m)->n_text, &b)) return true;
  return mtx_decimal_is_multiple(&x, &b);
}

static bool holds_array(mtx_sc *s, uint32_t v, uint32_t schema, int depth) {
  const uint32_t part = SC_PART(schema, SC_BASE), n = sc_node(s, v)->n_kids;
  if (n < sc_count(s, part, "minItems", 0) || n > sc_count(s, part, "maxItems", UINT32_MAX)) return false;
  uint32_t prefix = sc_get(s, schema, "prefixItems"), rest = sc_get(s, schema, "items");
  if (rest != MTX_JSON_NONE && sc_node(s, rest)->kind == MTX_JSON_ARRAY) prefix = rest, rest = sc_get(s, schema, "additionalItems");
  uint32_t p = prefix == MTX_JSON_NONE ? MTX_JSON_NONE : sc_node(s, prefix)->first;
  for (uint32_t i = sc_node(s, v)->first; i != MTX_JSON_NONE; i = sc_node(s, i)->next) {
    uint32_t item = p != MTX_JSON_NONE ? p : rest;
    if (item != MTX_JSON_NONE && !sc_holds(s, i, item, depth + 1)) return false;
    if (p != MTX_JSON_NONE) p = sc_node(s, p)->next;
  }
  uint32_t c = sc_get(s, schema, "contains"), n_hits = 0;
  for (uint32_t i = sc_node(s, v)->first; c != MTX_JSON_NONE && i != MTX_JSON_NONE; i = sc_node(s, i)->next) n_hits += sc_holds(s, i, c, depth + 1);
  if (c != MTX_JSON_NONE && (n_hits < sc_count(s, part, "minContains", 1) || n_hits > sc_count(s, part, "maxContains", UINT32_MAX))) return false;
  uint32_t u = sc_get(s, schema, "uniqueItems");
  if (u == MTX_JSON_NONE || sc_node(s, u)->kind != MTX_JSON_TRUE || n > 1000) return true;
  for (uint32_t i = sc_node(s, v)->first; i != MTX_JSON_NONE; i = sc_node(s, i)->next)
    for (uint32_t k = sc_node(s, i)->next; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
      if (mtx_json_equal(s->j, i, k)) return false;
  return true;
}

// dependentRequired, dependentSchemas, and dependencies, which had both.
static bool holds_dependent(mtx_sc *s, uint32_t v, uint32_t schema, int depth) {
  static const char *const keys[] = {"dependentRequired", "dependentSchemas", "dependencies"};
  for (int i = 0; i < 3; i++) {
    const uint32_t map = sc_get(s, schema, keys[i]);
    if (map == MTX_JSON_NONE || sc_node(s, map)->kind != MTX_JSON_OBJECT) continue;
    for (uint32_t m = sc_node(s, map)->first; m != MTX_JSON_NONE; m = sc_node(s, m)->next) {
      if (mtx_json_get_n(s->j, v, s->j->pool + sc_node(s, m)->key, sc_node(s, m)->n_key) == MTX_JSON_NONE) continue;
      const bool list = sc_node(s, m)->kind == MTX_JSON_ARRAY;
      if (!list && !sc_holds(s, v, m, depth + 1)) return false;
      for (uint32_t k = list ? sc_node(s, m)->first : MTX_JSON_NONE; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
        if (mtx_json_get_n(s->j, v, sc_text(s, k), sc_node(s, k)->n_text) == MTX_JSON_NONE) return false;
    }
  }
  return true;
}

static bool holds_object(mtx_sc *s, uint32_t v, uint32_t schema, int depth) {
  const uint32_t part = SC_PART(schema, SC_BASE), n = sc_node(s, v)->n_kids;
  if (n < sc_count(s, part, "minProperties", 0) || n > sc_count(s, part, "maxProperties", UINT32_MAX)) return false;
  uint32_t req = sc_get(s, schema, "required"), props = sc_get(s, schema, "properties");
  uint32_t pats = sc_get(s, schema, "patternProperties"), extra = sc_get(s, schema, "additionalProperties");
  if (req != MTX_JSON_NONE && sc_node(s, req)->kind == MTX_JSON_ARRAY)
    for (uint32_t k = sc_node(s, req)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
      if (mtx_json_get_n(s->j, v, sc_text(s, k), sc_node(s, k)->n_text) == MTX_JSON_NONE) return false;
  for (uint32_t i = sc_node(s, v)->first; i != MTX_JSON_NONE; i = sc_node(s, i)->next) {
    const char *key = s->j->pool + sc_node(s, i)->key;
    const uint32_t n_key = sc_node(s, i)->n_key;
    uint32_t k = props == MTX_JSON_NONE ? MTX_JSON_NONE : mtx_json_get_n(s->j, props, key, n_key);
    bool known = k != MTX_JSON_NONE;
    if (known && !sc_holds(s, i, k, depth + 1)) return false;
    if (pats != MTX_JSON_NONE)
      for (uint32_t p = sc_node(s, pats)->first; p != MTX_JSON_NONE; p = sc_node(s, p)->next) {
        mtx_cdfa *d = sc_pattern_cdfa(s, p);
        bool match = d && mtx_cdfa_match(d, key, n_key);
        mtx_cdfa_free(d);
        known |= match;
        if (match && !sc_holds(s, i, p, depth + 1)) return false;
      }
    if (!known && extra != MTX_JSON_NONE && !sc_holds(s, i, extra, depth + 1)) return false;
  }
  return holds_dependent(s, v, schema, depth);
}

static bool holds_combined(mtx_sc *s, uint32_t v, uint32_t schema, int depth) {
  static const char *const keys[] = {"allOf", "anyOf", "oneOf"};
  for (int i = 0; i < 3; i++) {
    uint32_t list = sc_get(s, schema, keys[i]);
    if (list == MTX_JSON_NONE) continue;
    uint32_t n = 0;
    for (uint32_t k = sc_node(s, list)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next) n += sc_holds(s, v, k, depth + 1);
    if (i == 0 ? n < sc_node(s, list)->n_kids : i == 1 ? n == 0 : n != 1) return false;
  }
  uint32_t no = sc_get(s, schema, "not"), cond = sc_get(s, schema, "if");
  if (no != MTX_JSON_NONE && sc_holds(s, v, no, depth + 1)) return false;
  if (cond == MTX_JSON_NONE) return true;
  uint32_t next = sc_get(s, schema, sc_holds(s, v, cond, depth + 1) ? "then" : "else");
  return next == MTX_JSON_NONE || sc_holds(s, v, next, depth + 1);
}

bool sc_holds(mtx_sc *s, uint32_t v, uint32_t schema, int depth) {
  const uint8_t kind = sc_node(s, schema)->kind;
  if (s->b->code || depth > MAX_DEPTH || kind == MTX_JSON_TRUE) return true;
  if (kind != MTX_JSON_OBJECT) return false;
  static const char *const refs[] = {"$ref", "$dynamicRef"};
  for (int i = 0; i < 2; i++) {
    const uint32_t ref = sc_get(s, schema, refs[i]);
    if (ref == MTX_JSON_NONE) continue;
    const uint32_t target = sc_resolve(s, ref);
    if (target == MTX_JSON_NONE || !sc_holds(s, v, target, depth + 1)) return false;
    if (s->draft7) return true;
  }
  const uint32_t type = type_of(s, v);
  if (!(own_types(s, schema) & type)) return false;
  uint32_t one = sc_get(s, schema, "const"), list = sc_get(s, schema, "enum");
  if (one != MTX_JSON_NONE && !mtx_json_equal(s->j, v, one)) return false;
  if (list != MTX_JSON_NONE && sc_node(s, list)->kind == MTX_JSON_ARRAY) {
    bool found = sc_node(s, v)->parent == list;
    for (uint32_t k = sc_node(s, list)->first; k != MTX_JSON_NONE && !found; k = sc_node(s, k)->next) found = mtx_json_equal(s->j, v, k);
    if (!found) return false;
  }
  if ((type & (SC_INT | SC_NUM)) && !holds_number(s, v, schema)) return false;
  if ((type & SC_STR) && !sc_holds_text(s, SC_PART(schema, SC_BASE), sc_text(s, v), sc_node(s, v)->n_text)) return false;
  if ((type & SC_ARR) && !holds_array(s, v, schema, depth)) return false;
  if ((type & SC_OBJ) && !holds_object(s, v, schema, depth)) return false;
  const char *const others = type & SC_OBJ ? "unevaluatedProperties" : "unevaluatedItems";
  const uint32_t rest = sc_node(s, v)->n_kids ? sc_get(s, schema, others) : MTX_JSON_NONE;
  if (rest != MTX_JSON_NONE && sc_node(s, rest)->kind != MTX_JSON_TRUE) sc_unenforced(s, rest, others, "not decided for the values of enum and const");
  return holds_combined(s, v, schema, depth);
}

// ---- disjoint branches -----------------------------------------------------------------------

static uint32_t without_refs(mtx_sc *s, uint32_t schema) {
  for (int i = 0; i < 16; i++) {
    uint32_t ref = sc_node(s, schema)->kind == MTX_JSON_OBJECT ? sc_get(s, schema, "$ref") : MTX_JSON_NONE;
    if (ref == MTX_JSON_NONE) break;
    uint32_t target = sc_resolve(s, ref);
    if (target == MTX_JSON_NONE) break;
    schema = target;
  }
  return schema;
}

static bool is_required(const mtx_sc *s, uint32_t schema, const char *p, uint32_t n) {
  uint32_t req = sc_get(s, schema, "required");
  if (req == MTX_JSON_NONE || sc_node(s, req)->kind != MTX_JSON_ARRAY) return false;
  for (uint32_t k = sc_node(s, req)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
    if (sc_node(s, k)->kind == MTX_JSON_STRING && sc_node(s, k)->n_text == n && !memcmp(sc_text(s, k), p, n)) return true;
  return false;
}

// Values of x's const or enum that y also takes?
static bool listed_and_apart(mtx_sc *s, uint32_t x, uint32_t y) {
  uint32_t one = sc_get(s, x, "const"), list = sc_get(s, x, "enum");
  if (one != MTX_JSON_NONE) return !sc_holds(s, one, y, 0);
  if (list == MTX_JSON_NONE || sc_node(s, list)->kind != MTX_JSON_ARRAY || sc_node(s, list)->n_kids > 256) return false;
  for (uint32_t k = sc_node(s, list)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
    if (sc_holds(s, k, y, 0)) return false;
  return true;
}

// A key both require with values apart, or one y requires and x does not allow.
static bool objects_apart(mtx_sc *s, uint32_t x, uint32_t y, int depth) {
  uint32_t px = sc_get(s, x, "properties"), py = sc_get(s, y, "properties"), extra = sc_get(s, x, "additionalProperties");
  if (px != MTX_JSON_NONE && py != MTX_JSON_NONE)
    for (uint32_t k = sc_node(s, px)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next) {
      const char *key = s->j->pool + sc_node(s, k)->key;
      const uint32_t n = sc_node(s, k)->n_key;
      uint32_t other = mtx_json_get_n(s->j, py, key, n);
      if (other != MTX_JSON_NONE && is_required(s, x, key, n) && is_required(s, y, key, n) && sc_disjoint(s, k, other, depth + 1)) return true;
    }
  if (extra == MTX_JSON_NONE || sc_node(s, extra)->kind != MTX_JSON_FALSE || sc_get(s, x, "patternProperties") != MTX_JSON_NONE) return false;
  uint32_t req = sc_get(s, y, "required");
  if (req == MTX_JSON_NONE || sc_node(s, req)->kind != MTX_JSON_ARRAY) return false;
  for (uint32_t k = sc_node(s, req)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
    if (px == MTX_JSON_NONE || mtx_json_get_n(s->j, px, sc_text(s, k), sc_node(s, k)->n_text) == MTX_JSON_NONE) return true;
  return false;
}

bool sc_disjoint(mtx_sc *s, uint32_t x, uint32_t y, int depth) {
  if (depth > 8) return false;
  x = without_refs(s, x);
  y = without_refs(s, y);
  if (sc_node(s, x)->kind == MTX_JSON_FALSE || sc_node(s, y)->kind == MTX_JSON_FALSE) return true;
  if (sc_node(s, x)->kind != MTX_JSON_OBJECT || sc_node(s, y)->kind != MTX_JSON_OBJECT) return false;
  const uint32_t tx = own_types(s, x), ty = own_types(s, y);
  if (!(tx & ty)) return true;
  if (listed_and_apart(s, x, y) || listed_and_apart(s, y, x)) return true;
  if (tx == SC_OBJ && ty == SC_OBJ) return objects_apart(s, x, y, depth) || objects_apart(s, y, x, depth);
  return false;
}
