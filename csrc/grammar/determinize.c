// SPDX-License-Identifier: MIT
// Subset construction over one rule's byte automaton.
//
// Calls are symbols like bytes: all targets of calls of one rule become one
// return state. The start state never accepts, because the empty match is an
// epsilon at the call site; when the loop returns to the same set of states
// it therefore gets a second, accepting state.
#include <string.h>

#include "grammar/build.h"

#define MAX_SET_INTS (4u << 20)
#define MAX_EDGES 2000000u

typedef struct {
  uint32_t set, n_set;  // into ints
  uint64_t hash;
} det_state;

typedef struct {
  int32_t to, next;
} det_item;

typedef struct {
  mtx_gb *b;
  const mtx_nfa *f;
  mtx_grammar *g;
  MTX_VEC(det_state, states);
  MTX_VEC(int32_t, ints);
  MTX_VEC(det_item, lists);
  MTX_VEC(int32_t, stack);
  uint32_t *stamp;  // per NFA state: round of the closure that met it
  uint32_t round;
  int32_t *table;  // hash table of det states, -1 empty
  uint32_t n_table;
  int32_t base;  // g->n_states when this rule began
} det;

static bool too_large(det *t) {
  mtx_gb_fail(t->b, MTX_ELIMIT, 0, "the grammar needs too many states (limit %u); make it smaller",
              MTX_GRAMMAR_MAX_STATES);
  return false;
}

static int cmp_int(const void *x, const void *y) {
  int32_t a = *(const int32_t *)x, c = *(const int32_t *)y;
  return a < c ? -1 : a > c;
}

static bool visit(det *t, int32_t s) {
  if (t->stamp[s] == t->round) return true;
  t->stamp[s] = t->round;
  if (!MTX_VEC_GROW(t, stack, 1, MAX_SET_INTS)) return too_large(t);
  t->stack[t->n_stack++] = s;
  return true;
}

// Pops the seeds on t->stack and appends the states that matter (those with
// an edge that is no epsilon, and the end) to ints, sorted.
static bool close_set(det *t, uint32_t *at, uint32_t *n) {
  *at = t->n_ints;
  while (t->n_stack) {
    int32_t s = t->stack[--t->n_stack];
    bool matters = s == 1;
    for (int32_t e = t->f->heads[s]; e >= 0; e = t->f->edges[e].next) {
      if (t->f->edges[e].kind != NE_EPS)
        matters = true;
      else if (!visit(t, t->f->edges[e].to))
        return false;
    }
    if (matters) {
      if (!MTX_VEC_GROW(t, ints, 1, MAX_SET_INTS)) return too_large(t);
      t->ints[t->n_ints++] = s;
    }
  }
  *n = t->n_ints - *at;
  bool sorted = true;
  for (uint32_t i = 1; i < *n && sorted; i++) sorted = t->ints[*at + i - 1] < t->ints[*at + i];
  if (!sorted) qsort(t->ints + *at, *n, sizeof *t->ints, cmp_int);
  return true;
}

static bool rehash(det *t) {
  uint32_t n = t->n_table ? t->n_table * 2 : 64;
  int32_t *table = malloc(n * sizeof *table);
  if (!table) return too_large(t);
  memset(table, 0xff, n * sizeof *table);
  for (uint32_t i = 0; i < t->n_states; i++) {
    if (!t->states[i].hash) continue;
    uint32_t h = (uint32_t)t->states[i].hash & (n - 1);
    while (table[h] >= 0) h = (h + 1) & (n - 1);
    table[h] = (int32_t)i;
  }
  free(t->table);
  t->table = table;
  t->n_table = n;
  return true;
}

// Between two characters of the rule's DFA? The sets of a DFA's own texts hold either only such states or none.
static bool between_characters(const det *t, uint32_t at, uint32_t n) {
  return n && (t->ints[at] == 1 || (t->ints[at] >= t->f->chars && t->ints[at] < t->f->chars + t->f->n_chars));
}

