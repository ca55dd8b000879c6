// SPDX-License-Identifier: MIT
// Prefix index: see prefix.h; how it is kept: prefix_tree.h.
#include "kv/prefix_tree.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kv/state.h"

static void touch_path(mtx_prefix *p, px_node *x) {
  for (; x->parent; x = x->parent) px_touch(&x->link, &p->nodes, p->clock);
}

// ---- the tree ---------------------------------------------------------------------------

// Follows tokens from the top: the last node of which at least one token matches, or the top.
static px_node *walk(px_node *top, const int32_t *tokens, int64_t n, int64_t *matched) {
  px_node *x = top, *c;
  int64_t at = 0;
  while (at < n && (c = px_child_of(x, tokens[at]))) {
    int64_t k = 1, most = c->n < n - at ? c->n : n - at;
    while (k < most && c->tokens[k] == tokens[at + k]) k++;
    at += k;
    x = c;
    if (k < c->n) break;
  }
  *matched = at;
  return x;
}

// The node in which tokens [0, len) of seq end, when the first m of them end in x.
static px_node *grow_path(mtx_prefix *p, px_node *x, int64_t m, int seq, const int32_t *tokens, int64_t len) {
  if (m < px_end_of(x) && !(x = px_split(p, x, m - x->start))) return NULL;
  if (x->parent && !x->n_child) return px_extend(p, x, seq, tokens, len) ? x : NULL;
  px_node *leaf = px_child_room(p, x) ? px_node_new(p, m, tokens + m, len - m) : NULL;
  if (!leaf) return NULL;
  for (int g = 0; g < p->layout->n_groups; g++) {
    uint8_t *const *from = mtx_kv_seq_pages(p->kv, seq, g);
    for (int64_t i = 0; leaf->page[g] && i < px_n_pages(leaf); i++) mtx_kv_hold(p->kv, g, leaf->page[g][i] = from[m / P + i]);
  }
  px_child_insert(x, leaf);
  px_node_link(p, leaf, &p->nodes, p->clock);
  return leaf;
}

// Checkpoints that seq can give at tokens (m, len].
static void keep_checkpoints(mtx_prefix *p, px_node *x, int64_t m, int seq, int64_t len) {
  static const int64_t from_zero[MTX_KV_MAX_GROUPS];
  uint8_t *const *pages[MTX_KV_MAX_GROUPS];
  for (int g = 0; g < p->layout->n_groups; g++) pages[g] = mtx_kv_seq_pages(p->kv, seq, g);
  if (!p->layout->state_bytes) {
    if (!px_is_covered(p, x, len)) px_checkpoint_add(p, x, px_checkpoint_new(p, len, pages, from_zero, NULL));
    return;
  }
  mtx_kv_seq_keep(p->kv, seq);
  int n;
  mtx_snapshot *const *s = mtx_kv_seq_snapshots(p->kv, seq, &n);
  for (int i = 0; i < n; i++)
    if ((s[i]->n_tokens > m || s[i]->n_tokens == len) && !px_is_covered(p, x, s[i]->n_tokens))
      px_checkpoint_add(p, x, px_checkpoint_new(p, s[i]->n_tokens, pages, from_zero, s[i]));
}

// Bytes that tokens [m, len) would add at most.
static uint64_t cost(const mtx_prefix *p, int64_t m, int64_t len) {
  uint64_t n = sizeof(px_node) + sizeof(px_checkpoint) + (uint64_t)(len - m) * sizeof(int32_t) + p->layout->state_bytes;
  for (int g = 0; g < p->layout->n_groups; g++) {
    int64_t seen = len - (px_has_window(p, g) ? mtx_kv_window_start(p->layout, g, len) : m);
    n += (uint64_t)px_pages_of(seen + P - 1) * (p->layout->page_bytes[g] + sizeof(uint8_t *));
  }
  return n;
}

