// SPDX-License-Identifier: MIT
// Entries made of what a walk has found, and each grammar's cache of them.
#include "grammar/mask.h"

#include <string.h>

#define MAX_CACHE_BYTES (32u << 20)  // of one grammar; then it begins anew
#define MAX_ALL_BYTES (256u << 20)   // of all; above, a grammar keeps no more

static atomic_size_t all_bytes;
// More would take longer to sort than to walk to.
#define MAX_TAILS 32768u
#define MAX_TAILS_OF_EXIT 64u

// ---- entries --------------------------------------------------------------------------

void mtx_mask_entry_unref(mask_entry *e) {
  if (!e || atomic_fetch_sub(&e->refs_held, 1) != 1) return;
  free(e->dense);
  free(e->ids);
  free(e->begun);
  free(e->exits);
  free(e->tail_exits);
  free(e->dropped);
  mtx_mask_entry_unref(e->base);
  mtx_walk_trie_fini(&e->tails);
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

// Tokens below `node` that go on with a byte of follow.
static uint32_t n_tails(const mtx_walk_trie *t, uint32_t node, const uint64_t follow[4]) {
  uint32_t n = 0;
  for (uint32_t k = node + 1; k < t->nodes[node].end; k = t->nodes[k].end)
    if (gr_has_byte(follow, t->nodes[k].byte)) n += t->nodes[t->nodes[k].end].tok - t->nodes[k].tok;
  return n;
}

typedef struct {
  mtx_walk_trie_word *words;
  mask_exit *exits;
  uint32_t *ids;
  uint32_t n;
} tail_list;

static void list_tails(tail_list *l, const mtx_vocab_trie *v, mask_exit x, const uint64_t follow[4]) {
  const mtx_walk_trie *t = &v->trie;
  const uint32_t depth = t->nodes[x.node].depth;
  for (uint32_t k = x.node + 1; k < t->nodes[x.node].end; k = t->nodes[k].end) {
    if (!gr_has_byte(follow, t->nodes[k].byte)) continue;
    for (uint32_t j = t->nodes[k].tok; j < t->nodes[t->nodes[k].end].tok; j++) {
      const uint32_t id = t->order[j], from = v->offsets[id] + depth;
      l->exits[l->n] = x;
      l->ids[l->n] = id;
      l->words[l->n] = (mtx_walk_trie_word){v->bytes + from, v->offsets[id + 1] - from, l->n};
      l->n++;
    }
  }
}

// Splits the exits: into tails, sorted, and those with too many tokens for that.
static bool make_tails(mask_entry *e, const mtx_vocab_trie *v, const mask_walk *w, const uint64_t follow[4]) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < w->n_exits; i++) {
    uint32_t k = n_tails(&v->trie, w->exits[i].node, follow);
    n += k <= MAX_TAILS_OF_EXIT ? k : 0;
  }
  const uint32_t most = n <= MAX_TAILS ? MAX_TAILS_OF_EXIT : 0;
  if (!most) n = 0;
  tail_list l = {malloc((n + 1) * sizeof *l.words), malloc((n + 1) * sizeof *l.exits), malloc((n + 1) * sizeof *l.ids), 0};
  e->exits = malloc((w->n_exits + 1) * sizeof *e->exits);
  e->tail_exits = malloc((n + 1) * sizeof *e->tail_exits);
  bool ok = l.words && l.exits && l.ids && e->exits && e->tail_exits;
  for (uint32_t i = 0; ok && i < w->n_exits; i++) {
    uint32_t k = n_tails(&v->trie, w->exits[i].node, follow);
    if (k > most)
      e->exits[e->n_exits++] = w->exits[i];
    else if (k)
      list_tails(&l, v, w->exits[i], follow);
  }
  ok = ok && (!l.n || mtx_walk_trie_build(&e->tails, l.words, l.n));
  for (uint32_t i = 0; ok && i < l.n; i++) {
    const uint32_t k = e->tails.order[i];
    e->tail_exits[i] = l.exits[k];
    e->tails.order[i] = l.ids[k];
  }
  e->bytes += mtx_walk_trie_size_bytes(&e->tails) + l.n * sizeof *e->tail_exits + w->n_exits * sizeof *e->exits;
  free(l.words);
  free(l.exits);
  free(l.ids);
  return ok;
}

