// SPDX-License-Identifier: MIT
// Counts the prefix index again: what `kv_ok` of the engine's statistics says of it.
#include "kv/prefix_tree.h"

#include <string.h>

static bool check_node(const mtx_prefix *p, const px_node *x, uint64_t *bytes, int64_t *holds, int64_t *n_checkpoints) {
  *bytes += px_node_bytes(p, x);
  *n_checkpoints += (int64_t)x->n_at;
  if (x->n <= 0 || x->start != px_end_of(x->parent) || px_child_of(x->parent, x->tokens[0]) != x) return false;
  if (x->parent->parent && x->parent->link.used < x->link.used) return false;
  if (!x->n_child && !p->exact && (!x->n_at || x->at[x->n_at - 1]->n != px_end_of(x))) return false;
  for (int g = 0; g < p->layout->n_groups; g++)
    if (x->page[g]) *holds += px_n_pages(x);
  for (size_t i = 0; i < x->n_at; i++) {
    const px_checkpoint *c = x->at[i];
    if (c->node != x || c->n <= (i ? x->at[i - 1]->n : x->start) || c->n > px_end_of(x) || !px_covers(p, c, c->n)) return false;
    *bytes += px_checkpoint_bytes(p, c);
    for (int g = 0; g < p->layout->n_groups; g++)
      if (c->page[g]) *holds += px_pages_of(c->n) - c->first[g];
  }
  return true;
}

bool mtx_prefix_check(const mtx_prefix *p) {
  uint64_t bytes = 0;
  int64_t holds = 0, n_nodes = 0, n_checkpoints = 0;
  for (size_t i = 0; i < p->n_roots; i++) {
    bytes += px_root_bytes(p->roots[i]);
    if (!p->roots[i]->top.n_child || (i && strcmp(p->roots[i - 1]->key, p->roots[i]->key) >= 0)) return false;
  }
  for (const px_link *l = p->nodes.older; l != &p->nodes; l = l->older, n_nodes++)
    if (!check_node(p, (const px_node *)l, &bytes, &holds, &n_checkpoints)) return false;
  return n_nodes == p->n_nodes && n_checkpoints == p->n_checkpoints && bytes == p->own_bytes && holds == mtx_kv_n_holds(p->kv) &&
         (px_total_bytes(p) <= p->budget || !p->n_nodes);
}
