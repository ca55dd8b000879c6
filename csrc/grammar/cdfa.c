// SPDX-License-Identifier: MIT
// The algebra of cdfa.h.
#include "grammar/cdfa.h"

#include <string.h>

#include "grammar/text.h"

mtx_cdfa *mtx_cdfa_new(void) { return calloc(1, sizeof(mtx_cdfa)); }

void mtx_cdfa_free(mtx_cdfa *d) {
  if (!d) return;
  free(d->states);
  free(d->edges);
  free(d);
}

uint32_t mtx_cdfa_state(mtx_cdfa *d, bool accept) {
  if (!MTX_VEC_GROW(d, states, 1, MTX_CDFA_MAX_STATES)) return UINT32_MAX;
  d->states[d->n_states] = (cd_state){d->n_edges, 0, accept};
  return d->n_states++;
}

bool mtx_cdfa_edge(mtx_cdfa *d, uint32_t lo, uint32_t hi, uint32_t to) {
  cd_state *s = d->states + d->n_states - 1;
  cd_edge *last = s->n_edges ? d->edges + d->n_edges - 1 : NULL;
  if (last && last->to == to && last->hi + 1 == lo) {
    last->hi = hi;
    return true;
  }
  if (!MTX_VEC_GROW(d, edges, 1, MTX_CDFA_MAX_EDGES)) return false;
  d->edges[d->n_edges++] = (cd_edge){lo, hi, to};
  s->n_edges++;
  return true;
}

static bool loop_any(mtx_cdfa *d, uint32_t to) {
  return mtx_cdfa_edge(d, 0, 0xd7ff, to) && mtx_cdfa_edge(d, 0xe000, 0x10ffff, to);
}

static mtx_cdfa *checked(mtx_cdfa *d, bool ok) {
  if (ok) return d;
  mtx_cdfa_free(d);
  return NULL;
}

mtx_cdfa *mtx_cdfa_length(uint32_t min, uint32_t max) {
  mtx_cdfa *d = mtx_cdfa_new();
  if (!d) return NULL;
  const uint32_t last = max == UINT32_MAX ? min : max;
  if (last >= MTX_CDFA_MAX_STATES || min > last) return checked(d, false);
  bool ok = true;
  for (uint32_t i = 0; i <= last && ok; i++) {
    ok = mtx_cdfa_state(d, i >= min) != UINT32_MAX;
    if (ok && i < last) ok = loop_any(d, i + 1);
    if (ok && i == last && max == UINT32_MAX) ok = loop_any(d, i);
  }
  return checked(d, ok);
}

mtx_cdfa *mtx_cdfa_any(void) { return mtx_cdfa_length(0, UINT32_MAX); }

// ---- words ---------------------------------------------------------------------

typedef struct {
  const char *p;
  size_t n;
} word;

static int cmp_word(const void *x, const void *y) {
  const word *a = x, *b = y;
  int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
  if (c) return c;
  return a->n < b->n ? -1 : a->n > b->n;
}

typedef struct {
  uint32_t first, last;  // words that share this state's prefix
  size_t depth;          // bytes of that prefix
} word_span;

// Sorted words make a trie level by level: a state is a span of words.
mtx_cdfa *mtx_cdfa_words(const char *const *words, const size_t *lens, size_t n) {
  mtx_cdfa *d = mtx_cdfa_new();
  word *w = malloc((n + 1) * sizeof *w);
  struct {
    MTX_VEC(word_span, v);
  } q = {0};
  bool ok = d && w && n < UINT32_MAX && MTX_VEC_GROW(&q, v, 1, MTX_CDFA_MAX_STATES);
  if (ok) {
    for (size_t i = 0; i < n; i++) w[i] = (word){words[i], lens[i]};
    qsort(w, n, sizeof *w, cmp_word);
    q.v[q.n_v++] = (word_span){0, (uint32_t)n, 0};
  }
  for (uint32_t s = 0; ok && s < q.n_v; s++) {
    word_span at = q.v[s];
    bool accept = false;
    while (at.first < at.last && w[at.first].n == at.depth) at.first++, accept = true;
    ok = mtx_cdfa_state(d, accept) != UINT32_MAX;
    for (uint32_t i = at.first; ok && i < at.last;) {
      uint32_t c, other, end = i;
      size_t k = mtx_utf8_get(w[i].p + at.depth, w[i].n - at.depth, &c);
      if (!(ok = k > 0)) break;
      while (end < at.last && mtx_utf8_get(w[end].p + at.depth, w[end].n - at.depth, &other) && other == c) end++;
      ok = mtx_cdfa_edge(d, c, c, q.n_v) && MTX_VEC_GROW(&q, v, 1, MTX_CDFA_MAX_STATES);
      if (ok) q.v[q.n_v++] = (word_span){i, end, at.depth + k};
      i = end;
    }
  }
  free(w);
  free(q.v);
  return d ? checked(d, ok) : NULL;
}