// The bits of base with what differs.
static bool fill_against(mask_entry *e, const mtx_vocab_trie *t, const mask_walk *w, mask_entry *base) {
  const size_t n_bytes = (t->n_tokens + 63) / 64 * sizeof *e->dense;
  e->base = base;
  atomic_fetch_add(&base->refs_held, 1);
  e->dense = copy_of(base->dense, n_bytes);
  e->dropped = copy_of(w->dropped, w->n_dropped * sizeof *w->dropped);
  if (!e->dense || !e->dropped) return false;
  e->n_dropped = w->n_dropped;
  e->bytes += n_bytes + w->n_dropped * sizeof *w->dropped;
  for (uint32_t i = 0; i < w->n_removed; i++) e->dense[w->removed[i] >> 6] &= ~(1ull << (w->removed[i] & 63));
  for (uint32_t i = 0; i < w->n_ids; i++) set_bit(e->dense, w->ids[i]);
  return true;
}

mask_entry *mtx_mask_entry_make(const mtx_vocab_trie *t, const mask_walk *w, const uint64_t follow[4], bool loop,
                                mask_entry *base) {
  mask_entry *e = calloc(1, sizeof *e);
  if (!e) return NULL;
  atomic_init(&e->refs_held, 1);
  e->bytes = sizeof *e;
  for (uint32_t i = 0; loop && i < w->n_begun; i++)
    if (w->begun[i] > e->max_begun) e->max_begun = w->begun[i];
  bool ok = make_tails(e, t, w, follow);
  if (ok && base) {
    ok = fill_against(e, t, w, base);
  } else if (ok && is_dense(t, w)) {
    ok = fill_dense(e, t, w, loop);
  } else if (ok) {
    e->n_ids = w->n_ids;
    e->bytes += w->n_ids * 8u;
    ok = (e->ids = copy_of(w->ids, w->n_ids * sizeof *e->ids)) != NULL;
    if (ok && loop) ok = (e->begun = copy_of(w->begun, w->n_begun * sizeof *e->begun)) != NULL;
  }
  if (ok) return e;
  mtx_mask_entry_unref(e);
  return NULL;
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
  for (uint32_t h = hash_key(k) & (c->n_table - 1); c->table[h].entry; h = (h + 1) & (c->n_table - 1)) {
    const mask_slot *s = c->table + h;
    if (s->key.d == k.d && s->key.family == k.family && s->key.c == k.c) {
      atomic_fetch_add(&s->entry->refs_held, 1);
      return s->entry;
    }
  }
  return NULL;
}

static void insert(mask_cache *c, mask_slot s) {
  uint32_t h = hash_key(s.key) & (c->n_table - 1);
  while (c->table[h].entry) h = (h + 1) & (c->n_table - 1);
  c->table[h] = s;
}

static bool grow_table(mask_cache *c) {
  if ((c->n_entries + 1) * 2 <= c->n_table) return true;
  uint32_t n_old = c->n_table, n = n_old ? n_old * 2 : 64;
  mask_slot *table = calloc(n, sizeof *table), *old = c->table;
  if (!table) return false;
  c->table = table;
  c->n_table = n;
  for (uint32_t i = 0; i < n_old; i++)
    if (old[i].entry) insert(c, old[i]);
  free(old);
  return true;
}

static int32_t likeliest(const mtx_grammar *g, int32_t d) {
  const gr_state *s = g->states + d;
  int32_t best = d;
  uint32_t most = 0;
  for (uint32_t i = 0; i < s->n_edges; i++) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n_edges; k++) {
      const gr_edge *e = g->edges + s->edge + k;
      if (e->to == g->edges[s->edge + i].to) n += e->hi - e->lo + 1u;
    }
    if (n > most) most = n, best = g->edges[s->edge + i].to;
  }
  return best;
}

