// SPDX-License-Identifier: MIT
// Walking a trie through one frame, and through what follows it.
#include <string.h>

#include "grammar/mask.h"

#define MAX_IDS (1u << 24)
#define WALK_FUEL 400000000ll

mtx_code mtx_mask_walk_init(mask_walk *w, const mtx_vocab_trie *t) {
  memset(w, 0, sizeof *w);
  w->at = malloc((t->trie.max_depth + 3) * sizeof *w->at);
  w->n_nodes = malloc((t->trie.max_depth + 3) * sizeof *w->n_nodes);
  if (!w->at || !w->n_nodes) {
    mtx_mask_walk_fini(w);
    return MTX_ENOMEM;
  }
  return MTX_OK;
}

void mtx_mask_walk_fini(mask_walk *w) {
  free(w->sets.v);
  free(w->at);
  free(w->n_nodes);
  free(w->ids);
  free(w->begun);
  free(w->exits);
  memset(w, 0, sizeof *w);
}

static bool leads_on(const mtx_walk_trie *t, uint32_t node, const uint64_t follow[4]) {
  for (uint32_t i = node + 1; i < t->end[node]; i = t->end[i])
    if (gr_has_byte(follow, t->byte[i])) return true;
  return false;
}

static bool note_exit(mask_walk *w, uint32_t node, uint64_t count) {
  if (!MTX_VEC_GROW(w, exits, 1, MAX_IDS)) return false;
  w->exits[w->n_exits++] = (mask_exit){node, (uint32_t)count};
  return true;
}

// Notes where the frame can end at `node`; only where some child's byte may follow it.
static bool note_exits(gr_stacks *s, const mtx_walk_trie *t, mask_walk *w, uint32_t node, const gr_cfg *set, uint32_t n,
                       const uint64_t follow[4]) {
  if (node + 1 >= t->end[node]) return true;
  const uint32_t from = w->n_exits;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t count;
    if (!gr_exits(s, set[i], &count)) continue;
    if (w->n_exits == from && !leads_on(t, node, follow)) return true;
    bool known = false;
    for (uint32_t k = from; k < w->n_exits; k++) known |= w->exits[k].count == count;
    if (!known && !note_exit(w, node, count)) return false;
  }
  return true;
}

// The tokens that end at `node`; counts is NULL or the exits' counts of tails.
static bool note_tokens(const mtx_walk_trie *t, mask_walk *w, uint32_t node, const uint32_t *counts, uint32_t begun) {
  const uint32_t from = t->tok[node], n = t->tok[node + 1] - from;
  if (!n) return true;
  if (!MTX_VEC_GROW(w, ids, n, MAX_IDS) || !MTX_VEC_GROW(w, begun, n, MAX_IDS)) return false;
  for (uint32_t k = 0; k < n; k++) {
    w->ids[w->n_ids++] = t->order[from + k];
    w->begun[w->n_begun++] = counts ? counts[from + k] : begun;
  }
  return true;
}

// ---- any frame ------------------------------------------------------------------------

// Walks the nodes below `top` from the one position w->sets.v[0]. In a frame exits
// are noted; outside (`leaving`) tokens get the counts of tails, or `begun`.
typedef struct {
  uint32_t top;
  bool leaving;
  const uint32_t *counts;
  uint32_t begun;
  const uint64_t *follow;  // [4] bytes that may come after the frame
} walk_opts;

static uint64_t least_begun(const gr_stacks *s, const gr_cfg *set, uint32_t n) {
  uint64_t least = UINT64_MAX;
  for (uint32_t k = 0; k < n; k++) {
    uint64_t b = gr_begun(s, set[k]);
    if (b < least) least = b;
  }
  return least;
}

static mtx_code walk(gr_stacks *s, const mtx_walk_trie *t, mask_walk *w, const walk_opts *o) {
  const uint32_t first = t->depth[o->top] + 1u;
  w->at[first - 1] = 0;
  w->at[first] = 1;
  w->n_nodes[first - 1] = s->n_nodes;
  for (uint32_t i = o->top + 1; i < t->end[o->top];) {
    const uint32_t depth = t->depth[i];
    uint32_t n = 0;
    if (!o->leaving || depth > first || gr_has_byte(o->follow, t->byte[i])) {
      w->sets.n_v = w->at[depth];
      if (s->n_nodes > w->n_nodes[depth - 1]) gr_stacks_truncate(s, w->n_nodes[depth - 1]);
      n = gr_step(s, &w->sets, w->at[depth - 1], w->at[depth] - w->at[depth - 1], t->byte[i]);
      if (s->status) return s->status;
    }
    if (n == 0) {
      i = t->end[i];
      continue;
    }
    w->at[depth + 1] = w->sets.n_v;
    w->n_nodes[depth] = s->n_nodes;
    const gr_cfg *set = w->sets.v + w->at[depth];
    uint32_t begun = o->begun;
    if (!o->leaving && s->free_loop && t->tok[i + 1] > t->tok[i]) begun = (uint32_t)least_begun(s, set, n);
    if (!o->leaving && !note_exits(s, t, w, i, set, n, o->follow)) return MTX_ENOMEM;
    if (!note_tokens(t, w, i, o->counts, begun)) return MTX_ENOMEM;
    i++;
  }
  return MTX_OK;
}