static int32_t add_state(det *t, uint32_t at, uint32_t n, uint64_t hash, bool accept, uint32_t rule) {
  if (!MTX_VEC_GROW(t, states, 1, MTX_GRAMMAR_MAX_STATES) ||
      !MTX_VEC_GROW(t->g, states, 1, MTX_GRAMMAR_MAX_STATES)) {
    too_large(t);
    return -1;
  }
  t->states[t->n_states] = (det_state){at, n, hash};
  t->g->states[t->g->n_states++] =
      (gr_state){.table = -1, .rule = rule, .accept = accept, .kind = t->g->rules[rule].kind, .tick = between_characters(t, at, n)};
  return (int32_t)t->n_states++;
}

// The state for the closure of the seeds on t->stack; -1 after a failure.
static int32_t intern(det *t, uint32_t rule, bool is_start) {
  uint32_t at, n;
  if (!close_set(t, &at, &n)) return -1;
  uint64_t hash = 1469598103934665603u;
  bool accept = false;
  for (uint32_t i = 0; i < n; i++) {
    hash = (hash ^ (uint32_t)t->ints[at + i]) * 1099511628211u;
    accept |= t->ints[at + i] == 1;
  }
  hash ^= hash >> 29;
  hash |= 1u << 31;
  if (is_start && accept) return add_state(t, at, n, 0, false, rule);
  if (t->n_states * 2 >= t->n_table && !rehash(t)) return -1;
  uint32_t h = (uint32_t)hash & (t->n_table - 1);
  for (; t->table[h] >= 0; h = (h + 1) & (t->n_table - 1)) {
    const det_state *s = t->states + t->table[h];
    if (s->hash == hash && s->n_set == n && !memcmp(t->ints + s->set, t->ints + at, n * sizeof *t->ints)) {
      t->n_ints = at;
      return t->table[h];
    }
  }
  int32_t s = add_state(t, at, n, hash, accept, rule);
  if (s >= 0) t->table[h] = s;
  return s;
}

static bool list_add(det *t, int32_t *head, int32_t to) {
  if (!MTX_VEC_GROW(t, lists, 1, MAX_SET_INTS)) return too_large(t);
  t->lists[t->n_lists] = (det_item){to, *head};
  *head = (int32_t)t->n_lists++;
  return true;
}

static int32_t intern_list(det *t, int32_t head, uint32_t rule) {
  t->round++;
  t->n_stack = 0;
  for (int32_t i = head; i >= 0; i = t->lists[i].next)
    if (!visit(t, t->lists[i].to)) return -1;
  int32_t s = intern(t, rule, false);
  return s < 0 ? -1 : t->base + s;
}

static bool byte_edges(det *t, uint32_t i_state, uint32_t rule) {
  uint8_t brk[257] = {0};
  const det_state s = t->states[i_state];
  bool any = false;
  for (uint32_t i = 0; i < s.n_set; i++)
    for (int32_t e = t->f->heads[t->ints[s.set + i]]; e >= 0; e = t->f->edges[e].next)
      if (t->f->edges[e].kind == NE_BYTE) {
        brk[t->f->edges[e].lo] = brk[t->f->edges[e].hi + 1] = 1;
        any = true;
      }
  if (!any) return true;
  int iv_of[256], n_iv = 0;
  for (int c = 0; c < 256; c++) {
    if (c && brk[c]) n_iv++;
    iv_of[c] = n_iv;
  }
  int32_t heads[256];
  memset(heads, 0xff, sizeof heads);
  t->n_lists = 0;
  for (uint32_t i = 0; i < s.n_set; i++)
    for (int32_t e = t->f->heads[t->ints[s.set + i]]; e >= 0; e = t->f->edges[e].next) {
      const nfa_edge *x = t->f->edges + e;
      if (x->kind != NE_BYTE) continue;
      for (int iv = iv_of[x->lo]; iv <= iv_of[x->hi]; iv++)
        if (!list_add(t, heads + iv, x->to)) return false;
    }
  gr_state *out = t->g->states + t->base + i_state;
  for (int c = 0; c < 256;) {
    int end = c;
    while (end < 256 && iv_of[end] == iv_of[c]) end++;
    if (heads[iv_of[c]] >= 0) {
      int32_t to = intern_list(t, heads[iv_of[c]], rule);
      if (to < 0) return false;
      out = t->g->states + t->base + i_state;
      gr_edge *last = out->n_edges ? t->g->edges + t->g->n_edges - 1 : NULL;
      if (last && last->hi + 1 == c && last->to == to) {
        last->hi = (uint8_t)(end - 1);
      } else {
        if (!MTX_VEC_GROW(t->g, edges, 1, MAX_EDGES)) return too_large(t);
        t->g->edges[t->g->n_edges++] = (gr_edge){(uint8_t)c, (uint8_t)(end - 1), to};
        out->n_edges++;
      }
    }
    c = end;
  }
  return true;
}

