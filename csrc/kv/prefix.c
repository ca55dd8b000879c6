// SPDX-License-Identifier: MIT
// Prefix index: see prefix.h.
//
// A node is an edge of the tree: tokens [start, start + n) of every sequence that
// runs through it, and the pages they lie in. Where an edge begins inside a page,
// both neighbours hold a page of that number; the lower one's is a copy with the
// same beginning, so on a path the deepest node's page counts.
// Nodes and checkpoints stand in one ring each, newest first. A node is never older
// than its children (a path is touched from its end upwards), so the oldest node is
// always a leaf, and every walk over all nodes is a loop.
#include "kv/prefix.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "kv/state.h"

enum { P = MTX_PAGE_TOKENS };

typedef struct link { struct link *newer, *older; uint64_t used; } link;

typedef struct node node;

// Where a sequence of n tokens can go on, beside the pages on its path.
typedef struct checkpoint {
  link link;
  node *node;                         // start < n <= start + node->n
  int64_t n;
  int64_t first[MTX_KV_MAX_GROUPS];   // window groups: page[g][i] holds tokens of page first[g] + i
  uint8_t **page[MTX_KV_MAX_GROUPS];
  mtx_snapshot *state;                // or NULL
} checkpoint;

struct node {
  link link;
  node *parent;                       // NULL: the root of a key, which has no tokens
  int64_t start, n;
  int32_t *tokens;                    // [n]
  uint8_t **page[MTX_KV_MAX_GROUPS];  // groups without a window: pages from number start / P on
  node **child; size_t n_child, cap_child;       // ascending by first token
  checkpoint **at; size_t n_at, cap_at;          // ascending by n
};

typedef struct { char *key; node top; } root;

struct mtx_prefix {
  mtx_kv *kv;
  const mtx_kv_layout *layout;
  bool exact;                         // a sequence can be cut anywhere: no checkpoints
  root **roots; size_t n_roots, cap_roots;       // ascending by key
  link nodes, checkpoints;            // rings
  int64_t n_nodes, n_checkpoints;
  uint64_t budget, own_bytes, clock;  // own_bytes: all but held pages
};

static int64_t end_of(const node *x) { return x->start + x->n; }
static int64_t pages_of(int64_t n_tokens) { return (n_tokens + P - 1) / P; }
static int64_t n_pages(const node *x) { return pages_of(end_of(x)) - x->start / P; }
static bool has_window(const mtx_prefix *p, int g) { return p->layout->window[g] > 0; }
static uint64_t total_bytes(const mtx_prefix *p) { return p->own_bytes + mtx_kv_held_bytes(p->kv); }

// ---- rings ------------------------------------------------------------------------

static void ring_init(link *ring) { ring->newer = ring->older = ring; }

static void ring_remove(link *l) {
  l->newer->older = l->older;
  l->older->newer = l->newer;
}

// `l` becomes the next older of `than` (the ring itself: the newest of all).
static void ring_insert(link *l, link *than) {
  l->older = than->older;
  l->newer = than;
  than->older->newer = l;
  than->older = l;
}

static link *oldest(const link *ring) { return ring->newer == ring ? NULL : ring->newer; }

static void touch(link *l, link *ring, uint64_t now) {
  ring_remove(l);
  ring_insert(l, ring);
  l->used = now;
}

static void touch_path(mtx_prefix *p, node *x) {
  for (; x->parent; x = x->parent) touch(&x->link, &p->nodes, p->clock);
}

// ---- checkpoints ----------------------------------------------------------------------

static uint64_t checkpoint_bytes(const mtx_prefix *p, const checkpoint *c) {
  uint64_t n = sizeof *c + (c->state ? p->layout->state_bytes : 0);
  for (int g = 0; g < p->layout->n_groups; g++)
    if (has_window(p, g)) n += (uint64_t)(pages_of(c->n) - c->first[g]) * sizeof(uint8_t *);
  return n;
}

