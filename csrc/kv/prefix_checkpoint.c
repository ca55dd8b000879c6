// SPDX-License-Identifier: MIT
// Checkpoints of the prefix index: where a sequence that cannot be cut anywhere goes on.
#include "kv/prefix_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

uint64_t px_checkpoint_bytes(const mtx_prefix *p, const px_checkpoint *c) {
  uint64_t n = sizeof *c + (c->state ? p->layout->state_bytes : 0);
  for (int g = 0; g < p->layout->n_groups; g++)
    if (px_has_window(p, g)) n += (uint64_t)(px_pages_of(c->n) - c->first[g]) * sizeof(uint8_t *);
  return n;
}

bool px_covers(const mtx_prefix *p, const px_checkpoint *c, int64_t n) {
  if (n > c->n || (c->state && n != c->n)) return false;
  for (int g = 0; g < p->layout->n_groups; g++)
    if (px_has_window(p, g) && mtx_kv_window_start(p->layout, g, n) < c->first[g] * P) return false;
  return true;
}

static void checkpoint_free(mtx_prefix *p, px_checkpoint *c) {
  for (int g = 0; g < p->layout->n_groups; g++) {
    for (int64_t i = 0; c->page[g] && i < px_pages_of(c->n) - c->first[g]; i++) mtx_kv_release(p->kv, g, c->page[g][i]);
    free(c->page[g]);
  }
  if (c->state) mtx_snapshot_unref(c->state);
  free(c);
}

px_checkpoint *px_checkpoint_new(mtx_prefix *p, int64_t n, uint8_t *const *const *pages, const int64_t *from, mtx_snapshot *state) {
  px_checkpoint *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->n = n;
  for (int g = 0; g < p->layout->n_groups; g++) {
    if (!px_has_window(p, g)) continue;
    int64_t end = px_pages_of(n), first = end;
    while (first > from[g] && pages[g][first - 1 - from[g]]) first--;
    c->first[g] = first;
    c->page[g] = malloc((size_t)(end - first + 1) * sizeof *c->page[g]);
    if (!c->page[g]) {
      checkpoint_free(p, c);
      return NULL;
    }
    for (int64_t i = first; i < end; i++) {
      c->page[g][i - first] = pages[g][i - from[g]];
      mtx_kv_hold(p->kv, g, pages[g][i - from[g]]);
    }
  }
  if (state) mtx_snapshot_ref(state);
  c->state = state;
  return c;
}

bool px_is_covered(const mtx_prefix *p, const px_node *x, int64_t n) {
  for (size_t i = 0; i < x->n_at; i++)
    if (px_covers(p, x->at[i], n)) return true;
  return false;
}

void px_checkpoint_add(mtx_prefix *p, px_node *x, px_checkpoint *c) {
  if (!c) return;
  size_t before = x->cap_at;
  if (!px_covers(p, c, c->n) || mtx_grow(&x->at, &x->cap_at, x->n_at + 1, sizeof *x->at, NULL)) {
    checkpoint_free(p, c);
    return;
  }
  size_t i = x->n_at++;
  for (; i > 0 && x->at[i - 1]->n > c->n; i--) x->at[i] = x->at[i - 1];
  x->at[i] = c;
  c->node = x;
  c->link.used = p->clock;
  px_ring_insert(&c->link, &p->checkpoints);
  p->n_checkpoints++;
  p->own_bytes += px_checkpoint_bytes(p, c) + (x->cap_at - before) * sizeof *x->at;
}

void px_checkpoint_drop(mtx_prefix *p, px_checkpoint *c) {
  px_node *x = c->node;
  size_t i = 0;
  while (x->at[i] != c) i++;
  memmove(x->at + i, x->at + i + 1, (--x->n_at - i) * sizeof *x->at);
  px_ring_remove(&c->link);
  p->n_checkpoints--;
  p->own_bytes -= px_checkpoint_bytes(p, c);
  checkpoint_free(p, c);
}
