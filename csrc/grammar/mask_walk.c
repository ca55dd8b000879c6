// SPDX-License-Identifier: MIT
// Walking a trie through one frame, and through what follows it.
#include <string.h>

#include "grammar/mask.h"

#define MAX_IDS (1u << 24)
#define WALK_FUEL 400000000ll

mtx_code mtx_mask_walk_init(mask_walk *w, const mtx_vocab_trie *t) {
  memset(w, 0, sizeof *w);
  w->levels = malloc((t->trie.max_depth + 3) * sizeof *w->levels);
  if (!w->levels) return MTX_ENOMEM;
  return MTX_OK;
}

void mtx_mask_walk_fini(mask_walk *w) {
  free(w->sets.v);
  free(w->levels);
  free(w->ids);
  free(w->begun);
  free(w->exits);
  free(w->removed);
  free(w->dropped);
  memset(w, 0, sizeof *w);
}

static bool note_exit(mask_walk *w, uint32_t node, uint64_t count) {
  if (!MTX_VEC_GROW(w, exits, 1, MAX_IDS)) return false;
  w->exits[w->n_exits++] = (mask_exit){node, (uint32_t)count};
  return true;
}

// Notes where the frame can end at `node`; only where some child's byte may follow it.
static bool note_exits(gr_stacks *s, const mtx_walk_trie *t, mask_walk *w, uint32_t node, const gr_cfg *set, uint32_t n,
                       const uint64_t follow[4]) {
  if (node + 1 >= t->nodes[node].end) return true;
  const uint32_t from = w->n_exits;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t count;
    if (!gr_exits(s, set[i], &count)) continue;
    if (w->n_exits == from && !mtx_walk_trie_leads_on(t, node, follow)) return true;
    bool known = false;
    for (uint32_t k = from; k < w->n_exits; k++) known |= w->exits[k].count == count;
    if (!known && !note_exit(w, node, count)) return false;
  }
  return true;
}

static bool note_tokens(const mtx_walk_trie *t, mask_walk *w, uint32_t node, uint32_t begun) {
  const uint32_t from = t->nodes[node].tok, n = mtx_walk_trie_n_words(t, node);
  if (!n) return true;
  if (!MTX_VEC_GROW(w, ids, n, MAX_IDS) || !MTX_VEC_GROW(w, begun, n, MAX_IDS)) return false;
  for (uint32_t k = 0; k < n; k++) {
    w->ids[w->n_ids++] = t->order[from + k];
    w->begun[w->n_begun++] = begun;
  }
  return true;
}

static int cmp_u32(const void *x, const void *y) {
  const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
  return a < b ? -1 : a > b;
}

// Tails that end at `node`, unless their exit has been dropped.
static bool note_tails(const mask_entry *e, mask_walk *w, uint32_t node, const uint32_t *dropped, uint32_t n_dropped) {
  const mtx_walk_trie *t = &e->tails;
  for (uint32_t k = t->nodes[node].tok; k < t->nodes[node + 1].tok; k++) {
    if (n_dropped && bsearch(&e->tail_exits[k].node, dropped, n_dropped, sizeof *dropped, cmp_u32)) continue;
    if (!MTX_VEC_GROW(w, ids, 1, MAX_IDS) || !MTX_VEC_GROW(w, begun, 1, MAX_IDS)) return false;
    w->ids[w->n_ids++] = t->order[k];
    w->begun[w->n_begun++] = e->tail_exits[k].count;
  }
  return true;
}

// ---- any frame ------------------------------------------------------------------------

// Walks the nodes below `top` from the one position w->sets.v[0]. In a frame exits
// are noted; outside it (`leaving`) t is the trie of an entry's tails, or the
// vocabulary's below an exit.
typedef struct {
  uint32_t top;
  bool leaving;
  const mask_entry *tails;
  const uint32_t *dropped;
  uint32_t n_dropped;
  uint32_t begun;
  const uint64_t *follow;  // [4] bytes that may come after the frame
} walk_opts;

// Below a node with few children trying each is cheaper than asking what can come.
#define ASK_NODES 4u

static uint64_t least_begun(const gr_stacks *s, const gr_cfg *set, uint32_t n) {
  uint64_t least = UINT64_MAX;
  for (uint32_t k = 0; k < n; k++) {
    uint64_t b = gr_begun(s, set[k]);
    if (b < least) least = b;
  }
  return least;
}