void mtx_prefix_put(mtx_prefix *p, const char *key, int seq, const int32_t *tokens) {
  int64_t len = mtx_kv_seq_len(p->kv, seq), m;
  size_t at;
  if (!len || !p->budget) return;
  px_node *top = px_top_of(p, key, &at);
  if (!top && !(top = px_top_new(p, key, at))) return;
  px_node *x = walk(top, tokens, len, &m);
  p->clock++;
  if (m < len) {
    px_node *end = cost(p, m, len) <= p->budget ? grow_path(p, x, m, seq, tokens, len) : NULL;
    if (!end) {
      px_drop_empty_top(p, top);
      return;
    }
    x = end;
  }
  touch_path(p, x);
  if (!p->exact) {
    keep_checkpoints(p, x, m, seq, len);
    px_trim(p, x);
  }
  while (px_total_bytes(p) > p->budget && mtx_prefix_evict(p)) {}
}

// The place on the path to x, at most m tokens long, from which a sequence goes on.
static px_checkpoint *last_checkpoint(const mtx_prefix *p, const px_node *x, int64_t m, int64_t *n) {
  for (; x->parent; x = x->parent)
    for (size_t i = x->n_at; i-- > 0;) {
      *n = x->at[i]->n < m ? x->at[i]->n : m;
      if (px_covers(p, x->at[i], *n)) return x->at[i];
    }
  *n = 0;
  return NULL;
}

// Pages of the first n tokens on the path to x and of c, in one array per group; false without memory.
static bool gather(const mtx_prefix *p, const px_node *x, const px_checkpoint *c, int64_t n, uint8_t **list[]) {
  bool ok = true;
  for (int g = 0; g < p->layout->n_groups; g++) {
    int64_t top = px_pages_of(n);
    ok &= (list[g] = calloc((size_t)top, sizeof *list[g])) != NULL;
    if (!list[g]) continue;
    if (px_has_window(p, g)) {
      for (int64_t i = c->first[g]; i < top; i++) list[g][i] = c->page[g][i - c->first[g]];
      continue;
    }
    for (const px_node *y = x; y->parent; y = y->parent) {
      int64_t first = y->start / P;
      for (int64_t i = first; i < top; i++) list[g][i] = y->page[g][i - first];
      if (first < top) top = first;
    }
  }
  return ok;
}

// Where on the tree the longest known part of tokens[0..n) ends (NULL: nothing is known), and its checkpoint.
static px_node *find(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n, int64_t *kept, px_checkpoint **c) {
  size_t at;
  px_node *top = px_top_of(p, key, &at);
  *c = NULL;
  *kept = 0;
  if (!top) return NULL;
  px_node *x = walk(top, tokens, n, kept);
  if (p->exact) return *kept ? x : NULL;
  *c = last_checkpoint(p, x, *kept, kept);
  return *c ? (*c)->node : NULL;
}

int64_t mtx_prefix_known(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n) {
  px_checkpoint *c;
  int64_t kept;
  find(p, key, tokens, n, &kept, &c);
  return kept;
}

// The newest states on the path to c, so that seq can be cut there.
static void add_snapshots(mtx_prefix *p, int seq, const px_checkpoint *c) {
  mtx_snapshot *s[MTX_MAX_SNAPSHOTS];
  int n = 0, most = mtx_state_max_snapshots(p->layout->state_bytes);
  for (const px_node *x = c->node; x->parent && n < most; x = x->parent)
    for (size_t i = x->n_at; i-- > 0 && n < most;)
      if (x->at[i]->n <= c->n) s[n++] = x->at[i]->state;
  while (n) mtx_kv_seq_add_snapshot(p->kv, seq, s[--n]);
}

