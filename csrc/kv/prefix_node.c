// SPDX-License-Identifier: MIT
// Nodes of the prefix index: made, split, extended, dropped; and the roots they hang from.
#include "kv/prefix_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

uint64_t px_node_bytes(const mtx_prefix *p, const px_node *x) {
  uint64_t n = sizeof *x + (uint64_t)x->n * sizeof *x->tokens + x->cap_child * sizeof *x->child + x->cap_at * sizeof *x->at;
  for (int g = 0; g < p->layout->n_groups; g++)
    if (x->page[g]) n += (uint64_t)px_n_pages(x) * sizeof *x->page[g];
  return n;
}

// Where a child that begins with `token` stands or would stand.
static size_t child_index(const px_node *x, int32_t token) {
  size_t lo = 0, hi = x->n_child;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (x->child[mid]->tokens[0] < token) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

px_node *px_child_of(const px_node *x, int32_t token) {
  size_t i = child_index(x, token);
  return i < x->n_child && x->child[i]->tokens[0] == token ? x->child[i] : NULL;
}

bool px_child_room(mtx_prefix *p, px_node *x) {
  size_t before = x->cap_child;
  if (mtx_grow(&x->child, &x->cap_child, x->n_child + 1, sizeof *x->child, NULL)) return false;
  p->own_bytes += (x->cap_child - before) * sizeof *x->child;
  return true;
}

void px_child_insert(px_node *x, px_node *c) {
  size_t i = child_index(x, c->tokens[0]);
  memmove(x->child + i + 1, x->child + i, (x->n_child++ - i) * sizeof *x->child);
  x->child[i] = c;
  c->parent = x;
}

static void node_free(mtx_prefix *p, px_node *x) {
  for (int g = 0; g < p->layout->n_groups; g++) free(x->page[g]);
  free(x->tokens);
  free(x->child);
  free(x->at);
  free(x);
}

px_node *px_node_new(mtx_prefix *p, int64_t start, const int32_t *tokens, int64_t n) {
  px_node *x = calloc(1, sizeof *x);
  if (!x) return NULL;
  x->start = start;
  x->n = n;
  bool ok = (x->tokens = malloc((size_t)n * sizeof *tokens));
  for (int g = 0; g < p->layout->n_groups && ok; g++)
    if (!px_has_window(p, g)) ok = (x->page[g] = malloc((size_t)px_n_pages(x) * sizeof *x->page[g]));
  if (!ok) {
    node_free(p, x);
    return NULL;
  }
  memcpy(x->tokens, tokens, (size_t)n * sizeof *tokens);
  return x;
}

void px_node_link(mtx_prefix *p, px_node *x, px_link *newer, uint64_t used) {
  px_ring_insert(&x->link, newer);
  x->link.used = used;
  p->n_nodes++;
  p->own_bytes += px_node_bytes(p, x);
}

// Releases pages from number `i` on.
static void release_pages(mtx_prefix *p, px_node *x, int64_t i) {
  for (int g = 0; g < p->layout->n_groups; g++)
    for (int64_t k = i - x->start / P; x->page[g] && k < px_n_pages(x); k++) mtx_kv_release(p->kv, g, x->page[g][k]);
}

px_node *px_top_of(mtx_prefix *p, const char *key, size_t *at) {
  size_t lo = 0, hi = p->n_roots;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (strcmp(p->roots[mid]->key, key) < 0) lo = mid + 1;
    else hi = mid;
  }
  *at = lo;
  return lo < p->n_roots && !strcmp(p->roots[lo]->key, key) ? &p->roots[lo]->top : NULL;
}

uint64_t px_root_bytes(const px_root *r) { return sizeof *r + strlen(r->key) + 1 + r->top.cap_child * sizeof *r->top.child; }

px_node *px_top_new(mtx_prefix *p, const char *key, size_t at) {
  px_root *r = calloc(1, sizeof *r);
  if (r) r->key = strdup(key);
  if (!r || !r->key || mtx_grow(&p->roots, &p->cap_roots, p->n_roots + 1, sizeof *p->roots, NULL)) {
    if (r) free(r->key);
    free(r);
    return NULL;
  }
  memmove(p->roots + at + 1, p->roots + at, (p->n_roots++ - at) * sizeof *p->roots);
  p->roots[at] = r;
  p->own_bytes += px_root_bytes(r);
  return &r->top;
}

void px_drop_empty_top(mtx_prefix *p, const px_node *top) {
  size_t i = 0;
  if (top->n_child) return;
  while (&p->roots[i]->top != top) i++;
  px_root *r = p->roots[i];
  p->own_bytes -= px_root_bytes(r);
  free(r->key);
  free(r->top.child);
  free(r);
  memmove(p->roots + i, p->roots + i + 1, (--p->n_roots - i) * sizeof *p->roots);
}