// ---- products ---------------------------------------------------------------------

#define DEAD UINT32_MAX

typedef struct {
  uint32_t x, y;
} pair;

typedef struct {
  const mtx_cdfa *x, *y;
  char op;
  MTX_VEC(pair, pairs);
  uint32_t *hash;  // pair number + 1
  uint32_t n_hash;
} product;

static bool is_useless(const product *p, pair s) {
  return s.x == DEAD || (p->op == '&' && s.y == DEAD);
}

static uint32_t hash_pair(pair s) {
  uint64_t h = (uint64_t)s.x * 0x9e3779b97f4a7c15u ^ (uint64_t)(s.y + 1) * 0xff51afd7ed558ccdu;
  return (uint32_t)(h >> 32);
}

static bool find_pair(product *p, pair s, uint32_t *to) {
  if ((p->n_pairs + 1) * 2 > p->n_hash) {
    uint32_t n = p->n_hash ? p->n_hash * 2 : 64;
    uint32_t *h = calloc(n, sizeof *h);
    if (!h) return false;
    for (uint32_t i = 0; i < p->n_pairs; i++) {
      uint32_t k = hash_pair(p->pairs[i]) & (n - 1);
      while (h[k]) k = (k + 1) & (n - 1);
      h[k] = i + 1;
    }
    free(p->hash);
    p->hash = h;
    p->n_hash = n;
  }
  uint32_t k = hash_pair(s) & (p->n_hash - 1);
  for (; p->hash[k]; k = (k + 1) & (p->n_hash - 1)) {
    *to = p->hash[k] - 1;
    if (p->pairs[*to].x == s.x && p->pairs[*to].y == s.y) return true;
  }
  if (!MTX_VEC_GROW(p, pairs, 1, MTX_CDFA_MAX_STATES)) return false;
  p->pairs[p->n_pairs++] = s;
  p->hash[k] = p->n_pairs;
  *to = p->n_pairs - 1;
  return true;
}

static bool product_edges(product *p, mtx_cdfa *d, pair s) {
  static const cd_state none = {0, 0, false};
  const cd_state *a = s.x == DEAD ? &none : p->x->states + s.x, *b = s.y == DEAD ? &none : p->y->states + s.y;
  const cd_edge *ea = a->n_edges ? p->x->edges + a->edge : NULL, *eb = b->n_edges ? p->y->edges + b->edge : NULL;
  uint32_t i = 0, k = 0;
  for (uint32_t c = 0; c <= 0x10ffff;) {
    while (i < a->n_edges && ea[i].hi < c) i++;
    while (k < b->n_edges && eb[k].hi < c) k++;
    if (i == a->n_edges && k == b->n_edges) break;
    uint32_t end = 0x10ffff;
    pair to = {DEAD, DEAD};
    if (i < a->n_edges) {
      if (ea[i].lo <= c) to.x = ea[i].to;
      uint32_t stop = ea[i].lo <= c ? ea[i].hi : ea[i].lo - 1;
      if (stop < end) end = stop;
    }
    if (k < b->n_edges) {
      if (eb[k].lo <= c) to.y = eb[k].to;
      uint32_t stop = eb[k].lo <= c ? eb[k].hi : eb[k].lo - 1;
      if (stop < end) end = stop;
    }
    uint32_t n;
    if (!is_useless(p, to) && !(find_pair(p, to, &n) && mtx_cdfa_edge(d, c, end, n))) return false;
    c = end + 1;
  }
  return true;
}

