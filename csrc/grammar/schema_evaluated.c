// SPDX-License-Identifier: MIT
// unevaluatedProperties and unevaluatedItems: what holds for a property or an item that no
// other keyword of the same schema speaks of, nor one of those it applies in the same place
// (JSON Schema Core 2020-12, section 11).
#include <string.h>

#include "grammar/schema.h"

#define MAX_SEEN 600u  // schemas that one applies in the same place; what is beyond counts as not evaluated

typedef struct {
  uint32_t v[MAX_SEEN], n;
} seen;

static bool is_listed(const seen *l, uint32_t node) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->v[i] == node) return true;
  return false;
}

static void see(seen *l, uint32_t node) {
  if (node != MTX_JSON_NONE && l->n < MAX_SEEN && !is_listed(l, node)) l->v[l->n++] = node;
}

static bool is(const mtx_sc *s, uint32_t keyword, const char *const *list) {
  for (; *list; list++)
    if (!strcmp(s->j->pool + sc_node(s, keyword)->key, *list)) return true;
  return false;
}

static void see_applied(mtx_sc *s, seen *l, uint32_t keyword) {
  static const char *const one[] = {"if", "then", "else", NULL};
  static const char *const many[] = {"allOf", "anyOf", "oneOf", "dependentSchemas", NULL};
  static const char *const refs[] = {"$ref", "$dynamicRef", NULL};
  if (is(s, keyword, one))
    see(l, keyword);
  else if (is(s, keyword, refs))
    see(l, sc_resolve(s, keyword));
  else if (is(s, keyword, many))
    for (uint32_t k = sc_node(s, keyword)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next) see(l, k);
}

// The schema `of` and those it applies in the same place. False: a condition among them is not enforced, so
// nobody knows what it evaluates.
static bool list_applied(mtx_sc *s, uint32_t of, seen *l) {
  l->n = 0;
  see(l, of);
  for (uint32_t i = 0; i < l->n && mtx_gb_in_time(s->b); i++) {
    const uint32_t node = l->v[i];
    if (sc_node(s, node)->kind != MTX_JSON_OBJECT) continue;
    const uint32_t cond = sc_get(s, node, "if");
    if (cond != MTX_JSON_NONE && (!s->b->with_cases || sc_negation(s, SC_PART(cond, SC_NOT), 0, NULL) < 0)) return false;
    for (uint32_t k = sc_node(s, node)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next) see_applied(s, l, k);
  }
  return true;
}

void sc_add_unevaluated(mtx_sc *s, const sc_conj *c, const char *keyword, const bool *found, sc_conj *out) {
  seen l;
  for (uint32_t i = 0; i < c->n; i++) {
    const uint32_t rest = sc_keyword(s, c->v[i], keyword);
    if (rest == MTX_JSON_NONE || found[i] || sc_node(s, rest)->kind == MTX_JSON_TRUE) continue;
    if (!list_applied(s, SC_NODE(c->v[i]), &l)) {
      sc_unenforced(s, rest, keyword, "a condition beside it is not enforced");
      continue;
    }
    bool evaluated = false;
    for (uint32_t k = 0; k < c->n && !evaluated; k++)
      evaluated = k != i && (found[k] || sc_keyword(s, c->v[k], keyword) != MTX_JSON_NONE) && is_listed(&l, SC_NODE(c->v[k]));
    if (!evaluated) sc_add(s, out, SC_PART(rest, SC_ALL));
  }
}