static void enter(const gr_stacks *s, const mtx_walk_trie *t, mask_walk *w, mask_level *l, uint32_t node) {
  const mtx_walk_node *x = t->nodes + node;
  l->listed = x->kids != 0;
  l->next = l->listed ? x->kids : node + 1;
  l->end = l->listed ? x->kids + x->n_kids + 1 : x->end;
  l->n_nodes = s->n_nodes;
  if (l->listed || x->end - node > ASK_NODES)
    gr_bytes(s, w->sets.v + l->set, w->sets.n_v - l->set, l->bytes);
  else
    memset(l->bytes, 0xff, sizeof l->bytes);
}

// The next child whose byte may come, or 0.
static uint32_t next_child(const mtx_walk_trie *t, mask_level *l) {
  while (l->next < l->end) {
    const uint32_t k = l->next;
    l->next = l->listed ? k + 1 : t->nodes[k].end;
    if (gr_has_byte(l->bytes, l->listed ? t->kid_byte[k] : t->nodes[k].byte)) return l->listed ? t->kid_node[k] : k;
  }
  return 0;
}

static mtx_code walk(gr_stacks *s, const mtx_walk_trie *t, mask_walk *w, const walk_opts *o) {
  mask_level *const first = w->levels;
  mask_level *l = first;
  l->set = 0;
  enter(s, t, w, l, o->top);
  if (o->leaving)
    for (int k = 0; k < 4; k++) l->bytes[k] &= o->follow[k];
  for (;;) {
    const uint32_t i = next_child(t, l);
    if (!i) {
      if (l == first) return MTX_OK;
      w->sets.n_v = l--->set;
      continue;
    }
    if (s->n_nodes > l->n_nodes) gr_stacks_truncate(s, l->n_nodes);
    const uint32_t from = w->sets.n_v;
    s->skip_wide = !o->leaving && l == first;
    const uint32_t n = gr_step(s, &w->sets, l->set, from - l->set, t->nodes[i].byte);
    s->skip_wide = false;
    if (s->status) return s->status;
    if (n == 0) continue;
    const gr_cfg *set = w->sets.v + from;
    uint32_t begun = o->begun;
    if (!o->leaving && s->free_loop && mtx_walk_trie_n_words(t, i)) begun = (uint32_t)least_begun(s, set, n);
    if (!o->leaving && !note_exits(s, t, w, i, set, n, o->follow)) return MTX_ENOMEM;
    if (!(o->tails ? note_tails(o->tails, w, i, o->dropped, o->n_dropped) : note_tokens(t, w, i, begun))) return MTX_ENOMEM;
    if (i + 1 < t->nodes[i].end) {
      (++l)->set = from;
      enter(s, t, w, l, i);
    } else {
      w->sets.n_v = from;
    }
  }
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
    code = walk(&s, t, w, &(walk_opts){.follow = follow});
  }
  gr_stacks_fini(&s);
  return code;
}

// ---- leaves ---------------------------------------------------------------------------------

// One state and one count per depth; the count is that of the loop at the end of
// the iteration the state is in, or of the characters of a COUNT rule. There a
// token begins as many as it has, with those that must follow it.
static mtx_code walk_leaf(const mtx_grammar *g, const mtx_walk_trie *t, mask_walk *w, mask_key key, const uint64_t follow[4]) {
  typedef struct {
    int32_t d;
    uint32_t count;
  } place;
  const int32_t loop = mtx_mask_is_loop(g, key) ? g->rules[key.family].start : -1;
  const int32_t body = loop >= 0 ? g->rules[g->rules[key.family].body].start : -1;
  place *at = malloc((t->max_depth + 1) * sizeof *at);
  if (!at) return MTX_ENOMEM;
  at[0] = (place){key.d, 0};
  bool ok = true;
  for (uint32_t i = 1; ok && i < t->n_nodes;) {
    const mtx_walk_node *node = t->nodes + i;
    place x = at[node->depth - 1];
    if (x.d == loop) x = (place){body, x.count + 1};
    x.d = gr_next(g, g->states + x.d, node->byte, 0);
    if (x.d < 0) {
      i = node->end;
      continue;
    }
    const gr_state *s = g->states + x.d;
    const uint32_t to_go = s->kind == GR_COUNT ? s->dist : 0;
    if (s->kind == GR_COUNT) x.count += s->tick;
    if (loop >= 0 && s->accept) x.d = loop;
    at[node->depth] = x;
    if (s->accept && i + 1 < node->end && mtx_walk_trie_leads_on(t, i, follow)) ok = note_exit(w, i, key.family >= 0 ? x.count : 0);
    ok = ok && note_tokens(t, w, i, x.count + to_go);
    i++;
  }
  free(at);
  return ok ? MTX_OK : MTX_ENOMEM;
}

