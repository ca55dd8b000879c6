// SPDX-License-Identifier: MIT
// Walking the trie through one frame, and the cache of what was found.
#include "grammar/mask.h"

#include <string.h>
#include <time.h>

#define MAX_CACHE_BYTES (96u << 20)
#define MAX_IDS (1u << 24)
#define WALK_FUEL 400000000ll

// ---- walking ------------------------------------------------------------------------

mtx_code mtx_mask_walk_init(mask_walk *w, const mtx_vocab_trie *t) {
  memset(w, 0, sizeof *w);
  w->at = malloc((t->max_depth + 3) * sizeof *w->at);
  w->n_nodes = malloc((t->max_depth + 3) * sizeof *w->n_nodes);
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

static bool leads_on(const mtx_vocab_trie *t, uint32_t node, const uint64_t follow[4]) {
  for (uint32_t i = node + 1; i < t->end[node]; i = t->end[i])
    if (gr_has_byte(follow, t->byte[i])) return true;
  return false;
}

// Notes where the frame can end at `node`; only where some child's byte may follow it.
static bool note_exits(gr_stacks *s, const mtx_vocab_trie *t, mask_walk *w, uint32_t node, const gr_cfg *set,
                       uint32_t n, const uint64_t follow[4]) {
  if (node + 1 >= t->end[node]) return true;
  const uint32_t from = w->n_exits;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t count;
    if (!gr_exits(s, set[i], &count)) continue;
    if (w->n_exits == from && !leads_on(t, node, follow)) return true;
    bool known = false;
    for (uint32_t k = from; k < w->n_exits; k++) known |= w->exits[k].count == count;
    if (known) continue;
    if (!MTX_VEC_GROW(w, exits, 1, MAX_IDS)) return false;
    w->exits[w->n_exits++] = (mask_exit){node, (uint32_t)count};
  }
  return true;
}

static bool note_tokens(const mtx_vocab_trie *t, mask_walk *w, uint32_t node, uint32_t begun) {
  uint32_t n = t->tok[node + 1] - t->tok[node];
  if (!n) return true;
  if (!MTX_VEC_GROW(w, ids, n, MAX_IDS) || !MTX_VEC_GROW(w, begun, n, MAX_IDS)) return false;
  for (uint32_t k = 0; k < n; k++) {
    w->ids[w->n_ids++] = t->order[t->tok[node] + k];
    w->begun[w->n_begun++] = begun;
  }
  return true;
}

// Walks the nodes below `top` from the set w->sets.v[0..n). With follow, exits
// are noted (one frame); without, every token gets the count `begun`.
static mtx_code walk(gr_stacks *s, const mtx_vocab_trie *t, mask_walk *w, uint32_t top, uint32_t n,
                     const uint64_t *follow, uint32_t begun) {
  uint32_t depth = t->depth[top];
  w->at[depth] = 0;
  w->at[depth + 1] = n;
  w->n_nodes[depth] = s->n_nodes;
  for (uint32_t i = top + 1; i < t->end[top];) {
    depth = t->depth[i];
    w->sets.n_v = w->at[depth];
    if (s->n_nodes > w->n_nodes[depth - 1]) gr_stacks_truncate(s, w->n_nodes[depth - 1]);
    n = gr_step(s, &w->sets, w->at[depth - 1], w->at[depth] - w->at[depth - 1], t->byte[i]);
    if (s->status) return s->status;
    if (n == 0) {
      i = t->end[i];
      continue;
    }
    w->at[depth + 1] = w->sets.n_v;
    w->n_nodes[depth] = s->n_nodes;
    const gr_cfg *set = w->sets.v + w->at[depth];
    if (follow) {
      if (s->free_loop && t->tok[i + 1] > t->tok[i]) {
        uint64_t least = UINT64_MAX;
        for (uint32_t k = 0; k < n; k++) {
          uint64_t b = gr_begun(s, set[k]);
          if (b < least) least = b;
        }
        begun = (uint32_t)least;
      }
      if (!note_exits(s, t, w, i, set, n, follow)) return MTX_ENOMEM;
    }
    if (!note_tokens(t, w, i, begun)) return MTX_ENOMEM;
    i++;
  }
  return MTX_OK;
}

