// SPDX-License-Identifier: MIT
// From a regex tree to an automaton over code points, or to an expression.
//
// A pattern matches anywhere in the text, so the automaton reads
// "anything, the pattern, anything"; ^ and $ are steps that are only open at
// the first position and at the end.
#include <string.h>

#include "grammar/regex.h"

#define MAX_NFA 6000u    // states after counts are written out
#define MAX_DFA 6000u
#define MAX_SETS (2u << 20)

enum { T_EPS, T_BOL, T_EOL, T_RANGE };

typedef struct {
  uint8_t kind;
  uint32_t lo, hi, to;
  int32_t next;
} edge;

typedef struct {
  uint32_t set, n;
} dstate;

typedef struct {
  const mtx_regex *re;
  MTX_VEC(edge, edges);
  MTX_VEC(int32_t, heads);
  bool failed;
  uint32_t *stamp, round;
  MTX_VEC(uint32_t, stack);
  MTX_VEC(uint32_t, ints);
  MTX_VEC(dstate, dstates);
  uint32_t *hash, n_hash;
} ctx;

static uint32_t state(ctx *x) {
  if (x->failed || !MTX_VEC_GROW(x, heads, 1, MAX_NFA)) {
    x->failed = true;
    return 0;
  }
  x->heads[x->n_heads] = -1;
  return x->n_heads++;
}

static void link_to(ctx *x, uint32_t from, uint32_t to, uint8_t kind, uint32_t lo, uint32_t hi) {
  if (x->failed || !MTX_VEC_GROW(x, edges, 1, 200000u)) {
    x->failed = true;
    return;
  }
  x->edges[x->n_edges] = (edge){kind, lo, hi, to, x->heads[from]};
  x->heads[from] = (int32_t)x->n_edges++;
}

static void lower(ctx *x, uint32_t n_, uint32_t from, uint32_t to) {
  if (x->failed) return;
  const re_node n = x->re->nodes[n_];
  switch (n.kind) {
    case RE_EMPTY: link_to(x, from, to, T_EPS, 0, 0); break;
    case RE_BOL: link_to(x, from, to, T_BOL, 0, 0); break;
    case RE_EOL: link_to(x, from, to, T_EOL, 0, 0); break;
    case RE_CLASS:
      for (uint32_t i = 0; i < n.n; i++)
        link_to(x, from, to, T_RANGE, x->re->ranges[n.a + i].lo, x->re->ranges[n.a + i].hi);
      break;
    case RE_CAT:
      for (uint32_t i = 0; i < n.n; i++) {
        uint32_t next = i + 1 == n.n ? to : state(x);
        lower(x, x->re->kids[n.a + i], from, next);
        from = next;
      }
      break;
    case RE_ALT:
      for (uint32_t i = 0; i < n.n; i++) lower(x, x->re->kids[n.a + i], from, to);
      break;
    case RE_REP: {
      for (uint32_t i = 0; i < n.min && !x->failed; i++) {
        uint32_t next = state(x);
        lower(x, n.a, from, next);
        from = next;
      }
      if (n.max == MTX_REP_INF) {
        uint32_t s = state(x), e = state(x);
        link_to(x, from, s, T_EPS, 0, 0);
        lower(x, n.a, s, e);
        link_to(x, e, s, T_EPS, 0, 0);
        link_to(x, s, to, T_EPS, 0, 0);
        break;
      }
      for (uint32_t i = n.min; i < n.max && !x->failed; i++) {
        uint32_t next = state(x);
        link_to(x, from, to, T_EPS, 0, 0);
        lower(x, n.a, from, next);
        from = next;
      }
      link_to(x, from, to, T_EPS, 0, 0);
      break;
    }
  }
}

static void visit(ctx *x, uint32_t s) {
  if (x->stamp[s] == x->round) return;
  x->stamp[s] = x->round;
  if (!MTX_VEC_GROW(x, stack, 1, MAX_NFA))
    x->failed = true;
  else
    x->stack[x->n_stack++] = s;
}

// Closes the seeds on the stack; with `keep`, appends all members to ints. The
// result tells whether state 1, the end, is among them.
static bool close_set(ctx *x, bool bol, bool eol, bool keep) {
  bool end = false;
  while (x->n_stack && !x->failed) {
    uint32_t s = x->stack[--x->n_stack];
    end |= s == 1;
    if (keep) {
      if (!MTX_VEC_GROW(x, ints, 1, MAX_SETS))
        x->failed = true;
      else
        x->ints[x->n_ints++] = s;
    }
    for (int32_t e = x->heads[s]; e >= 0; e = x->edges[e].next) {
      uint8_t k = x->edges[e].kind;
      if (k == T_EPS || (k == T_BOL && bol) || (k == T_EOL && eol)) visit(x, x->edges[e].to);
    }
  }
  return end;
}

