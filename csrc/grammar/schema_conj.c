// SPDX-License-Identifier: MIT
// Conjunctions of schema parts: gathered, flattened over $ref and allOf, interned.
#include "grammar/schema.h"

#include <string.h>

#define MAX_REF_CHAIN 64
#define MAX_FLAT 600

void sc_add(mtx_sc *s, sc_conj *c, uint32_t part) {
  for (uint32_t i = 0; i < c->n; i++)
    if (c->v[i] == part) return;
  if (c->n == SC_MAX_PARTS)
    sc_fail(s, MTX_ELIMIT, SC_NODE(part), "more than %u schemas apply to one value", SC_MAX_PARTS);
  else
    c->v[c->n++] = part;
}

typedef struct {
  uint32_t part;
  int from;  // entry this one came from by $ref or allOf, -1: none
} flat;

typedef struct {
  flat v[MAX_FLAT];
  int n;
} flat_list;

static void flat_add(mtx_sc *s, flat_list *l, uint32_t part, int from) {
  for (int i = from, k = 0; i >= 0; i = l->v[i].from, k++)
    if (l->v[i].part == part || k > MAX_REF_CHAIN) {
      sc_fail(s, MTX_EFORMAT, SC_NODE(part), "$ref leads back to itself without any content");
      return;
    }
  for (int i = 0; i < l->n; i++)
    if (l->v[i].part == part) return;
  if (l->n == MAX_FLAT)
    sc_fail(s, MTX_ELIMIT, SC_NODE(part), "too many schemas apply to one value");
  else
    l->v[l->n++] = (flat){part, from};
}

// not, if and dependentSchemas of a node, as far as they can be enforced.
static void flat_conditions(mtx_sc *s, flat_list *l, int i, sc_conj *out) {
  static const char *const depending[] = {"dependentSchemas", "dependencies"};
  static const char too_large[] = "the schema is too large for it";
  const uint32_t node = SC_NODE(l->v[i].part), no = sc_get(s, node, "not"), cond = sc_get(s, node, "if");
  const bool on = s->b->with_cases;
  if (no != MTX_JSON_NONE) {
    if (!on && sc_negation(s, SC_PART(no, SC_NOT), 0, NULL) > 1)
      sc_unenforced(s, no, "not", too_large);
    else if (sc_negation(s, SC_PART(no, SC_NOT), 0, NULL) < 0)
      sc_unenforced(s, no, "not", "the opposite of this schema cannot be said");
    else
      flat_add(s, l, SC_PART(no, SC_NOT), i);
  }
  if (cond != MTX_JSON_NONE && (sc_get(s, node, "then") != MTX_JSON_NONE || sc_get(s, node, "else") != MTX_JSON_NONE)) {
    if (!on)
      sc_unenforced(s, cond, "if", too_large);
    else if (sc_negation(s, SC_PART(cond, SC_NOT), 0, NULL) < 0)
      sc_unenforced(s, cond, "if", "the opposite of this condition cannot be said; use anyOf");
    else
      sc_add(s, out, SC_PART(node, SC_IF));
  }
  for (int k = 0; k < 2; k++) {
    const uint32_t map = sc_get(s, node, depending[k]);
    if (map == MTX_JSON_NONE || sc_node(s, map)->kind != MTX_JSON_OBJECT) continue;
    for (uint32_t m = sc_node(s, map)->first; m != MTX_JSON_NONE; m = sc_node(s, m)->next) {
      if (sc_node(s, m)->kind == MTX_JSON_ARRAY) continue;
      if (on)
        sc_add(s, out, SC_PART(m, SC_DEPENDS));
      else
        sc_unenforced(s, map, depending[k], too_large);
    }
  }
}

// {"if": ..., "then": ...} as one of many in allOf: it asserts nothing beside the condition, which is enforced.
static bool is_condition_only(mtx_sc *s, uint32_t node) {
  for (uint32_t k = sc_node(s, node)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next)
    if (!sc_has_key(s, k, "if") && !sc_has_key(s, k, "then") && !sc_has_key(s, k, "else")) return false;
  const uint32_t cond = sc_get(s, node, "if");
  return cond != MTX_JSON_NONE && s->b->with_cases && sc_negation(s, SC_PART(cond, SC_NOT), 0, NULL) >= 0;
}