mtx_code mtx_mask_leave(const mask_entry *e, gr_stacks *s, const mtx_vocab_trie *t, mask_walk *w, gr_cfg x) {
  w->n_ids = w->n_begun = 0;
  const uint32_t n_nodes = s->n_nodes;
  mtx_code code = MTX_OK;
  for (uint32_t i = 0; i < e->n_exits && !code; i++) {
    w->sets.n_v = 0;
    if (!MTX_VEC_GROW(&w->sets, v, 1, 1u << 26)) return MTX_ENOMEM;
    w->sets.v[w->sets.n_v++] = x;
    code = walk(s, t, w, e->exits[i].node, 1, NULL, e->exits[i].count);
  }
  gr_stacks_truncate(s, n_nodes);
  return code;
}

// ---- entries --------------------------------------------------------------------------

void mtx_mask_entry_free(mask_entry *e) {
  if (!e) return;
  free(e->dense);
  free(e->ids);
  free(e->begun);
  free(e->exits);
  free(e);
}

static void *copy_of(const void *p, size_t n_bytes) {
  void *q = malloc(n_bytes ? n_bytes : 1);
  if (q && n_bytes) memcpy(q, p, n_bytes);
  return q;
}

static void set_bit(uint64_t *bits, uint32_t i) { bits[i >> 6] |= 1ull << (i & 63); }

typedef struct {
  uint32_t begun, id;
} begun_id;

