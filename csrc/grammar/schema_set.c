// SPDX-License-Identifier: MIT
// Members of an object as a SET rule: which must come, and which need others.
#include "grammar/schema_object.h"

// The number of a name that can come; o->n_known: it cannot.
static uint32_t number_of(const sc_members *o, const char *p, uint32_t n) {
  uint32_t i = 0;
  while (i < o->n_known && (o->names[i].n != n || memcmp(o->names[i].text, p, n))) i++;
  return i;
}

static void note_needs(sc_members *o, uint32_t member) {
  mtx_sc *s = o->s;
  const uint32_t i = number_of(o, s->j->pool + sc_node(s, member)->key, sc_node(s, member)->n_key);
  if (i == o->n_known) return;
  for (uint32_t k = sc_node(s, member)->first; k != MTX_JSON_NONE; k = sc_node(s, k)->next) {
    const uint32_t other = number_of(o, sc_text(s, k), sc_node(s, k)->n_text);
    o->needs[i] |= other < o->n_known ? 1ull << other : SC_NEEDS_MISSING;
    o->any_needs = true;
  }
}

// What each name needs, with what that needs; names that cannot have it do not come.
void sc_gather_needs(sc_members *o) {
  o->n_known = 0;
  while (o->n_known < o->n_items && o->items[o->n_known].item != GR_EXTRA) o->n_known++;
  if (o->n_known > GR_SET_BITS) {
    for (uint32_t i = 0; i < o->c->n; i++)
      for (int d = 0; d < 2; d++)
        if (sc_keyword(o->s, o->c->v[i], sc_depending[d]) != MTX_JSON_NONE)
          sc_unenforced(o->s, sc_keyword(o->s, o->c->v[i], sc_depending[d]), sc_depending[d], "the object has many properties");
    return;
  }
  sc_each_dependency(o, note_needs);
  for (bool changed = o->any_needs; changed;) {
    changed = false;
    for (uint32_t i = 0; i < o->n_known; i++) {
      uint64_t all = o->needs[i];
      for (uint32_t k = 0; k < o->n_known; k++)
        if (o->needs[i] >> k & 1) all |= o->needs[k];
      changed |= all != o->needs[i];
      o->needs[i] = all;
    }
  }
  for (uint32_t i = 0; i < o->n_known; i++)
    for (uint32_t k = 0; k < o->n_known && o->names[i].required; k++)
      if (o->needs[i] >> k & 1) o->names[k].required = true;
  uint32_t n = 0;
  for (uint32_t i = 0; i < o->n_items; i++)
    if (i >= o->n_known || !(o->needs[i] & SC_NEEDS_MISSING)) o->items[n++] = o->items[i];
  o->n_items = n;
}

static bool put_needs(sc_members *o, gr_set *set) {
  mtx_gb *b = o->s->b;
  if (!MTX_VEC_GROW(b, set_needs, o->n_known, 4u << 20)) {
    sc_fail(o->s, MTX_ELIMIT, SC_NODE(o->c->v[0]), "too many properties in all");
    return false;
  }
  set->needs = b->n_set_needs;
  set->n_needs = o->n_known;
  memcpy(b->set_needs + b->n_set_needs, o->needs, o->n_known * sizeof *o->needs);
  b->n_set_needs += o->n_known;
  return true;
}

// The original positions matter to `required`; items carry the kept index.
bool sc_make_set(sc_members *o, gr_set *set) {
  mtx_sc *s = o->s;
  const uint32_t n_declared = o->n_known;
  uint32_t n_required = 0, n_possible = 0;
  bool extras = false;
  for (uint32_t i = 0; i < o->n_items; i++) {
    extras |= o->items[i].item == GR_EXTRA;
    n_possible += o->items[i].item != GR_EXTRA;
  }
  for (uint32_t i = 0; i < n_declared; i++) {
    n_required += o->names[i].required;
    if (o->names[i].required && n_declared <= GR_SET_BITS && (o->needs[i] & SC_NEEDS_MISSING)) return false;
  }
  *set = (gr_set){.min = o->min, .max = o->max};
  if (n_required > o->max || (!extras && n_possible < o->min)) return false;
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
      if (o->names[i].required) {
        set->required |= 1ull << i;
        if (o->names[i].in_order && !s->opts.any_order) set->in_order |= 1ull << i;
      }
    return !o->any_needs || put_needs(o, set);
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