static mtx_cdfa *combine(const mtx_cdfa *x, const mtx_cdfa *y, char op) {
  product p = {.x = x, .y = y, .op = op};
  mtx_cdfa *d = x && y ? mtx_cdfa_new() : NULL;
  uint32_t start;
  bool ok = d && find_pair(&p, (pair){0, 0}, &start);
  for (uint32_t i = 0; ok && i < p.n_pairs; i++) {
    const pair s = p.pairs[i];
    bool in_x = s.x != DEAD && x->states[s.x].accept, in_y = s.y != DEAD && y->states[s.y].accept;
    bool accept = in_x && in_y == (op == '&');
    ok = mtx_cdfa_state(d, accept) != UINT32_MAX && product_edges(&p, d, s);
  }
  free(p.pairs);
  free(p.hash);
  if (!ok) {
    mtx_cdfa_free(d);
    return NULL;
  }
  mtx_cdfa *m = mtx_cdfa_minimize(d);
  mtx_cdfa_free(d);
  return m;
}

mtx_cdfa *mtx_cdfa_and(const mtx_cdfa *x, const mtx_cdfa *y) { return combine(x, y, '&'); }
mtx_cdfa *mtx_cdfa_minus(const mtx_cdfa *x, const mtx_cdfa *y) { return combine(x, y, '-'); }

// ---- minimising --------------------------------------------------------------------

// Refinement rounds a long chain would need; beyond, the automaton stays as it is.
#define MAX_ROUNDS 300

static uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0xff51afd7ed558ccdu;
  return h ^ h >> 29;
}

// Two independent 64-bit hashes of a state's class and its outgoing classes.
static void signature(const mtx_cdfa *d, const uint32_t *cls, uint32_t s, uint64_t sig[2]) {
  sig[0] = mix(0x1234567, cls[s]);
  sig[1] = mix(0x89abcde, cls[s]);
  const cd_state *st = d->states + s;
  for (uint32_t i = 0; i < st->n_edges;) {
    const cd_edge *e = d->edges + st->edge + i;
    uint32_t hi = e->hi, k = i + 1;
    if (cls[e->to] != DEAD) {
      while (k < st->n_edges && d->edges[st->edge + k].lo == hi + 1 && cls[d->edges[st->edge + k].to] == cls[e->to])
        hi = d->edges[st->edge + k++].hi;
      for (int j = 0; j < 2; j++) sig[j] = mix(mix(mix(sig[j], e->lo + (uint32_t)j), hi), cls[e->to]);
    }
    i = k;
  }
}

typedef struct {
  uint64_t sig[2];
  uint32_t s;
} sig_of;

static int cmp_sig(const void *x, const void *y) {
  const sig_of *a = x, *b = y;
  for (int i = 0; i < 2; i++)
    if (a->sig[i] != b->sig[i]) return a->sig[i] < b->sig[i] ? -1 : 1;
  return a->s < b->s ? -1 : a->s > b->s;
}

// cls[s] = DEAD for states that cannot reach an accepting one, else 0 or 1.
static void mark_live(const mtx_cdfa *d, uint32_t *cls) {
  for (uint32_t i = 0; i < d->n_states; i++) cls[i] = d->states[i].accept ? 1 : DEAD;
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = d->n_states; i-- > 0;) {
      if (cls[i] != DEAD) continue;
      for (uint32_t k = 0; k < d->states[i].n_edges && cls[i] == DEAD; k++)
        if (cls[d->edges[d->states[i].edge + k].to] != DEAD) cls[i] = 0, changed = true;
    }
  }
}

// Refines cls until stable; the number of classes, or 0 when it was given up.
static uint32_t refine(const mtx_cdfa *d, uint32_t *cls, sig_of *sigs) {
  uint32_t n_before = 0;
  for (int round = 0; round < MAX_ROUNDS; round++) {
    uint32_t n = 0, n_cls = 0;
    for (uint32_t i = 0; i < d->n_states; i++)
      if (cls[i] != DEAD) {
        sigs[n].s = i;
        signature(d, cls, i, sigs[n++].sig);
      }
    qsort(sigs, n, sizeof *sigs, cmp_sig);
    for (uint32_t i = 0; i < n; i++) {
      if (i && memcmp(sigs[i].sig, sigs[i - 1].sig, sizeof sigs->sig)) n_cls++;
      cls[sigs[i].s] = n_cls;
    }
    n_cls++;
    if (n_cls == n_before) return n_cls;
    n_before = n_cls;
  }
  return 0;
}