static int cmp_begun(const void *x, const void *y) {
  const begun_id *a = x, *b = y;
  if (a->begun != b->begun) return a->begun > b->begun ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

static bool fill_dense(mask_entry *e, const mtx_vocab_trie *t, const mask_walk *w, bool loop) {
  const size_t words = (t->n_tokens + 63) / 64;
  const uint32_t levels = loop ? MASK_LEVELS + 1 : 0;
  e->dense = calloc((1 + levels) * words, sizeof *e->dense);
  if (!e->dense) return false;
  e->bytes += (1 + levels) * words * sizeof *e->dense;
  uint32_t n_long = 0;
  for (uint32_t i = 0; i < w->n_ids; i++) {
    set_bit(e->dense, w->ids[i]);
    if (!loop) continue;
    if (w->begun[i] <= MASK_LEVELS)
      set_bit(e->dense + (1 + w->begun[i]) * words, w->ids[i]);
    else
      n_long++;
  }
  if (!loop) return true;
  for (uint32_t r = 2; r <= levels; r++)
    for (size_t k = 0; k < words; k++) e->dense[r * words + k] |= e->dense[(r - 1) * words + k];
  begun_id *list = malloc((n_long + 1) * sizeof *list);
  e->ids = malloc((n_long + 1) * sizeof *e->ids);
  e->begun = malloc((n_long + 1) * sizeof *e->begun);
  if (!list || !e->ids || !e->begun) {
    free(list);
    return false;
  }
  n_long = 0;
  for (uint32_t i = 0; i < w->n_ids; i++)
    if (w->begun[i] > MASK_LEVELS) list[n_long++] = (begun_id){w->begun[i], w->ids[i]};
  qsort(list, n_long, sizeof *list, cmp_begun);
  for (uint32_t i = 0; i < n_long; i++) {
    e->ids[i] = list[i].id;
    e->begun[i] = list[i].begun;
  }
  free(list);
  e->n_ids = n_long;
  e->bytes += n_long * 8;
  return true;
}

// dense[0] costs one copy per mask; a list this long costs about the same.
static bool is_dense(const mtx_vocab_trie *t, const mask_walk *w) { return w->n_ids > t->n_tokens / 64 + 64; }

static mask_entry *make_entry(const mtx_vocab_trie *t, const mask_walk *w, mask_key key) {
  mask_entry *e = calloc(1, sizeof *e);
  if (!e) return NULL;
  const bool loop = key.family >= 0;
  e->key = key;
  e->bytes = sizeof *e + w->n_exits * sizeof *e->exits;
  for (uint32_t i = 0; loop && i < w->n_begun; i++)
    if (w->begun[i] > e->max_begun) e->max_begun = w->begun[i];
  bool ok = (e->exits = copy_of(w->exits, w->n_exits * sizeof *e->exits)) != NULL;
  e->n_exits = w->n_exits;
  if (ok && is_dense(t, w)) {
    ok = fill_dense(e, t, w, loop);
  } else if (ok) {
    e->n_ids = w->n_ids;
    e->bytes += w->n_ids * 8u;
    ok = (e->ids = copy_of(w->ids, w->n_ids * sizeof *e->ids)) != NULL;
    if (ok && loop) ok = (e->begun = copy_of(w->begun, w->n_begun * sizeof *e->begun)) != NULL;
  }
  if (ok) return e;
  mtx_mask_entry_free(e);
  return NULL;
}

static mask_entry *walk_frame(const mtx_grammar *g, const mtx_vocab_trie *t, mask_walk *w, mask_key key,
                              mtx_code *code) {
  gr_stacks s;
  if ((*code = gr_stacks_init(&s, g))) return NULL;
  s.fuel = WALK_FUEL;
  s.free_loop = key.family >= 0;
  gr_cfg x = {key.d, GR_EXIT, key.c};
  uint32_t frame = g->states[key.d].rule;
  mask_entry *e = NULL;
  if (s.free_loop) {
    const gr_rule *loop = g->rules + key.family;
    frame = (uint32_t)key.family;
    if (key.d != loop->start) x.parent = gr_stacks_push(&s, loop->start, GR_EXIT, 0);
  }
  w->n_ids = w->n_begun = w->n_exits = w->sets.n_v = 0;
  const uint64_t *follow = g->rules[frame].follow;
  if (!MTX_VEC_GROW(&w->sets, v, 1, 1u << 26) || s.status) {
    *code = MTX_ENOMEM;
  } else {
    w->sets.v[w->sets.n_v++] = x;
    if (!note_exits(&s, t, w, 0, w->sets.v, 1, follow)) *code = MTX_ENOMEM;
    if (!*code) *code = walk(&s, t, w, 0, 1, follow, 0);
    if (!*code && !(e = make_entry(t, w, key))) *code = MTX_ENOMEM;
  }
  gr_stacks_fini(&s);
  return e;
}

// ---- cache -------------------------------------------------------------------------------

static uint32_t hash_key(mask_key k) {
  uint64_t h = (uint64_t)(uint32_t)k.d * 0x9e3779b97f4a7c15u;
  h = (h ^ (uint32_t)k.family) * 0xff51afd7ed558ccdu;
  h = (h ^ k.c) * 0xc4ceb9fe1a85ec53u;
  return (uint32_t)(h >> 32);
}

static mask_entry *find(const mask_cache *c, mask_key k) {
  if (!c->n_table) return NULL;
  for (uint32_t h = hash_key(k) & (c->n_table - 1); c->table[h]; h = (h + 1) & (c->n_table - 1)) {
    mask_entry *e = c->table[h];
    if (e->key.d == k.d && e->key.family == k.family && e->key.c == k.c) return e;
  }
  return NULL;
}

static void insert(mask_cache *c, mask_entry *e) {
  uint32_t h = hash_key(e->key) & (c->n_table - 1);
  while (c->table[h]) h = (h + 1) & (c->n_table - 1);
  c->table[h] = e;
}

static bool grow_table(mask_cache *c) {
  if ((c->n_entries + 1) * 2 <= c->n_table) return true;
  uint32_t n_old = c->n_table, n = n_old ? n_old * 2 : 64;
  mask_entry **table = calloc(n, sizeof *table), **old = c->table;
  if (!table) return false;
  c->table = table;
  c->n_table = n;
  for (uint32_t i = 0; i < n_old; i++)
    if (old[i]) insert(c, old[i]);
  free(old);
  return true;
}

mask_entry *mtx_mask_entry_get(mask_cache *c, const mtx_grammar *g, const mtx_vocab_trie *t, mask_walk *w,
                               mask_key key, bool *owned, mtx_code *code) {
  *owned = false;
  *code = MTX_OK;
  pthread_mutex_lock(&c->lock);
  mask_entry *e = find(c, key);
  pthread_mutex_unlock(&c->lock);
  if (e) return e;
  if (!(e = walk_frame(g, t, w, key, code))) return NULL;
  pthread_mutex_lock(&c->lock);
  mask_entry *other = find(c, key);
  if (other) {  // another thread was faster
    mtx_mask_entry_free(e);
    e = other;
  } else if (c->bytes + e->bytes > MAX_CACHE_BYTES || !grow_table(c)) {
    *owned = true;
  } else {
    insert(c, e);
    c->n_entries++;
    c->bytes += e->bytes;
  }
  pthread_mutex_unlock(&c->lock);
  return e;
}

void mtx_mask_cache_unref(mask_cache *c) {
  if (!c || atomic_fetch_sub(&c->refs_held, 1) != 1) return;
  for (uint32_t i = 0; i < c->n_table; i++) mtx_mask_entry_free(c->table[i]);
  free(c->table);
  free(c->ref_tokens);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

static mtx_code resolve_refs(mask_cache *c, const mtx_grammar *g, const mtx_vocab_trie *t, mtx_err *err) {
  c->ref_tokens = malloc((g->n_refs + 1) * sizeof *c->ref_tokens);
  if (!c->ref_tokens) return mtx_fail(err, MTX_ENOMEM, "out of memory");
  for (uint32_t i = 0; i < g->n_refs; i++) {
    const gr_token_ref *r = g->refs + i;
    uint32_t id = r->id;
    if (!r->by_id)
      for (id = 0; id < t->n_tokens; id++)
        if (t->offsets[id + 1] - t->offsets[id] == r->n_text &&
            !memcmp(t->bytes + t->offsets[id], g->text + r->text, r->n_text))
          break;
    if (id >= t->n_tokens) {
      if (r->by_id) return mtx_fail(err, MTX_ENOTFOUND, "the grammar names token <[%u]>; the vocabulary has %u tokens", r->id, t->n_tokens);
      return mtx_fail(err, MTX_ENOTFOUND, "the grammar names <%.*s>, which is no token of this model; use a literal instead",
                      (int)r->n_text - 2, g->text + r->text + 1);
    }
    c->ref_tokens[i] = id;
  }
  return MTX_OK;
}

mtx_code mtx_mask_cache_get(mtx_grammar *g, const mtx_vocab_trie *t, mask_cache **out, mtx_err *err) {
  const uint32_t n_slots = sizeof g->caches / sizeof *g->caches;
  mtx_code code = MTX_OK;
  *out = NULL;
  pthread_mutex_lock(&g->lock);
  for (uint32_t i = 0; i < n_slots && !*out; i++)
    if (g->caches[i] && g->caches[i]->serial == t->serial) *out = g->caches[i];
  if (!*out) {
    mask_cache *c = calloc(1, sizeof *c);
    if (!c) {
      code = mtx_fail(err, MTX_ENOMEM, "out of memory");
    } else {
      atomic_init(&c->refs_held, 1);
      c->serial = t->serial;
      pthread_mutex_init(&c->lock, NULL);
      code = resolve_refs(c, g, t, err);
      if (code) {
        mtx_mask_cache_unref(c);
      } else {
        mtx_mask_cache_unref(g->caches[g->i_cache]);
        g->caches[g->i_cache] = *out = c;
        g->i_cache = (g->i_cache + 1) % n_slots;
      }
    }
  }
  if (*out) atomic_fetch_add(&(*out)->refs_held, 1);
  pthread_mutex_unlock(&g->lock);
  return code;
}

// ---- warming --------------------------------------------------------------------------------

// Many bytes can come, by an edge or as the first of a call (a counted string
// just after its quote): the walk then visits most of the trie.
static bool is_wide(const mtx_grammar *g, const gr_state *s) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < s->n_calls; k++) {
    const uint64_t *f = g->rules[g->calls[s->call + k].rule].first;
    if (__builtin_popcountll(f[0]) + __builtin_popcountll(f[1]) + __builtin_popcountll(f[2]) + __builtin_popcountll(f[3]) >= 64) return true;
  }
  if (s->table < 0) return false;
  for (int b = 0; b < 256; b++) n += g->tables[s->table][b] >= 0;
  return n >= 64;
}

mtx_code mtx_grammar_warm(mtx_grammar *g, mtx_vocab_trie *t, int budget_ms, mtx_err *err) {
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  mask_cache *c;
  mask_walk w;
  mtx_code code = mtx_mask_cache_get(g, t, &c, err);
  if (code) return code;
  if ((code = mtx_mask_walk_init(&w, t))) {
    mtx_mask_cache_unref(c);
    return mtx_fail(err, code, "out of memory");
  }
  for (uint32_t i = 0; i < g->n_states; i++) {
    const gr_state *s = g->states + i;
    const gr_rule *r = g->rules + s->rule;
    mask_key key = {(int32_t)i, -1, 0};
    if (s->kind == GR_LOOP && r->family == s->rule)
      key.family = (int32_t)s->rule;
    else if (s->kind != GR_PLAIN || !is_wide(g, s))
      continue;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 >= budget_ms) break;
    bool owned;
    mtx_code ignored;  // what is too ambiguous to warm is reported by the mask that needs it
    mask_entry *e = mtx_mask_entry_get(c, g, t, &w, key, &owned, &ignored);
    if (owned) mtx_mask_entry_free(e);
  }
  mtx_mask_walk_fini(&w);
  mtx_mask_cache_unref(c);
  return MTX_OK;
}
