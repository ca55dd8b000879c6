// SPDX-License-Identifier: MIT
// Which types a conjunction of schema parts allows.
//
// A schema that says nothing about the type but has keywords of one type
// ("properties" without "type") is taken to mean that type: every value is
// still valid, and that is what its author meant.
#include "grammar/schema.h"

#include <string.h>

uint32_t sc_type_bit(const char *t) {
  static const struct {
    const char *name;
    uint32_t bits;
  } types[] = {{"null", SC_NULL},  {"boolean", SC_BOOL}, {"integer", SC_INT}, {"number", SC_INT | SC_NUM},
               {"string", SC_STR}, {"array", SC_ARR},    {"object", SC_OBJ}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(t, types[i].name)) return types[i].bits;
  return 0;
}

static uint32_t type_keyword(mtx_sc *s, uint32_t type) {
  uint32_t bits = 0, first = sc_node(s, type)->kind == MTX_JSON_ARRAY ? sc_node(s, type)->first : type;
  for (uint32_t i = first; i != MTX_JSON_NONE; i = i == type ? MTX_JSON_NONE : sc_node(s, i)->next) {
    uint32_t b = sc_node(s, i)->kind == MTX_JSON_STRING ? sc_type_bit(sc_text(s, i)) : 0;
    if (!b && sc_node(s, i)->kind == MTX_JSON_STRING && !strcmp(sc_text(s, i), "any")) b = SC_EVERY;
    if (!b) sc_fail(s, MTX_EFORMAT, i, "unknown type; use null, boolean, integer, number, string, array or object");
    bits |= b;
  }
  return bits;
}

static const struct {
  const char *key;
  uint32_t bits;
} keys[] = {{"properties", SC_OBJ},       {"required", SC_OBJ},         {"additionalProperties", SC_OBJ},
              {"patternProperties", SC_OBJ}, {"minProperties", SC_OBJ},    {"maxProperties", SC_OBJ},
              {"propertyNames", SC_OBJ},     {"items", SC_ARR},            {"prefixItems", SC_ARR},
              {"minItems", SC_ARR},          {"maxItems", SC_ARR},         {"contains", SC_ARR},
  {"uniqueItems", SC_ARR},       {"dependentRequired", SC_OBJ}, {"dependentSchemas", SC_OBJ}, {"pattern", SC_STR},
              {"minLength", SC_STR},         {"maxLength", SC_STR},        {"format", SC_STR},
              {"minimum", SC_INT | SC_NUM},  {"maximum", SC_INT | SC_NUM}, {"exclusiveMinimum", SC_INT | SC_NUM},
              {"exclusiveMaximum", SC_INT | SC_NUM}, {"multipleOf", SC_INT | SC_NUM}};

static uint32_t types_of_keyword(const char *key) {
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strcmp(keys[i].key, key)) return keys[i].bits;
  return 0;
}

static uint32_t implied_types(const mtx_sc *s, uint32_t part) {
  uint32_t bits = 0;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (sc_keyword(s, part, keys[i].key) != MTX_JSON_NONE) bits |= keys[i].bits;
  return bits;
}

// Types that a part of a condition leaves.
static uint32_t condition_types(mtx_sc *s, uint32_t part) {
  const uint32_t type = sc_negated(s, part, "type");
  switch (SC_KIND(part)) {
    case SC_HAS:
    case SC_HASNOT:
    case SC_WITHOUT: return SC_OBJ;
    case SC_NEG: break;
    default: return SC_EVERY;
  }
  if (type != MTX_JSON_NONE) return SC_EVERY & ~type_keyword(s, type);
  if (sc_negated(s, part, "maxContains") != MTX_JSON_NONE) return SC_ARR;
  const uint32_t bits = types_of_keyword(s->j->pool + sc_node(s, SC_NODE(part))->key);
  return bits ? bits : SC_EVERY;
}

uint32_t sc_types(mtx_sc *s, const sc_conj *c) {
  uint32_t bits = SC_EVERY, implied = 0;
  bool said = false;
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t type = sc_keyword(s, c->v[i], "type");
    if (type != MTX_JSON_NONE) {
      uint32_t b = type_keyword(s, type), nullable = sc_keyword(s, c->v[i], "nullable");
      if (nullable != MTX_JSON_NONE && sc_node(s, nullable)->kind == MTX_JSON_TRUE) b |= SC_NULL;
      bits &= b;
      said = true;
    }
    bits &= condition_types(s, c->v[i]);
    implied |= implied_types(s, c->v[i]);
  }
  if (!said && implied && !s->opts.open_types) bits &= implied;
  return bits;
}