mtx_cdfa *mtx_cdfa_minimize(const mtx_cdfa *x) {
  uint32_t n = x->n_states;
  uint32_t *cls = malloc(n * sizeof *cls), *state_of = malloc(n * sizeof *state_of), *order = malloc(n * sizeof *order);
  sig_of *sigs = malloc(n * sizeof *sigs);
  mtx_cdfa *d = mtx_cdfa_new();
  bool ok = cls && state_of && order && sigs && d;
  if (ok) {
    mark_live(x, cls);
    bool dead = cls[0] == DEAD;
    if (!dead && !refine(x, cls, sigs)) {
      mark_live(x, cls);
      for (uint32_t i = 0; i < n; i++)
        if (cls[i] != DEAD) cls[i] = i;
    }
    memset(state_of, 0xff, n * sizeof *state_of);
    uint32_t n_order = 0;
    order[n_order++] = 0;
    if (!dead) state_of[cls[0]] = 0;
    for (uint32_t i = 0; ok && i < n_order; i++) {
      const cd_state *s = x->states + order[i];
      ok = mtx_cdfa_state(d, s->accept) != UINT32_MAX;
      for (uint32_t k = 0; ok && k < s->n_edges; k++) {
        const cd_edge *e = x->edges + s->edge + k;
        if (cls[e->to] == DEAD) continue;
        if (state_of[cls[e->to]] == UINT32_MAX) {
          state_of[cls[e->to]] = n_order;
          order[n_order++] = e->to;
        }
        ok = mtx_cdfa_edge(d, e->lo, e->hi, state_of[cls[e->to]]);
      }
    }
  }
  free(cls);
  free(state_of);
  free(order);
  free(sigs);
  return d ? checked(d, ok) : NULL;
}

bool mtx_cdfa_is_empty(const mtx_cdfa *x) { return !x->states[0].accept && x->states[0].n_edges == 0; }

#define MAX_COUNTABLE 64u  // states; masks of counted automata are large

// With n characters to go, which states can end? Once all can, and none is without a
// successor, they can at every later n.
bool mtx_cdfa_is_countable(const mtx_cdfa *x, uint32_t min) {
  if (x->n_states > MAX_COUNTABLE) return false;
  bool ends[MAX_COUNTABLE], before[MAX_COUNTABLE], all = false, regular = true;
  uint32_t shortest = UINT32_MAX;
  for (uint32_t i = 0; i < x->n_states; i++) {
    ends[i] = x->states[i].accept;
    regular &= x->states[i].n_edges > 0;
  }
  for (uint32_t n = 0; n <= x->n_states && !all; n++) {
    if (ends[0] && shortest == UINT32_MAX) shortest = n;
    memcpy(before, ends, sizeof ends);
    all = true;
    for (uint32_t i = 0; i < x->n_states; i++) all &= ends[i];
    for (uint32_t i = 0; i < x->n_states; i++) {
      ends[i] = false;
      for (uint32_t k = 0; k < x->states[i].n_edges; k++) ends[i] |= before[x->edges[x->states[i].edge + k].to];
      regular &= ends[i] || !before[i];
    }
  }
  return min <= shortest || (all && regular);
}

bool mtx_cdfa_match(const mtx_cdfa *d, const char *p, size_t n) {
  uint32_t s = 0, c;
  for (size_t at = 0; at < n;) {
    size_t k = mtx_utf8_get(p + at, n - at, &c);
    if (!k) return false;
    const cd_state *st = d->states + s;
    uint32_t i = 0;
    while (i < st->n_edges && d->edges[st->edge + i].hi < c) i++;
    if (i == st->n_edges || d->edges[st->edge + i].lo > c) return false;
    s = d->edges[st->edge + i].to;
    at += k;
  }
  return d->states[s].accept;
}