static void flat_node(mtx_sc *s, flat_list *l, int i, sc_conj *out) {
  const uint32_t node = SC_NODE(l->v[i].part);
  const uint8_t kind = sc_node(s, node)->kind;
  if (kind == MTX_JSON_TRUE) return;
  if (kind == MTX_JSON_FALSE) {
    out->never = true;
    return;
  }
  if (kind != MTX_JSON_OBJECT) {
    sc_fail(s, MTX_EFORMAT, node, "a schema must be an object, true or false");
    return;
  }
  static const char *const refs[] = {"$ref", "$dynamicRef"};
  for (int k = 0; k < 2; k++) {
    uint32_t ref = sc_get(s, node, refs[k]);
    if (ref == MTX_JSON_NONE) continue;
    uint32_t target = sc_resolve(s, ref);
    if (target == MTX_JSON_NONE) return;
    flat_add(s, l, SC_PART(target, SC_ALL), i);
    if (s->draft7) return;
  }
  uint32_t all = sc_get(s, node, "allOf");
  if (all != MTX_JSON_NONE)
    for (uint32_t k = sc_node(s, all)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next) flat_add(s, l, SC_PART(k, SC_ALL), i);
  if (!is_condition_only(s, node)) sc_add(s, out, SC_PART(node, SC_BASE));
  if (sc_get(s, node, "anyOf") != MTX_JSON_NONE) sc_add(s, out, SC_PART(node, SC_ANY));
  if (sc_get(s, node, "oneOf") != MTX_JSON_NONE) sc_add(s, out, SC_PART(node, SC_ONE));
  flat_conditions(s, l, i, out);
}

static void flat_negation(mtx_sc *s, flat_list *l, int i, sc_conj *out) {
  const uint32_t part = l->v[i].part;
  sc_conj way = {.n = 0};
  const int n = sc_negation(s, part, 0, &way);
  if (n == 0) out->never = true;
  if (n > 1) sc_add(s, out, part);
  for (uint32_t k = 0; k < way.n && n == 1; k++) {
    const uint32_t kind = SC_KIND(way.v[k]);
    if (kind == SC_ALL || kind == SC_NOT)
      flat_add(s, l, way.v[k], i);
    else
      sc_add(s, out, way.v[k]);
  }
}

void sc_flatten(mtx_sc *s, sc_conj *c) {
  flat_list l = {.n = 0};
  sc_conj out = {.never = c->never};
  for (uint32_t i = 0; i < c->n; i++) {
    const uint32_t kind = SC_KIND(c->v[i]);
    if (kind == SC_ALL || kind == SC_NOT || kind == SC_OTHER)
      flat_add(s, &l, c->v[i], -1);
    else
      sc_add(s, &out, c->v[i]);
  }
  for (int i = 0; i < l.n && !s->b->code; i++) {
    if (SC_KIND(l.v[i].part) == SC_ALL)
      flat_node(s, &l, i, &out);
    else
      flat_negation(s, &l, i, &out);
  }
  *c = out;
}

// ---- interning --------------------------------------------------------------------------

static uint32_t hash_parts(const uint32_t *v, uint32_t n) {
  uint32_t h = 2166136261u;
  for (uint32_t i = 0; i < n; i++) h = (h ^ v[i]) * 16777619u;
  return h ^ h >> 15;
}

static int cmp_u32(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

sc_memo *sc_intern(mtx_sc *s, const sc_conj *c, bool *is_new) {
  *is_new = false;
  if ((s->n_memos + 1) * 2 > s->n_hash) {
    uint32_t n = s->n_hash ? s->n_hash * 2 : 256;
    uint32_t *h = calloc(n, sizeof *h);
    if (!h) return NULL;
    for (uint32_t i = 0; i < s->n_memos; i++) {
      uint32_t k = hash_parts(s->parts + s->memos[i].at, s->memos[i].n) & (n - 1);
      while (h[k]) k = (k + 1) & (n - 1);
      h[k] = i + 1;
    }
    free(s->hash);
    s->hash = h;
    s->n_hash = n;
  }
  uint32_t key[SC_MAX_PARTS];
  memcpy(key, c->v, c->n * sizeof *key);
  qsort(key, c->n, sizeof *key, cmp_u32);
  uint32_t k = hash_parts(key, c->n) & (s->n_hash - 1);
  for (; s->hash[k]; k = (k + 1) & (s->n_hash - 1)) {
    sc_memo *m = s->memos + s->hash[k] - 1;
    if (m->n == c->n && !memcmp(s->parts + m->at, key, c->n * sizeof *key)) return m;
  }
  if (!MTX_VEC_GROW(s, memos, 1, MTX_GRAMMAR_MAX_RULES) || !MTX_VEC_GROW(s, parts, 2 * c->n, 4u << 20)) {
    sc_fail(s, MTX_ELIMIT, 0, "more than %u different places in the document", MTX_GRAMMAR_MAX_RULES);
    return NULL;
  }
  s->memos[s->n_memos] = (sc_memo){s->n_parts, c->n, MTX_GX_NEVER, UINT32_MAX};
  memcpy(s->parts + s->n_parts, key, c->n * sizeof *key);
  memcpy(s->parts + s->n_parts + c->n, c->v, c->n * sizeof *key);
  s->n_parts += 2 * c->n;
  s->hash[k] = s->n_memos + 1;
  *is_new = true;
  return s->memos + s->n_memos++;
}
