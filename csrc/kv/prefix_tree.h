// SPDX-License-Identifier: MIT
// The tree of the prefix index, for the prefix*.c files.
//
// A node is an edge of the tree: tokens [start, start + n) of every sequence that
// runs through it, and the pages they lie in. Where an edge begins inside a page,
// both neighbours hold a page of that number; the lower one's is a copy with the
// same beginning, so on a path the deepest node's page counts.
// Nodes and checkpoints stand in one ring each, newest first. A node is never older
// than its children (a path is touched from its end upwards), so the oldest node is
// always a leaf, and every walk over all nodes is a loop.
#ifndef MTX_KV_PREFIX_TREE_H
#define MTX_KV_PREFIX_TREE_H

#include "kv/prefix.h"
#include "kv/state.h"

enum { P = MTX_PAGE_TOKENS };

typedef struct px_link { struct px_link *newer, *older; uint64_t used; } px_link;

typedef struct px_node px_node;

// Where a sequence of n tokens can go on, beside the pages on its path.
typedef struct px_checkpoint {
  px_link link;
  px_node *node;  // start < n <= start + node->n
  int64_t n;
  int64_t first[MTX_KV_MAX_GROUPS];  // window groups: page[g][i] holds tokens of page first[g] + i
  uint8_t **page[MTX_KV_MAX_GROUPS];
  mtx_snapshot *state;  // or NULL
} px_checkpoint;

struct px_node {
  px_link link;
  px_node *parent;  // NULL: the root of a key, which has no tokens
  int64_t start, n;
  int32_t *tokens;  // [n]
  uint8_t **page[MTX_KV_MAX_GROUPS];  // groups without a window: pages from number start / P on
  px_node **child; size_t n_child, cap_child;  // ascending by first token
  px_checkpoint **at; size_t n_at, cap_at;  // ascending by n
};

typedef struct { char *key; px_node top; } px_root;

struct mtx_prefix {
  mtx_kv *kv;
  const mtx_kv_layout *layout;
  bool exact;  // a sequence can be cut anywhere: no checkpoints
  px_root **roots; size_t n_roots, cap_roots;  // ascending by key
  px_link nodes, checkpoints;  // rings
  int64_t n_nodes, n_checkpoints;
  uint64_t budget, own_bytes, clock;  // own_bytes: all but held pages
};

static inline int64_t px_end_of(const px_node *x) { return x->start + x->n; }
static inline int64_t px_pages_of(int64_t n_tokens) { return (n_tokens + P - 1) / P; }
static inline int64_t px_n_pages(const px_node *x) { return px_pages_of(px_end_of(x)) - x->start / P; }
static inline bool px_has_window(const mtx_prefix *p, int g) { return p->layout->window[g] > 0; }
static inline uint64_t px_total_bytes(const mtx_prefix *p) { return p->own_bytes + mtx_kv_held_bytes(p->kv); }

// ---- rings ------------------------------------------------------------------------

static inline void px_ring_init(px_link *ring) { ring->newer = ring->older = ring; }

static inline void px_ring_remove(px_link *l) {
  l->newer->older = l->older;
  l->older->newer = l->newer;
}

// `l` becomes the next older of `than` (the ring itself: the newest of all).
static inline void px_ring_insert(px_link *l, px_link *than) {
  l->older = than->older;
  l->newer = than;
  than->older->newer = l;
  than->older = l;
}

static inline px_link *px_oldest(const px_link *ring) { return ring->newer == ring ? NULL : ring->newer; }

static inline void px_touch(px_link *l, px_link *ring, uint64_t now) {
  px_ring_remove(l);
  px_ring_insert(l, ring);
  l->used = now;
}

// ---- prefix_checkpoint.c --------------------------------------------------------------

uint64_t px_checkpoint_bytes(const mtx_prefix *p, const px_checkpoint *c);
// Can a sequence of n tokens go on from c?
bool px_covers(const mtx_prefix *p, const px_checkpoint *c, int64_t n);
bool px_is_covered(const mtx_prefix *p, const px_node *x, int64_t n);  // by one of the checkpoints in x
// A checkpoint at n whose window pages stand in pages[g][number - from[g]], NULL where there are none.
px_checkpoint *px_checkpoint_new(mtx_prefix *p, int64_t n, uint8_t *const *const *pages, const int64_t *from, mtx_snapshot *state);
void px_checkpoint_add(mtx_prefix *p, px_node *x, px_checkpoint *c);  // takes c
void px_checkpoint_drop(mtx_prefix *p, px_checkpoint *c);

// ---- prefix_node.c ----------------------------------------------------------------------

uint64_t px_node_bytes(const mtx_prefix *p, const px_node *x);
px_node *px_child_of(const px_node *x, int32_t token);  // the child that begins with token, or NULL
bool px_child_room(mtx_prefix *p, px_node *x);          // for one more child of x; false without memory
void px_child_insert(px_node *x, px_node *c);           // there is room
// An unlinked node without pages filled in; NULL without memory.
px_node *px_node_new(mtx_prefix *p, int64_t start, const int32_t *tokens, int64_t n);
void px_node_link(mtx_prefix *p, px_node *x, px_link *newer, uint64_t used);
// The edge of x ends after k of its tokens, 0 < k < x->n; the rest becomes its child.
// Returns the upper part, NULL without memory.
px_node *px_split(mtx_prefix *p, px_node *x, int64_t k);
// The leaf x, whose end seq shares, takes over the rest of seq's tokens; false without memory.
bool px_extend(mtx_prefix *p, px_node *x, int seq, const int32_t *tokens, int64_t len);
void px_drop_leaf(mtx_prefix *p, px_node *x);  // its parent may become one
// What hangs behind the last checkpoint of a leaf helps nobody; neither does a key without nodes.
void px_trim(mtx_prefix *p, px_node *x);

// The root of a key and its place in the list: NULL, and the place where it would stand.
px_node *px_top_of(mtx_prefix *p, const char *key, size_t *at);
px_node *px_top_new(mtx_prefix *p, const char *key, size_t at);  // NULL without memory
void px_drop_empty_top(mtx_prefix *p, const px_node *top);       // if it has no nodes
uint64_t px_root_bytes(const px_root *r);

#endif