// Where most bytes lead from d, and from there, if that comes to rest; else d.
static int32_t default_state(const mtx_grammar *g, int32_t d) {
  int32_t to = likeliest(g, d);
  for (int round = 0; round < 3; round++) {
    int32_t next = likeliest(g, to);
    if (next == to) return to;
    to = next;
  }
  return d;
}

// A state of a leaf by what it does not have in common with its default state:
// in "any key but these" each letter of a declared key has such a state.
static mask_entry *entry_against(mask_cache *c, const mtx_grammar *g, const mtx_vocab_trie *t, mask_walk *w, mask_key key,
                                 mtx_code *code) {
  const int32_t d = default_state(g, key.d);
  if (d == key.d) return NULL;
  mask_entry *base = mtx_mask_entry_get(c, g, t, w, (mask_key){d, -1, 0}, code), *e = NULL;
  if (!base) return NULL;
  const uint64_t *follow = g->rules[g->states[key.d].rule].follow;
  if (base->dense && !base->base && !mtx_mask_walk_against(g, &t->trie, w, key.d, d, follow)) {
    e = mtx_mask_entry_make(t, w, follow, false, base);
    if (!e) *code = MTX_ENOMEM;
  }
  mtx_mask_entry_unref(base);
  return e;
}

static mask_entry *new_entry(mask_cache *c, const mtx_grammar *g, const mtx_vocab_trie *t, mask_walk *w, mask_key key,
                             mtx_code *code) {
  const gr_rule *r = g->rules + mtx_mask_frame(g, key);
  mask_entry *e = NULL;
  if (r->leaf && key.family < 0 && ((e = entry_against(c, g, t, w, key, code)) || *code)) return e;
  if (r->leaf) {
    e = mtx_mask_shared_get(g, t, w, key, code);
    if (*code != MTX_EUNSUPPORTED) return e;
  }
  *code = mtx_mask_walk_frame(g, &t->trie, w, key, r->follow);
  if (!*code && !(e = mtx_mask_entry_make(t, w, r->follow, key.family >= 0, NULL))) *code = MTX_ENOMEM;
  return e;
}

static void empty(mask_cache *c) {
  for (uint32_t i = 0; i < c->n_table; i++) mtx_mask_entry_unref(c->table[i].entry);
  if (c->n_table) memset(c->table, 0, c->n_table * sizeof *c->table);
  atomic_fetch_sub(&all_bytes, c->bytes);
  c->bytes = 0;
  c->n_entries = 0;
}

static void keep(mask_cache *c, mask_key key, mask_entry *e) {
  if (c->bytes + e->bytes > MAX_CACHE_BYTES) empty(c);
  if (c->bytes + e->bytes > MAX_CACHE_BYTES || atomic_load(&all_bytes) + e->bytes > MAX_ALL_BYTES || !grow_table(c)) return;
  insert(c, (mask_slot){key, e});
  atomic_fetch_add(&e->refs_held, 1);
  atomic_fetch_add(&all_bytes, e->bytes);
  c->n_entries++;
  c->bytes += e->bytes;
}

mask_entry *mtx_mask_entry_get(mask_cache *c, const mtx_grammar *g, const mtx_vocab_trie *t, mask_walk *w,
                               mask_key key, mtx_code *code) {
  *code = MTX_OK;
  pthread_mutex_lock(&c->lock);
  mask_entry *e = find(c, key);
  pthread_mutex_unlock(&c->lock);
  if (e || !(e = new_entry(c, g, t, w, key, code))) return e;
  pthread_mutex_lock(&c->lock);
  mask_entry *other = find(c, key);
  if (other) {  // another thread was faster
    mtx_mask_entry_unref(e);
    e = other;
  } else {
    keep(c, key, e);
  }
  pthread_mutex_unlock(&c->lock);
  return e;
}

void mtx_mask_cache_unref(mask_cache *c) {
  if (!c || atomic_fetch_sub(&c->refs_held, 1) != 1) return;
  empty(c);
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
