// SPDX-License-Identifier: MIT
// contains, minContains, maxContains: arrays that count two things, their items and those
// that `contains` speaks of (hits). Each pair of counts is a rule: what may follow.
#include "grammar/schema.h"

#define MAX_PAIRS 400u

typedef struct {
  mtx_sc *s;
  const sc_conj *c;
  const sc_items *r;
  uint32_t n_items, n_hits;  // counts stop there
  bool exact;                // items that are no hits are told from hits
  uint32_t first;            // rule of (0, 0); the rules follow each other
} counted;

static mtx_gx rest(const counted *k, uint32_t items, uint32_t hits) {
  if (items > k->n_items) items = k->n_items;
  if (hits > k->n_hits) hits = k->n_hits;
  return mtx_gx_ref(k->s->b, k->first + items * (k->n_hits + 1) + hits);
}

static uint32_t opposite(uint32_t part) { return SC_PART(SC_NODE(part), SC_KIND(part) == SC_NOT ? SC_ALL : SC_NOT); }

// An item, a hit (SC_ALL), none (SC_NOT) or either (SC_BASE), and what follows it.
static mtx_gx item(const counted *k, uint32_t items, uint32_t hits, uint32_t kind) {
  mtx_gb *b = k->s->b;
  sc_conj one = sc_item_conj(k->s, k->c, items < k->r->n_prefix ? items : UINT32_MAX, kind == SC_ALL ? k->r->hit : MTX_JSON_NONE);
  if (kind == SC_ALL) sc_add(k->s, &one, k->r->hit);
  if (kind == SC_NOT) sc_add(k->s, &one, opposite(k->r->hit));
  mtx_gx x = mtx_gx_cat2(b, sc_value(k->s, &one, "item", 4), rest(k, items + 1, hits + (kind == SC_ALL)));
  return items ? mtx_gx_cat2(b, k->s->comma, x) : x;
}

static mtx_gx after(const counted *k, uint32_t items, uint32_t hits) {
  const sc_items *r = k->r;
  mtx_gx x[4];
  uint32_t n = 0;
  if (items >= r->min && hits >= r->min_hits) x[n++] = MTX_GX_EMPTY;
  if (items == r->max) return mtx_gx_alt(k->s->b, x, n);
  const bool enough = r->max_hits == UINT32_MAX && hits >= r->min_hits;  // hits count no more
  if (enough) {
    x[n++] = item(k, items, hits, SC_BASE);
    if (r->rest_differs) x[n++] = item(k, items, hits, SC_ALL);
  } else {
    x[n++] = item(k, items, hits, k->exact ? SC_NOT : SC_BASE);
    if (hits < r->max_hits) x[n++] = item(k, items, hits, SC_ALL);
  }
  return mtx_gx_alt(k->s->b, x, n);
}

bool sc_counted_items(mtx_sc *s, const sc_conj *c, const sc_items *r, mtx_gx *out) {
  counted k = {.s = s, .c = c, .r = r, .n_items = r->max == UINT32_MAX ? r->min : r->max,
               .n_hits = r->max_hits == UINT32_MAX ? r->min_hits : r->max_hits};
  k.exact = sc_negation(s, SC_PART(SC_NODE(r->hit), SC_NOT), 0, NULL) >= 0;
  if (k.n_items < r->n_prefix) k.n_items = r->n_prefix;
  if (k.n_items == 0) k.n_items = 1;  // the first has no comma
  if (!k.exact && r->max_hits != UINT32_MAX) {
    sc_unenforced(s, SC_NODE(r->hit), "maxContains", "the opposite of `contains` cannot be said");
    return false;
  }
  if (((uint64_t)k.n_items + 1) * ((uint64_t)k.n_hits + 1) > MAX_PAIRS) {
    sc_unenforced(s, SC_NODE(r->hit), "contains", "the counts of items are too large together");
    return false;
  }
  const uint32_t n = (k.n_items + 1) * (k.n_hits + 1);
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t rule = mtx_gb_rule(s->b, "items", 5);
    if (i == 0) k.first = rule;
  }
  for (uint32_t i = 0; i < n && !s->b->code; i++) mtx_gb_define(s->b, k.first + i, after(&k, i / (k.n_hits + 1), i % (k.n_hits + 1)));
  *out = rest(&k, 0, 0);
  return true;
}