static mtx_code walk_any(const mtx_grammar *g, const mtx_walk_trie *t, mask_walk *w, mask_key key, const uint64_t follow[4]) {
  gr_stacks s;
  mtx_code code = gr_stacks_init(&s, g);
  if (code) return code;
  s.fuel = WALK_FUEL;
  s.free_loop = key.family >= 0;
  gr_cfg x = {key.d, GR_EXIT, key.c};
  if (s.free_loop && key.d != g->rules[key.family].start) x.parent = gr_stacks_push(&s, g->rules[key.family].start, GR_EXIT, 0);
  if (!MTX_VEC_GROW(&w->sets, v, 1, 1u << 26) || s.status) {
    code = MTX_ENOMEM;
  } else {
    w->sets.v[w->sets.n_v++] = x;
    if (!note_exits(&s, t, w, 0, w->sets.v, 1, follow)) code = MTX_ENOMEM;
    if (!code) code = walk(&s, t, w, &(walk_opts){.follow = follow});
  }
  gr_stacks_fini(&s);
  return code;
}

// ---- leaves ---------------------------------------------------------------------------------

// One state and one count per depth; the count is that of the loop at the end of
// the iteration the state is in.
static mtx_code walk_leaf(const mtx_grammar *g, const mtx_walk_trie *t, mask_walk *w, mask_key key, const uint64_t follow[4]) {
  typedef struct {
    int32_t d;
    uint32_t count;
  } place;
  const int32_t loop = key.family >= 0 ? g->rules[key.family].start : -1;
  const int32_t body = loop >= 0 ? g->rules[g->rules[key.family].body].start : -1;
  place *at = malloc((t->max_depth + 1) * sizeof *at);
  if (!at) return MTX_ENOMEM;
  at[0] = (place){key.d, 0};
  bool ok = !(loop >= 0 ? key.d == loop : g->states[key.d].accept) || !leads_on(t, 0, follow) || note_exit(w, 0, 0);
  for (uint32_t i = 1; ok && i < t->n_nodes;) {
    place x = at[t->depth[i] - 1];
    if (x.d == loop) x = (place){body, x.count + 1};
    x.d = gr_next(g, g->states + x.d, t->byte[i], 0);
    if (x.d < 0) {
      i = t->end[i];
      continue;
    }
    bool ends = g->states[x.d].accept;
    if (loop >= 0 && ends) x.d = loop;
    at[t->depth[i]] = x;
    if (ends && i + 1 < t->end[i] && leads_on(t, i, follow)) ok = note_exit(w, i, loop >= 0 ? x.count : 0);
    ok = ok && note_tokens(t, w, i, NULL, x.count);
    i++;
  }
  free(at);
  return ok ? MTX_OK : MTX_ENOMEM;
}

mtx_code mtx_mask_walk_frame(const mtx_grammar *g, const mtx_walk_trie *t, mask_walk *w, mask_key key,
                             const uint64_t follow[4]) {
  w->n_ids = w->n_begun = w->n_exits = w->sets.n_v = 0;
  return g->rules[mtx_mask_frame(g, key)].leaf ? walk_leaf(g, t, w, key, follow) : walk_any(g, t, w, key, follow);
}

mtx_code mtx_mask_leave(const mask_entry *e, gr_stacks *s, const mtx_vocab_trie *t, mask_walk *w,
                        const uint64_t follow[4], gr_cfg x) {
  w->n_ids = w->n_begun = 0;
  if (!MTX_VEC_GROW(&w->sets, v, 1, 1u << 26)) return MTX_ENOMEM;
  const uint32_t n_nodes = s->n_nodes;
  mtx_code code = MTX_OK;
  w->sets.v[0] = x;
  w->sets.n_v = 1;
  if (!e->exits && e->tails.n_nodes) code = walk(s, &e->tails, w, &(walk_opts){.leaving = true, .counts = e->tail_counts, .follow = follow});
  for (uint32_t i = 0; i < e->n_exits && !code; i++) {
    w->sets.v[0] = x;
    w->sets.n_v = 1;
    code = walk(s, &t->trie, w, &(walk_opts){.top = e->exits[i].node, .leaving = true, .begun = e->exits[i].count, .follow = follow});
  }
  gr_stacks_truncate(s, n_nodes);
  return code;
}