static mtx_code copy(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n, bool used, int *seq, int64_t *kept, mtx_err *err) {
  px_checkpoint *c;
  px_node *x = find(p, key, tokens, n, kept, &c);
  if (!x) return mtx_kv_seq_new(p->kv, seq, err);
  uint8_t **list[MTX_KV_MAX_GROUPS] = {0};
  mtx_code rc = gather(p, x, c, *kept, list) ? mtx_kv_seq_build(p->kv, *kept, (uint8_t *const *const *)list, c ? c->state : NULL, seq, err)
                                             : mtx_fail(err, MTX_ENOMEM, "no memory for a table of pages");
  for (int g = 0; g < p->layout->n_groups; g++) free(list[g]);
  if (rc) return rc;
  if (used) {
    p->clock++;
    touch_path(p, x);
    if (c) px_touch(&c->link, &p->checkpoints, p->clock);
  }
  if (c && c->state) add_snapshots(p, *seq, c);
  return MTX_OK;
}

mtx_code mtx_prefix_take(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n, int *seq, int64_t *kept, mtx_err *err) {
  return copy(p, key, tokens, n, true, seq, kept, err);
}

mtx_code mtx_prefix_copy(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n, int *seq, int64_t *kept, mtx_err *err) {
  return copy(p, key, tokens, n, false, seq, kept, err);
}

void mtx_prefix_each(mtx_prefix *p, bool (*visit)(void *ctx, const char *key, const int32_t *tokens, int64_t n), void *ctx) {
  bool on = true;
  for (px_link *l = p->nodes.older; l != &p->nodes && on; l = l->older) {
    px_node *x = (px_node *)l;
    if (x->n_child) continue;
    int32_t *tokens = malloc((size_t)px_end_of(x) * sizeof *tokens);
    if (!tokens) continue;
    const px_node *y = x;
    for (; y->parent; y = y->parent) memcpy(tokens + y->start, y->tokens, (size_t)y->n * sizeof *tokens);
    on = visit(ctx, ((const px_root *)((const char *)y - offsetof(px_root, top)))->key, tokens, px_end_of(x));
    free(tokens);
  }
}

int64_t mtx_prefix_forget(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n) {
  size_t at;
  int64_t m = 0;
  px_node *top = px_top_of(p, key, &at);
  if (!top) return 0;
  px_node *x = walk(top, tokens, n, &m);
  while (x->parent && !x->n_child) {
    px_node *up = x->parent;
    px_drop_leaf(p, x);
    x = up;
  }
  px_drop_empty_top(p, top);
  return m;
}

bool mtx_prefix_evict(mtx_prefix *p) {
  px_node *leaf = (px_node *)px_oldest(&p->nodes);
  px_checkpoint *c = (px_checkpoint *)px_oldest(&p->checkpoints);
  if (!leaf) return false;
  if (c && c->link.used <= leaf->link.used) {
    px_node *x = c->node;
    px_checkpoint_drop(p, c);
    px_trim(p, x);
  } else {
    px_node *up = leaf->parent;
    px_drop_leaf(p, leaf);
    px_trim(p, up);
  }
  return true;
}

// ---- life ---------------------------------------------------------------------------------

mtx_code mtx_prefix_open(mtx_prefix **out, mtx_kv *kv, uint64_t budget_bytes, mtx_err *err) {
  mtx_prefix *p = *out = calloc(1, sizeof *p);
  if (!p) return mtx_fail(err, MTX_ENOMEM, "no memory for a prefix index");
  p->kv = kv;
  p->layout = mtx_kv_get_layout(kv);
  p->budget = budget_bytes;
  p->exact = p->layout->state_bytes == 0;
  for (int g = 0; g < p->layout->n_groups; g++) p->exact &= !px_has_window(p, g);
  px_ring_init(&p->nodes);
  px_ring_init(&p->checkpoints);
  return MTX_OK;
}

void mtx_prefix_close(mtx_prefix *p) {
  if (!p) return;
  while (mtx_prefix_evict(p)) {}
  free(p->roots);
  free(p);
}

bool mtx_prefix_wants_checkpoints(const mtx_prefix *p) { return !p->exact && p->budget > 0; }

mtx_prefix_stats mtx_prefix_get_stats(const mtx_prefix *p) { return (mtx_prefix_stats){p->n_nodes, p->n_checkpoints, px_total_bytes(p)}; }