// Can a sequence of n tokens go on from c?
static bool covers(const mtx_prefix *p, const checkpoint *c, int64_t n) {
  if (n > c->n || (c->state && n != c->n)) return false;
  for (int g = 0; g < p->layout->n_groups; g++)
    if (has_window(p, g) && mtx_kv_window_start(p->layout, g, n) < c->first[g] * P) return false;
  return true;
}

static void checkpoint_free(mtx_prefix *p, checkpoint *c) {
  for (int g = 0; g < p->layout->n_groups; g++) {
    for (int64_t i = 0; c->page[g] && i < pages_of(c->n) - c->first[g]; i++) mtx_kv_release(p->kv, g, c->page[g][i]);
    free(c->page[g]);
  }
  if (c->state) mtx_snapshot_unref(c->state);
  free(c);
}

// A checkpoint at n whose window pages stand in pages[g][number - from[g]], NULL where there are none.
static checkpoint *checkpoint_new(mtx_prefix *p, int64_t n, uint8_t *const *const *pages, const int64_t *from, mtx_snapshot *state) {
  checkpoint *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->n = n;
  for (int g = 0; g < p->layout->n_groups; g++) {
    if (!has_window(p, g)) continue;
    int64_t end = pages_of(n), first = end;
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

static bool is_covered(const mtx_prefix *p, const node *x, int64_t n) {
  for (size_t i = 0; i < x->n_at; i++)
    if (covers(p, x->at[i], n)) return true;
  return false;
}

// Takes c over.
static void checkpoint_add(mtx_prefix *p, node *x, checkpoint *c) {
  if (!c) return;
  size_t before = x->cap_at;
  if (!covers(p, c, c->n) || mtx_grow(&x->at, &x->cap_at, x->n_at + 1, sizeof *x->at, NULL)) {
    checkpoint_free(p, c);
    return;
  }
  size_t i = x->n_at++;
  for (; i > 0 && x->at[i - 1]->n > c->n; i--) x->at[i] = x->at[i - 1];
  x->at[i] = c;
  c->node = x;
  c->link.used = p->clock;
  ring_insert(&c->link, &p->checkpoints);
  p->n_checkpoints++;
  p->own_bytes += checkpoint_bytes(p, c) + (x->cap_at - before) * sizeof *x->at;
}

static void checkpoint_drop(mtx_prefix *p, checkpoint *c) {
  node *x = c->node;
  size_t i = 0;
  while (x->at[i] != c) i++;
  memmove(x->at + i, x->at + i + 1, (--x->n_at - i) * sizeof *x->at);
  ring_remove(&c->link);
  p->n_checkpoints--;
  p->own_bytes -= checkpoint_bytes(p, c);
  checkpoint_free(p, c);
}

// ---- nodes ----------------------------------------------------------------------------

static uint64_t node_bytes(const mtx_prefix *p, const node *x) {
  uint64_t n = sizeof *x + (uint64_t)x->n * sizeof *x->tokens + x->cap_child * sizeof *x->child + x->cap_at * sizeof *x->at;
  for (int g = 0; g < p->layout->n_groups; g++)
    if (x->page[g]) n += (uint64_t)n_pages(x) * sizeof *x->page[g];
  return n;
}

// Where a child that begins with `token` stands or would stand.
static size_t child_index(const node *x, int32_t token) {
  size_t lo = 0, hi = x->n_child;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (x->child[mid]->tokens[0] < token) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

static node *child_of(const node *x, int32_t token) {
  size_t i = child_index(x, token);
  return i < x->n_child && x->child[i]->tokens[0] == token ? x->child[i] : NULL;
}

// Room for one more child of x.
static bool child_room(mtx_prefix *p, node *x) {
  size_t before = x->cap_child;
  if (mtx_grow(&x->child, &x->cap_child, x->n_child + 1, sizeof *x->child, NULL)) return false;
  p->own_bytes += (x->cap_child - before) * sizeof *x->child;
  return true;
}

static void child_insert(node *x, node *c) {  // there is room
  size_t i = child_index(x, c->tokens[0]);
  memmove(x->child + i + 1, x->child + i, (x->n_child++ - i) * sizeof *x->child);
  x->child[i] = c;
  c->parent = x;
}

static void node_free(mtx_prefix *p, node *x) {
  for (int g = 0; g < p->layout->n_groups; g++) free(x->page[g]);
  free(x->tokens);
  free(x->child);
  free(x->at);
  free(x);
}

// An unlinked node without pages filled in; NULL without memory.
static node *node_new(mtx_prefix *p, int64_t start, const int32_t *tokens, int64_t n) {
  node *x = calloc(1, sizeof *x);
  if (!x) return NULL;
  x->start = start;
  x->n = n;
  bool ok = (x->tokens = malloc((size_t)n * sizeof *tokens));
  for (int g = 0; g < p->layout->n_groups && ok; g++)
    if (!has_window(p, g)) ok = (x->page[g] = malloc((size_t)n_pages(x) * sizeof *x->page[g]));
  if (!ok) {
    node_free(p, x);
    return NULL;
  }
  memcpy(x->tokens, tokens, (size_t)n * sizeof *tokens);
  return x;
}

static void node_link(mtx_prefix *p, node *x, link *newer, uint64_t used) {
  ring_insert(&x->link, newer);
  x->link.used = used;
  p->n_nodes++;
  p->own_bytes += node_bytes(p, x);
}

// Releases pages from number `i` on.
static void release_pages(mtx_prefix *p, node *x, int64_t i) {
  for (int g = 0; g < p->layout->n_groups; g++)
    for (int64_t k = i - x->start / P; x->page[g] && k < n_pages(x); k++) mtx_kv_release(p->kv, g, x->page[g][k]);
}

static node *top_of(mtx_prefix *p, const char *key, size_t *at) {
  size_t lo = 0, hi = p->n_roots;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (strcmp(p->roots[mid]->key, key) < 0) lo = mid + 1;
    else hi = mid;
  }
  *at = lo;
  return lo < p->n_roots && !strcmp(p->roots[lo]->key, key) ? &p->roots[lo]->top : NULL;
}

static uint64_t root_bytes(const root *r) { return sizeof *r + strlen(r->key) + 1 + r->top.cap_child * sizeof *r->top.child; }

static node *top_new(mtx_prefix *p, const char *key, size_t at) {
  root *r = calloc(1, sizeof *r);
  if (r) r->key = strdup(key);
  if (!r || !r->key || mtx_grow(&p->roots, &p->cap_roots, p->n_roots + 1, sizeof *p->roots, NULL)) {
    if (r) free(r->key);
    free(r);
    return NULL;
  }
  memmove(p->roots + at + 1, p->roots + at, (p->n_roots++ - at) * sizeof *p->roots);
  p->roots[at] = r;
  p->own_bytes += root_bytes(r);
  return &r->top;
}

static void drop_empty_top(mtx_prefix *p, const node *top) {
  size_t i = 0;
  if (top->n_child) return;
  while (&p->roots[i]->top != top) i++;
  root *r = p->roots[i];
  p->own_bytes -= root_bytes(r);
  free(r->key);
  free(r->top.child);
  free(r);
  memmove(p->roots + i, p->roots + i + 1, (--p->n_roots - i) * sizeof *p->roots);
}

// Removes a leaf; its parent may become one.
static void drop_leaf(mtx_prefix *p, node *x) {
  while (x->n_at) checkpoint_drop(p, x->at[x->n_at - 1]);
  node *up = x->parent;
  size_t i = child_index(up, x->tokens[0]);
  memmove(up->child + i, up->child + i + 1, (--up->n_child - i) * sizeof *up->child);
  ring_remove(&x->link);
  p->n_nodes--;
  p->own_bytes -= node_bytes(p, x);
  release_pages(p, x, x->start / P);
  node_free(p, x);
}

// What hangs behind the last checkpoint of a leaf helps nobody; neither does a key without nodes.
static void trim(mtx_prefix *p, node *x) {
  while (x->parent && !x->n_child && !p->exact) {
    int64_t last = x->n_at ? x->at[x->n_at - 1]->n : x->start;
    if (last > x->start) {
      p->own_bytes -= node_bytes(p, x);
      release_pages(p, x, pages_of(last));
      x->n = last - x->start;
      p->own_bytes += node_bytes(p, x);
      return;
    }
    node *up = x->parent;
    drop_leaf(p, x);
    x = up;
  }
  if (!x->parent) drop_empty_top(p, x);
}

// The edge of x ends after k of its tokens, 0 < k < x->n; the rest becomes its child.
// Returns the upper part, NULL without memory.
static node *split(mtx_prefix *p, node *x, int64_t k) {
  node *up = node_new(p, x->start, x->tokens, k);
  if (!up) return NULL;
  if (mtx_grow(&up->child, &up->cap_child, 2, sizeof *up->child, NULL) || mtx_grow(&up->at, &up->cap_at, x->n_at + 1, sizeof *up->at, NULL)) {
    node_free(p, up);
    return NULL;
  }
  int64_t border = end_of(up);
  for (int g = 0; g < p->layout->n_groups; g++)
    for (int64_t i = 0; up->page[g] && i < n_pages(up); i++) mtx_kv_hold(p->kv, g, up->page[g][i] = x->page[g][i]);
  p->own_bytes -= node_bytes(p, x);
  int64_t gone = border / P - x->start / P;
  for (int g = 0; g < p->layout->n_groups; g++) {
    if (!x->page[g]) continue;
    for (int64_t i = 0; i < gone; i++) mtx_kv_release(p->kv, g, x->page[g][i]);
    memmove(x->page[g], x->page[g] + gone, (size_t)(n_pages(x) - gone) * sizeof *x->page[g]);
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
  p->own_bytes += node_bytes(p, x);
  child_insert(up, x);
  node_link(p, up, x->link.newer, x->link.used);
  // A window's pages that reach back over the border serve the upper part as well.
  for (size_t i = 0; i < x->n_at && !is_covered(p, up, border); i++)
    if (covers(p, x->at[i], border))
      checkpoint_add(p, up, checkpoint_new(p, border, (uint8_t *const *const *)x->at[i]->page, x->at[i]->first, NULL));
  return up;
}

// The leaf x, whose end seq shares, takes over the rest of seq's tokens.
static bool extend(mtx_prefix *p, node *x, int seq, const int32_t *tokens, int64_t len) {
  int64_t end = end_of(x), first = x->start / P, n_old = n_pages(x), n_new = pages_of(len) - first;
  int32_t *t = realloc(x->tokens, (size_t)(len - x->start) * sizeof *t);
  if (!t) return false;
  x->tokens = t;
  for (int g = 0; g < p->layout->n_groups; g++) {
    if (!x->page[g]) continue;
    uint8_t **page = realloc(x->page[g], (size_t)n_new * sizeof *page);
    if (!page) return false;
    x->page[g] = page;
  }
  p->own_bytes -= node_bytes(p, x);
  for (int g = 0; g < p->layout->n_groups; g++) {
    uint8_t *const *from = mtx_kv_seq_pages(p->kv, seq, g);
    for (int64_t i = end / P; x->page[g] && i < pages_of(len); i++) {  // a page that was partly filled is replaced
      mtx_kv_hold(p->kv, g, from[i]);
      if (i - first < n_old) mtx_kv_release(p->kv, g, x->page[g][i - first]);
      x->page[g][i - first] = from[i];
    }
  }
  memcpy(t + x->n, tokens + end, (size_t)(len - end) * sizeof *t);
  x->n = len - x->start;
  p->own_bytes += node_bytes(p, x);
  return true;
}

// ---- the tree ---------------------------------------------------------------------------

// Follows tokens from the top: the last node of which at least one token matches, or the top.
static node *walk(node *top, const int32_t *tokens, int64_t n, int64_t *matched) {
  node *x = top, *c;
  int64_t at = 0;
  while (at < n && (c = child_of(x, tokens[at]))) {
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
static node *grow_path(mtx_prefix *p, node *x, int64_t m, int seq, const int32_t *tokens, int64_t len) {
  if (m < end_of(x) && !(x = split(p, x, m - x->start))) return NULL;
  if (x->parent && !x->n_child) return extend(p, x, seq, tokens, len) ? x : NULL;
  node *leaf = child_room(p, x) ? node_new(p, m, tokens + m, len - m) : NULL;
  if (!leaf) return NULL;
  for (int g = 0; g < p->layout->n_groups; g++) {
    uint8_t *const *from = mtx_kv_seq_pages(p->kv, seq, g);
    for (int64_t i = 0; leaf->page[g] && i < n_pages(leaf); i++) mtx_kv_hold(p->kv, g, leaf->page[g][i] = from[m / P + i]);
  }
  child_insert(x, leaf);
  node_link(p, leaf, &p->nodes, p->clock);
  return leaf;
}

// Checkpoints that seq can give at tokens (m, len].
static void keep_checkpoints(mtx_prefix *p, node *x, int64_t m, int seq, int64_t len) {
  static const int64_t from_zero[MTX_KV_MAX_GROUPS];
  uint8_t *const *pages[MTX_KV_MAX_GROUPS];
  for (int g = 0; g < p->layout->n_groups; g++) pages[g] = mtx_kv_seq_pages(p->kv, seq, g);
  if (!p->layout->state_bytes) {
    if (!is_covered(p, x, len)) checkpoint_add(p, x, checkpoint_new(p, len, pages, from_zero, NULL));
    return;
  }
  mtx_kv_seq_keep(p->kv, seq);
  int n;
  mtx_snapshot *const *s = mtx_kv_seq_snapshots(p->kv, seq, &n);
  for (int i = 0; i < n; i++)
    if ((s[i]->n_tokens > m || s[i]->n_tokens == len) && !is_covered(p, x, s[i]->n_tokens))
      checkpoint_add(p, x, checkpoint_new(p, s[i]->n_tokens, pages, from_zero, s[i]));
}

// Bytes that tokens [m, len) would add at most.
static uint64_t cost(const mtx_prefix *p, int64_t m, int64_t len) {
  uint64_t n = sizeof(node) + sizeof(checkpoint) + (uint64_t)(len - m) * sizeof(int32_t) + p->layout->state_bytes;
  for (int g = 0; g < p->layout->n_groups; g++) {
    int64_t seen = len - (has_window(p, g) ? mtx_kv_window_start(p->layout, g, len) : m);
    n += (uint64_t)pages_of(seen + P - 1) * (p->layout->page_bytes[g] + sizeof(uint8_t *));
  }
  return n;
}

void mtx_prefix_put(mtx_prefix *p, const char *key, int seq, const int32_t *tokens) {
  int64_t len = mtx_kv_seq_len(p->kv, seq), m;
  size_t at;
  if (!len || !p->budget) return;
  node *top = top_of(p, key, &at);
  if (!top && !(top = top_new(p, key, at))) return;
  node *x = walk(top, tokens, len, &m);
  p->clock++;
  if (m < len) {
    node *end = cost(p, m, len) <= p->budget ? grow_path(p, x, m, seq, tokens, len) : NULL;
    if (!end) {
      drop_empty_top(p, top);
      return;
    }
    x = end;
  }
  touch_path(p, x);
  if (!p->exact) {
    keep_checkpoints(p, x, m, seq, len);
    trim(p, x);
  }
  while (total_bytes(p) > p->budget && mtx_prefix_evict(p)) {}
}

// The place on the path to x, at most m tokens long, from which a sequence goes on.
static checkpoint *last_checkpoint(const mtx_prefix *p, const node *x, int64_t m, int64_t *n) {
  for (; x->parent; x = x->parent)
    for (size_t i = x->n_at; i-- > 0;) {
      *n = x->at[i]->n < m ? x->at[i]->n : m;
      if (covers(p, x->at[i], *n)) return x->at[i];
    }
  *n = 0;
  return NULL;
}

// Pages of the first n tokens on the path to x and of c, in one array per group; false without memory.
static bool gather(const mtx_prefix *p, const node *x, const checkpoint *c, int64_t n, uint8_t **list[]) {
  bool ok = true;
  for (int g = 0; g < p->layout->n_groups; g++) {
    int64_t top = pages_of(n);
    ok &= (list[g] = calloc((size_t)top, sizeof *list[g])) != NULL;
    if (!list[g]) continue;
    if (has_window(p, g)) {
      for (int64_t i = c->first[g]; i < top; i++) list[g][i] = c->page[g][i - c->first[g]];
      continue;
    }
    for (const node *y = x; y->parent; y = y->parent) {
      int64_t first = y->start / P;
      for (int64_t i = first; i < top; i++) list[g][i] = y->page[g][i - first];
      if (first < top) top = first;
    }
  }
  return ok;
}

// Where on the tree the longest known part of tokens[0..n) ends (NULL: nothing is known), and its checkpoint.
static node *find(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n, int64_t *kept, checkpoint **c) {
  size_t at;
  node *top = top_of(p, key, &at);
  *c = NULL;
  *kept = 0;
  if (!top) return NULL;
  node *x = walk(top, tokens, n, kept);
  if (p->exact) return *kept ? x : NULL;
  *c = last_checkpoint(p, x, *kept, kept);
  return *c ? (*c)->node : NULL;
}

int64_t mtx_prefix_known(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n) {
  checkpoint *c;
  int64_t kept;
  find(p, key, tokens, n, &kept, &c);
  return kept;
}

// The newest states on the path to c, so that seq can be cut there.
static void add_snapshots(mtx_prefix *p, int seq, const checkpoint *c) {
  mtx_snapshot *s[MTX_MAX_SNAPSHOTS];
  int n = 0, most = mtx_state_max_snapshots(p->layout->state_bytes);
  for (const node *x = c->node; x->parent && n < most; x = x->parent)
    for (size_t i = x->n_at; i-- > 0 && n < most;)
      if (x->at[i]->n <= c->n) s[n++] = x->at[i]->state;
  while (n) mtx_kv_seq_add_snapshot(p->kv, seq, s[--n]);
}

mtx_code mtx_prefix_take(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n, int *seq, int64_t *kept, mtx_err *err) {
  checkpoint *c;
  node *x = find(p, key, tokens, n, kept, &c);
  if (!x) return mtx_kv_seq_new(p->kv, seq, err);
  uint8_t **list[MTX_KV_MAX_GROUPS] = {0};
  mtx_code rc = gather(p, x, c, *kept, list) ? mtx_kv_seq_build(p->kv, *kept, (uint8_t *const *const *)list, c ? c->state : NULL, seq, err)
                                             : mtx_fail(err, MTX_ENOMEM, "no memory for a table of pages");
  for (int g = 0; g < p->layout->n_groups; g++) free(list[g]);
  if (rc) return rc;
  p->clock++;
  touch_path(p, x);
  if (c) touch(&c->link, &p->checkpoints, p->clock);
  if (c && c->state) add_snapshots(p, *seq, c);
  return MTX_OK;
}

void mtx_prefix_each(mtx_prefix *p, bool (*visit)(void *ctx, const char *key, const int32_t *tokens, int64_t n), void *ctx) {
  bool on = true;
  for (link *l = p->nodes.older, *next; l != &p->nodes && on; l = next) {
    node *x = (node *)l;
    next = l->older;  // a take of x moves x and what stands above it, which is newer
    if (x->n_child) continue;
    int32_t *tokens = malloc((size_t)end_of(x) * sizeof *tokens);
    if (!tokens) continue;
    const node *y = x;
    for (; y->parent; y = y->parent) memcpy(tokens + y->start, y->tokens, (size_t)y->n * sizeof *tokens);
    on = visit(ctx, ((const root *)((const char *)y - offsetof(root, top)))->key, tokens, end_of(x));
    free(tokens);
  }
}

int64_t mtx_prefix_forget(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n) {
  size_t at;
  int64_t m = 0;
  node *top = top_of(p, key, &at);
  if (!top) return 0;
  node *x = walk(top, tokens, n, &m);
  while (x->parent && !x->n_child) {
    node *up = x->parent;
    drop_leaf(p, x);
    x = up;
  }
  drop_empty_top(p, top);
  return m;
}

bool mtx_prefix_evict(mtx_prefix *p) {
  node *leaf = (node *)oldest(&p->nodes);
  checkpoint *c = (checkpoint *)oldest(&p->checkpoints);
  if (!leaf) return false;
  if (c && c->link.used <= leaf->link.used) {
    node *x = c->node;
    checkpoint_drop(p, c);
    trim(p, x);
  } else {
    node *up = leaf->parent;
    drop_leaf(p, leaf);
    trim(p, up);
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
  for (int g = 0; g < p->layout->n_groups; g++) p->exact &= !has_window(p, g);
  ring_init(&p->nodes);
  ring_init(&p->checkpoints);
  return MTX_OK;
}

void mtx_prefix_close(mtx_prefix *p) {
  if (!p) return;
  while (mtx_prefix_evict(p)) {}
  free(p->roots);
  free(p);
}

bool mtx_prefix_wants_checkpoints(const mtx_prefix *p) { return !p->exact && p->budget > 0; }

mtx_prefix_stats mtx_prefix_get_stats(const mtx_prefix *p) { return (mtx_prefix_stats){p->n_nodes, p->n_checkpoints, total_bytes(p)}; }

static bool check_node(const mtx_prefix *p, const node *x, uint64_t *bytes, int64_t *holds, int64_t *n_checkpoints) {
  *bytes += node_bytes(p, x);
  *n_checkpoints += (int64_t)x->n_at;
  if (x->n <= 0 || x->start != end_of(x->parent) || child_of(x->parent, x->tokens[0]) != x) return false;
  if (x->parent->parent && x->parent->link.used < x->link.used) return false;
  if (!x->n_child && !p->exact && (!x->n_at || x->at[x->n_at - 1]->n != end_of(x))) return false;
  for (int g = 0; g < p->layout->n_groups; g++)
    if (x->page[g]) *holds += n_pages(x);
  for (size_t i = 0; i < x->n_at; i++) {
    const checkpoint *c = x->at[i];
    if (c->node != x || c->n <= (i ? x->at[i - 1]->n : x->start) || c->n > end_of(x) || !covers(p, c, c->n)) return false;
    *bytes += checkpoint_bytes(p, c);
    for (int g = 0; g < p->layout->n_groups; g++)
      if (c->page[g]) *holds += pages_of(c->n) - c->first[g];
  }
  return true;
}

bool mtx_prefix_check(const mtx_prefix *p) {
  uint64_t bytes = 0;
  int64_t holds = 0, n_nodes = 0, n_checkpoints = 0;
  for (size_t i = 0; i < p->n_roots; i++) {
    bytes += root_bytes(p->roots[i]);
    if (!p->roots[i]->top.n_child || (i && strcmp(p->roots[i - 1]->key, p->roots[i]->key) >= 0)) return false;
  }
  for (const link *l = p->nodes.older; l != &p->nodes; l = l->older, n_nodes++)
    if (!check_node(p, (const node *)l, &bytes, &holds, &n_checkpoints)) return false;
  return n_nodes == p->n_nodes && n_checkpoints == p->n_checkpoints && bytes == p->own_bytes && holds == mtx_kv_n_holds(p->kv) &&
         (total_bytes(p) <= p->budget || !p->n_nodes);
}