void px_drop_leaf(mtx_prefix *p, px_node *x) {
  while (x->n_at) px_checkpoint_drop(p, x->at[x->n_at - 1]);
  px_node *up = x->parent;
  size_t i = child_index(up, x->tokens[0]);
  memmove(up->child + i, up->child + i + 1, (--up->n_child - i) * sizeof *up->child);
  px_ring_remove(&x->link);
  p->n_nodes--;
  p->own_bytes -= px_node_bytes(p, x);
  release_pages(p, x, x->start / P);
  node_free(p, x);
}

void px_trim(mtx_prefix *p, px_node *x) {
  while (x->parent && !x->n_child && !p->exact) {
    int64_t last = x->n_at ? x->at[x->n_at - 1]->n : x->start;
    if (last > x->start) {
      p->own_bytes -= px_node_bytes(p, x);
      release_pages(p, x, px_pages_of(last));
      x->n = last - x->start;
      p->own_bytes += px_node_bytes(p, x);
      return;
    }
    px_node *up = x->parent;
    px_drop_leaf(p, x);
    x = up;
  }
  if (!x->parent) px_drop_empty_top(p, x);
}

px_node *px_split(mtx_prefix *p, px_node *x, int64_t k) {
  px_node *up = px_node_new(p, x->start, x->tokens, k);
  if (!up) return NULL;
  if (mtx_grow(&up->child, &up->cap_child, 2, sizeof *up->child, NULL) || mtx_grow(&up->at, &up->cap_at, x->n_at + 1, sizeof *up->at, NULL)) {
    node_free(p, up);
    return NULL;
  }
  int64_t border = px_end_of(up);
  for (int g = 0; g < p->layout->n_groups; g++)
    for (int64_t i = 0; up->page[g] && i < px_n_pages(up); i++) mtx_kv_hold(p->kv, g, up->page[g][i] = x->page[g][i]);
  p->own_bytes -= px_node_bytes(p, x);
  int64_t gone = border / P - x->start / P;
  for (int g = 0; g < p->layout->n_groups; g++) {
    if (!x->page[g]) continue;
    for (int64_t i = 0; i < gone; i++) mtx_kv_release(p->kv, g, x->page[g][i]);
    memmove(x->page[g], x->page[g] + gone, (size_t)(px_n_pages(x) - gone) * sizeof *x->page[g]);
  }
  up->parent = x->parent;
  x->parent->child[child_index(x->parent, x->tokens[0])] = up;
  memmove(x->tokens, x->tokens + k, (size_t)(x->n - k) * sizeof *x->tokens);
  x->start = border;
  x->n -= k;
  size_t n_up = 0;
  while (n_up < x->n_at && x->at[n_up]->n <= border) n_up++;
  for (size_t i = 0; i < n_up; i++) (up->at[i] = x->at[i])->node = up;
  up->n_at = n_up;
  for (size_t i = n_up; i < x->n_at; i++) x->at[i - n_up] = x->at[i];
  x->n_at -= n_up;
  p->own_bytes += px_node_bytes(p, x);
  px_child_insert(up, x);
  px_node_link(p, up, x->link.newer, x->link.used);
  // A window's pages that reach back over the border serve the upper part as well.
  for (size_t i = 0; i < x->n_at && !px_is_covered(p, up, border); i++)
    if (px_covers(p, x->at[i], border))
      px_checkpoint_add(p, up, px_checkpoint_new(p, border, (uint8_t *const *const *)x->at[i]->page, x->at[i]->first, NULL));
  return up;
}

bool px_extend(mtx_prefix *p, px_node *x, int seq, const int32_t *tokens, int64_t len) {
  int64_t end = px_end_of(x), first = x->start / P, n_old = px_n_pages(x), n_new = px_pages_of(len) - first;
  int32_t *t = realloc(x->tokens, (size_t)(len - x->start) * sizeof *t);
  if (!t) return false;
  x->tokens = t;
  for (int g = 0; g < p->layout->n_groups; g++) {
    if (!x->page[g]) continue;
    uint8_t **page = realloc(x->page[g], (size_t)n_new * sizeof *page);
    if (!page) return false;
    x->page[g] = page;
  }
  p->own_bytes -= px_node_bytes(p, x);
  for (int g = 0; g < p->layout->n_groups; g++) {
    uint8_t *const *from = mtx_kv_seq_pages(p->kv, seq, g);
    for (int64_t i = end / P; x->page[g] && i < px_pages_of(len); i++) {  // a page that was partly filled is replaced
      mtx_kv_hold(p->kv, g, from[i]);
      if (i - first < n_old) mtx_kv_release(p->kv, g, x->page[g][i - first]);
      x->page[g][i - first] = from[i];
    }
  }
  memcpy(t + x->n, tokens + end, (size_t)(len - end) * sizeof *t);
  x->n = len - x->start;
  p->own_bytes += px_node_bytes(p, x);
  return true;
}
