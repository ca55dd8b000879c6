// SPDX-License-Identifier: MIT
// Entries that grammars of one vocabulary share: frames that are the same automaton.
//
// Every JSON Schema has the same strings and numbers, and the inside of a string is
// where a mask costs most, so only the first grammar of a vocabulary pays for it.
// Automata are compared by their image: the states that can be reached, numbered in
// the order of a breadth-first walk.
#include <string.h>

#include "grammar/mask.h"

#define MAX_STATES 64u       // of one automaton; larger ones are their grammar's own
#define MAX_BYTES (32u << 20)
#define MAX_ENTRIES 256u

typedef struct {
  MTX_VEC(uint32_t, words);
} image;

typedef struct {
  uint64_t hash;
  uint32_t *words, n_words;
  mask_entry *entry;
} shared_slot;

struct mask_shared {
  pthread_mutex_t lock;
  shared_slot slots[MAX_ENTRIES];
  uint32_t n_slots;
  size_t bytes;
};

struct mask_shared *mtx_mask_shared_new(void) {
  struct mask_shared *s = calloc(1, sizeof *s);
  if (s) pthread_mutex_init(&s->lock, NULL);
  return s;
}

void mtx_mask_shared_free(struct mask_shared *s) {
  if (!s) return;
  for (uint32_t i = 0; i < s->n_slots; i++) {
    free(s->slots[i].words);
    mtx_mask_entry_unref(s->slots[i].entry);
  }
  pthread_mutex_destroy(&s->lock);
  free(s);
}

// The bytes after a value in JSON. Follow sets within it count as all of it, or
// strings of objects and of lists would not be the same.
static void widen(const uint64_t follow[4], uint64_t out[4]) {
  uint64_t json[4] = {0};
  for (const char *p = " \t\n\r,:]}"; *p; p++) json[(uint8_t)*p >> 6] |= 1ull << (*p & 63);
  bool within = true;
  for (int i = 0; i < 4; i++) within &= !(follow[i] & ~json[i]);
  memcpy(out, within ? json : follow, sizeof json);
}

static bool put(image *m, uint32_t word) {
  if (!MTX_VEC_GROW(m, words, 1, 1u << 20)) return false;
  m->words[m->n_words++] = word;
  return true;
}

// The number of state d, new ones at the end of list; UINT32_MAX: too many.
static uint32_t number_of(int32_t *list, uint32_t *n, int32_t d) {
  for (uint32_t i = 0; i < *n; i++)
    if (list[i] == d) return i;
  if (*n == MAX_STATES) return UINT32_MAX;
  list[*n] = d;
  return (*n)++;
}

static bool image_of(const mtx_grammar *g, mask_key key, const uint64_t follow[4], image *m) {
  const int32_t loop = mtx_mask_is_loop(g, key) ? g->rules[key.family].start : -1;
  int32_t list[MAX_STATES];
  uint32_t n = 0;
  const bool counted = key.family >= 0 && loop < 0;
  bool ok = put(m, counted ? 2 : loop >= 0);
  for (int i = 0; i < 4; i++) ok = ok && put(m, (uint32_t)follow[i]) && put(m, (uint32_t)(follow[i] >> 32));
  number_of(list, &n, key.d);
  for (uint32_t i = 0; ok && i < n; i++) {
    const bool between = list[i] == loop;  // stands for the start of the next iteration
    const gr_state *s = g->states + (between ? g->rules[g->rules[key.family].body].start : list[i]);
    ok = put(m, s->n_edges << 2 | between << 1 | s->accept) && (!counted || put(m, (uint32_t)s->dist << 1 | s->tick));
    for (uint32_t k = 0; ok && k < s->n_edges; k++) {
      const gr_edge *e = g->edges + s->edge + k;
      uint32_t to = number_of(list, &n, loop >= 0 && g->states[e->to].accept ? loop : e->to);
      ok = to != UINT32_MAX && put(m, to << 16 | (uint32_t)e->lo << 8 | e->hi);
    }
  }
  return ok;
}

static mask_entry *find(const struct mask_shared *s, const image *m, uint64_t hash) {
  for (uint32_t i = 0; i < s->n_slots; i++) {
    const shared_slot *x = s->slots + i;
    if (x->hash != hash || x->n_words != m->n_words || memcmp(x->words, m->words, m->n_words * sizeof *m->words)) continue;
    atomic_fetch_add(&x->entry->refs_held, 1);
    return x->entry;
  }
  return NULL;
}

// Takes the image's words when there is room.
static void insert(struct mask_shared *s, image *m, uint64_t hash, mask_entry *e) {
  if (s->n_slots == MAX_ENTRIES || s->bytes + e->bytes > MAX_BYTES) return;
  s->slots[s->n_slots++] = (shared_slot){hash, m->words, m->n_words, e};
  s->bytes += e->bytes;
  m->words = NULL;
  atomic_fetch_add(&e->refs_held, 1);
}

mask_entry *mtx_mask_shared_get(const mtx_grammar *g, const mtx_vocab_trie *t, mask_walk *w, mask_key key,
                                mtx_code *code) {
  struct mask_shared *s = t->shared;
  uint64_t follow[4], hash = 1469598103934665603u;
  image m = {0};
  widen(g->rules[mtx_mask_frame(g, key)].follow, follow);
  if (!image_of(g, key, follow, &m)) {
    free(m.words);
    *code = MTX_EUNSUPPORTED;
    return NULL;
  }
  for (uint32_t i = 0; i < m.n_words; i++) hash = (hash ^ m.words[i]) * 1099511628211u;
  pthread_mutex_lock(&s->lock);
  mask_entry *e = find(s, &m, hash);
  pthread_mutex_unlock(&s->lock);
  *code = MTX_OK;
  if (!e && !(*code = mtx_mask_walk_frame(g, &t->trie, w, key, follow))) {
    if (!(e = mtx_mask_entry_make(t, w, follow, key.family >= 0, NULL))) *code = MTX_ENOMEM;
    pthread_mutex_lock(&s->lock);
    mask_entry *other = e ? find(s, &m, hash) : NULL;  // another thread may have been faster
    if (other) {
      mtx_mask_entry_unref(e);
      e = other;
    } else if (e) {
      insert(s, &m, hash, e);
    }
    pthread_mutex_unlock(&s->lock);
  }
  free(m.words);
  return e;
}