static int cmp_edge(const void *x, const void *y) {
  const nfa_edge *a = x, *c = y;
  if (a->kind != c->kind) return a->kind - c->kind;
  if (a->arg != c->arg) return a->arg < c->arg ? -1 : 1;
  if (a->item != c->item) return a->item < c->item ? -1 : 1;
  return a->negated - c->negated;
}

// Calls and token references, grouped by what they name.
static bool named_edges(det *t, uint32_t i_state, uint32_t rule) {
  const det_state s = t->states[i_state];
  uint32_t n = 0;
  for (uint32_t i = 0; i < s.n_set; i++)
    for (int32_t e = t->f->heads[t->ints[s.set + i]]; e >= 0; e = t->f->edges[e].next)
      n += t->f->edges[e].kind == NE_CALL || t->f->edges[e].kind == NE_TOKEN;
  if (!n) return true;
  nfa_edge *all = malloc(n * sizeof *all);
  if (!all) return too_large(t);
  n = 0;
  for (uint32_t i = 0; i < s.n_set; i++)
    for (int32_t e = t->f->heads[t->ints[s.set + i]]; e >= 0; e = t->f->edges[e].next)
      if (t->f->edges[e].kind == NE_CALL || t->f->edges[e].kind == NE_TOKEN) all[n++] = t->f->edges[e];
  qsort(all, n, sizeof *all, cmp_edge);
  bool ok = true;
  for (uint32_t i = 0; ok && i < n;) {
    uint32_t end = i;
    int32_t head = -1;
    t->n_lists = 0;
    while (ok && end < n && cmp_edge(all + i, all + end) == 0) ok = list_add(t, &head, all[end++].to);
    int32_t to = ok ? intern_list(t, head, rule) : -1;
    ok = to >= 0;
    gr_state *out = t->g->states + t->base + i_state;
    if (ok && all[i].kind == NE_CALL) {
      ok = MTX_VEC_GROW(t->g, calls, 1, MAX_EDGES) || too_large(t);
      if (ok) t->g->calls[t->g->n_calls++] = (gr_call){all[i].arg, to, all[i].item};
      out->n_calls += ok;
    } else if (ok) {
      ok = MTX_VEC_GROW(t->g, toks, 1, MAX_EDGES) || too_large(t);
      if (ok) t->g->toks[t->g->n_toks++] = (gr_token_edge){all[i].arg, to, all[i].negated};
      out->n_toks += ok;
    }
    i = end;
  }
  free(all);
  return ok;
}

mtx_code mtx_nfa_determinize(mtx_gb *b, const mtx_nfa *f, uint32_t rule, mtx_grammar *g) {
  det t = {.b = b, .f = f, .g = g, .base = (int32_t)g->n_states};
  g->rules[rule].start = t.base;
  t.stamp = calloc(f->n_heads, sizeof *t.stamp);
  if (!t.stamp) {
    mtx_gb_fail(b, MTX_ENOMEM, 0, "out of memory");
    return b->code;
  }
  t.round = 1;
  bool ok = visit(&t, 0) && intern(&t, rule, true) >= 0;
  for (uint32_t i = 0; ok && i < t.n_states; i++) {
    gr_state *s = g->states + t.base + i;
    s->edge = g->n_edges;
    s->call = g->n_calls;
    s->tok = g->n_toks;
    ok = byte_edges(&t, i, rule) && named_edges(&t, i, rule) && ((i & 63) || mtx_gb_in_time(b));
  }
  free(t.stamp);
  free(t.states);
  free(t.ints);
  free(t.lists);
  free(t.stack);
  free(t.table);
  return b->code;
}