static bool note_removed(const mtx_walk_trie *t, mask_walk *w, uint32_t node) {
  const uint32_t from = t->nodes[node].tok, n = mtx_walk_trie_n_words(t, node);
  if (!MTX_VEC_GROW(w, removed, n, MAX_IDS)) return false;
  for (uint32_t k = 0; k < n; k++) w->removed[w->n_removed++] = t->order[from + k];
  return true;
}

static bool note_dropped(mask_walk *w, uint32_t node) {
  if (!MTX_VEC_GROW(w, dropped, 1, MAX_IDS)) return false;
  w->dropped[w->n_dropped++] = node;
  return true;
}

mtx_code mtx_mask_walk_against(const mtx_grammar *g, const mtx_walk_trie *t, mask_walk *w, int32_t d, int32_t base,
                               const uint64_t follow[4]) {
  typedef struct {
    int32_t d, base;  // -1: not possible
  } pair;
  w->n_ids = w->n_begun = w->n_exits = w->n_removed = w->n_dropped = 0;
  pair *at = malloc((t->max_depth + 1) * sizeof *at);
  if (!at) return MTX_ENOMEM;
  at[0] = (pair){d, base};
  uint32_t n_seen = 0;
  bool ok = true;
  for (uint32_t i = 1; ok && i < t->n_nodes;) {
    const mtx_walk_node *node = t->nodes + i;
    pair x = at[node->depth - 1];
    if (x.d >= 0) x.d = gr_next(g, g->states + x.d, node->byte, 0);
    if (x.base >= 0) x.base = gr_next(g, g->states + x.base, node->byte, 0);
    if (x.d == x.base) {  // the same from here on, or nothing
      i = node->end;
      continue;
    }
    if (++n_seen > t->n_nodes / 8) break;
    at[node->depth] = x;
    if (x.base >= 0 && g->states[x.base].accept) ok = note_dropped(w, i);
    if (ok && x.d >= 0 && g->states[x.d].accept && mtx_walk_trie_leads_on(t, i, follow)) ok = note_exit(w, i, 0);
    if (ok && x.d >= 0 && x.base < 0) ok = note_tokens(t, w, i, 0);
    if (ok && x.d < 0) ok = note_removed(t, w, i);
    i++;
  }
  free(at);
  return !ok ? MTX_ENOMEM : n_seen > t->n_nodes / 8 ? MTX_ELIMIT : MTX_OK;
}

mtx_code mtx_mask_walk_frame(const mtx_grammar *g, const mtx_walk_trie *t, mask_walk *w, mask_key key,
                             const uint64_t follow[4]) {
  w->n_ids = w->n_begun = w->n_exits = w->sets.n_v = 0;
  return g->rules[mtx_mask_frame(g, key)].leaf ? walk_leaf(g, t, w, key, follow) : walk_any(g, t, w, key, follow);
}

static mtx_code leave_from(const mask_entry *e, const uint32_t *dropped, uint32_t n_dropped, gr_stacks *s,
                           const mtx_vocab_trie *t, mask_walk *w, const uint64_t follow[4], gr_cfg x) {
  mtx_code code = MTX_OK;
  w->sets.v[0] = x;
  w->sets.n_v = 1;
  if (e->tails.n_nodes)
    code = walk(s, &e->tails, w, &(walk_opts){.leaving = true, .tails = e, .dropped = dropped, .n_dropped = n_dropped, .follow = follow});
  for (uint32_t i = 0; i < e->n_exits && !code; i++) {
    if (n_dropped && bsearch(&e->exits[i].node, dropped, n_dropped, sizeof *dropped, cmp_u32)) continue;
    w->sets.v[0] = x;
    w->sets.n_v = 1;
    code = walk(s, &t->trie, w, &(walk_opts){.top = e->exits[i].node, .leaving = true, .begun = e->exits[i].count, .follow = follow});
  }
  return code;
}

mtx_code mtx_mask_leave(const mask_entry *e, gr_stacks *s, const mtx_vocab_trie *t, mask_walk *w,
                        const uint64_t follow[4], gr_cfg x) {
  w->n_ids = w->n_begun = 0;
  w->sets.n_v = 0;
  if (!MTX_VEC_GROW(&w->sets, v, 1, 1u << 26)) return MTX_ENOMEM;
  const uint32_t n_nodes = s->n_nodes;
  mtx_code code = leave_from(e, NULL, 0, s, t, w, follow, x);
  if (!code && e->base) code = leave_from(e->base, e->dropped, e->n_dropped, s, t, w, follow, x);
  gr_stacks_truncate(s, n_nodes);
  return code;
}