static int cmp_u32(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static bool grow_hash(ctx *x) {
  if ((x->n_dstates + 1) * 2 <= x->n_hash) return true;
  uint32_t n = x->n_hash ? x->n_hash * 2 : 64;
  uint32_t *h = calloc(n, sizeof *h);
  if (!h) return false;
  for (uint32_t i = 1; i < x->n_dstates; i++) {
    uint32_t k = 2166136261u;
    for (uint32_t j = 0; j < x->dstates[i].n; j++) k = (k ^ x->ints[x->dstates[i].set + j]) * 16777619u;
    for (k &= n - 1; h[k]; k = (k + 1) & (n - 1)) {
    }
    h[k] = i;
  }
  free(x->hash);
  x->hash = h;
  x->n_hash = n;
  return true;
}

// The state for the seeds on the stack. The first one made is the start (not
// found again: only there ^ is open).
static uint32_t intern(ctx *x) {
  const bool start = x->n_dstates == 0;
  const uint32_t at = x->n_ints;
  close_set(x, start, false, true);
  if (x->failed || !grow_hash(x)) {
    x->failed = true;
    return 0;
  }
  const uint32_t n = x->n_ints - at;
  if (n) qsort(x->ints + at, n, sizeof *x->ints, cmp_u32);
  uint32_t k = 2166136261u;
  for (uint32_t j = 0; j < n; j++) k = (k ^ x->ints[at + j]) * 16777619u;
  for (k &= x->n_hash - 1; x->hash[k]; k = (k + 1) & (x->n_hash - 1)) {
    const dstate *d = x->dstates + x->hash[k];
    if (!start && d->n == n && !memcmp(x->ints + d->set, x->ints + at, n * sizeof *x->ints)) {
      x->n_ints = at;
      return x->hash[k];
    }
  }
  if (!MTX_VEC_GROW(x, dstates, 1, MAX_DFA)) {
    x->failed = true;
    return 0;
  }
  x->dstates[x->n_dstates] = (dstate){at, n};
  if (!start) x->hash[k] = x->n_dstates;
  return x->n_dstates++;
}

static bool accepts(ctx *x, uint32_t i) {
  x->round++;
  for (uint32_t k = 0; k < x->dstates[i].n; k++) visit(x, x->ints[x->dstates[i].set + k]);
  return close_set(x, i == 0, true, false);
}

static int cmp_edge(const void *a, const void *b) {
  const edge *x = a, *y = b;
  return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void edges_of(ctx *x, mtx_cdfa *d, uint32_t i_state) {
  const dstate s = x->dstates[i_state];
  uint32_t n = 0, n_cut = 0;
  for (uint32_t i = 0; i < s.n; i++)
    for (int32_t e = x->heads[x->ints[s.set + i]]; e >= 0; e = x->edges[e].next) n += x->edges[e].kind == T_RANGE;
  edge *list = malloc((n + 1) * sizeof *list);
  uint32_t *cut = malloc((2 * n + 1) * sizeof *cut);
  if (!list || !cut) x->failed = true;
  n = 0;
  for (uint32_t i = 0; i < s.n && !x->failed; i++)
    for (int32_t e = x->heads[x->ints[s.set + i]]; e >= 0; e = x->edges[e].next)
      if (x->edges[e].kind == T_RANGE) {
        list[n++] = x->edges[e];
        cut[n_cut++] = x->edges[e].lo;
        cut[n_cut++] = x->edges[e].hi + 1;
      }
  if (n) {
    qsort(list, n, sizeof *list, cmp_edge);
    qsort(cut, n_cut, sizeof *cut, cmp_u32);
  }
  for (uint32_t c = 0; c + 1 < n_cut && !x->failed; c++) {
    const uint32_t lo = cut[c], hi = cut[c + 1] - 1;
    if (cut[c] == cut[c + 1]) continue;
    x->round++;
    for (uint32_t i = 0; i < n && list[i].lo <= lo; i++)
      if (list[i].hi >= hi) visit(x, list[i].to);
    if (!x->n_stack) continue;
    uint32_t to = intern(x);
    if (!x->failed && !mtx_cdfa_edge(d, lo, hi, to)) x->failed = true;
  }
  free(list);
  free(cut);
}

mtx_cdfa *mtx_regex_cdfa(const mtx_regex *re) {
  ctx x = {.re = re};
  uint32_t start = state(&x), end = state(&x), body = state(&x), after = state(&x);
  link_to(&x, start, start, T_RANGE, 0, 0x10ffff);
  link_to(&x, start, body, T_EPS, 0, 0);
  lower(&x, re->root, body, after);
  link_to(&x, after, end, T_EPS, 0, 0);
  link_to(&x, end, end, T_RANGE, 0, 0x10ffff);
  mtx_cdfa *d = mtx_cdfa_new(), *m = NULL;
  x.stamp = calloc(x.n_heads, sizeof *x.stamp);
  if (!d || !x.stamp) x.failed = true;
  if (!x.failed) {
    x.round = 1;
    visit(&x, start);
    intern(&x);
  }
  for (uint32_t i = 0; !x.failed && i < x.n_dstates; i++) {
    if (mtx_cdfa_state(d, accepts(&x, i)) == UINT32_MAX) x.failed = true;
    if (!x.failed) edges_of(&x, d, i);
  }
  if (!x.failed) m = mtx_cdfa_minimize(d);
  mtx_cdfa_free(d);
  free(x.edges);
  free(x.heads);
  free(x.stamp);
  free(x.stack);
  free(x.ints);
  free(x.dstates);
  free(x.hash);
  return m;
}

// ---- as an expression ----------------------------------------------------------------------

static bool has_anchor(const mtx_regex *re, uint32_t n_) {
  const re_node *n = re->nodes + n_;
  if (n->kind == RE_BOL || n->kind == RE_EOL) return true;
  if (n->kind == RE_REP) return has_anchor(re, n->a);
  if (n->kind == RE_CAT || n->kind == RE_ALT)
    for (uint32_t i = 0; i < n->n; i++)
      if (has_anchor(re, re->kids[n->a + i])) return true;
  return false;
}

static mtx_gx class_gx(mtx_gb *b, const mtx_regex *re, const re_node *n, bool json) {
  if (!json) return mtx_gx_class(b, re->ranges + n->a, n->n, false);
  mtx_cdfa *d = mtx_cdfa_new();
  if (!d) return mtx_gx_dfa(b, NULL, true);
  mtx_cdfa_state(d, false);
  for (uint32_t i = 0; i < n->n; i++) mtx_cdfa_edge(d, re->ranges[n->a + i].lo, re->ranges[n->a + i].hi, 1);
  mtx_cdfa_state(d, true);
  return mtx_gx_dfa(b, d, true);
}

static mtx_gx to_gx(mtx_gb *b, const mtx_regex *re, uint32_t n_, bool json) {
  const re_node *n = re->nodes + n_;
  mtx_gx x;
  switch (n->kind) {
    case RE_CLASS: return n->n ? class_gx(b, re, n, json) : MTX_GX_NEVER;
    case RE_REP: return mtx_gx_rep(b, to_gx(b, re, n->a, json), n->min, n->max);
    case RE_CAT:
      x = MTX_GX_EMPTY;
      for (uint32_t i = 0; i < n->n; i++) x = mtx_gx_cat2(b, x, to_gx(b, re, re->kids[n->a + i], json));
      return x;
    case RE_ALT:
      x = MTX_GX_NEVER;
      for (uint32_t i = 0; i < n->n; i++) x = mtx_gx_alt2(b, x, to_gx(b, re, re->kids[n->a + i], json));
      return x;
    default: return MTX_GX_EMPTY;
  }
}

bool mtx_regex_gx(mtx_gb *b, const mtx_regex *re, bool json, mtx_gx *out) {
  const re_node *n = re->nodes + re->root;
  if (n->kind != RE_CAT || n->n < 2 || re->nodes[re->kids[n->a]].kind != RE_BOL ||
      re->nodes[re->kids[n->a + n->n - 1]].kind != RE_EOL)
    return false;
  for (uint32_t i = 1; i + 1 < n->n; i++)
    if (has_anchor(re, re->kids[n->a + i])) return false;
  *out = MTX_GX_EMPTY;
  for (uint32_t i = 1; i + 1 < n->n; i++) *out = mtx_gx_cat2(b, *out, to_gx(b, re, re->kids[n->a + i], json));
  return true;
}

mtx_gx mtx_regex_expression(mtx_gb *b, const char *text, size_t len, bool json) {
  mtx_regex re;
  mtx_err err = {0};
  mtx_code code = mtx_regex_parse(text, len, &re, &err);
  if (code) {
    mtx_gb_fail(b, code, err.offset, "%s", err.msg);
    return MTX_GX_NEVER;
  }
  mtx_gx x = MTX_GX_NEVER;
  mtx_cdfa *d = mtx_regex_cdfa(&re);
  if (d)
    x = mtx_gx_dfa(b, d, json);
  else if (!mtx_regex_gx(b, &re, json, &x))
    mtx_gb_fail(b, MTX_ELIMIT, 0, "pattern: needs too many states; anchor it with ^ and $ or use smaller counts");
  mtx_regex_fini(&re);
  return x;
}

mtx_code mtx_grammar_compile_regex(const char *text, size_t len, mtx_grammar **out, mtx_err *err) {
  *out = NULL;
  mtx_gb b;
  mtx_gb_init(&b);
  uint32_t root = mtx_gb_rule(&b, "root", 4);
  mtx_gb_define(&b, root, mtx_regex_expression(&b, text, len, false));
  mtx_code code = mtx_gb_finish(&b, root, out, err);
  mtx_gb_fini(&b);
  return code;
}
