// SPDX-License-Identifier: MIT
// From expressions to a non-deterministic byte automaton, one rule at a time.
//
// Thompson's construction: every expression becomes paths between two given
// states. Code points become their UTF-8 bytes here, so everything after this
// file sees bytes only.
#include <string.h>

#include "grammar/build.h"
#include "grammar/cdfa.h"

#define MAX_NFA_STATES 600000u
#define MAX_NFA_EDGES 1200000u
#define MAX_DEPTH 4000

int32_t mtx_nfa_state(mtx_nfa *f) {
  if (f->failed || !MTX_VEC_GROW(f, heads, 1, MAX_NFA_STATES)) {
    f->failed = true;
    return 0;
  }
  f->heads[f->n_heads] = -1;
  return (int32_t)f->n_heads++;
}

static void link_edge(mtx_nfa *f, int32_t from, nfa_edge e) {
  if (f->failed || !MTX_VEC_GROW(f, edges, 1, MAX_NFA_EDGES)) {
    f->failed = true;
    return;
  }
  e.next = f->heads[from];
  f->heads[from] = (int32_t)f->n_edges;
  f->edges[f->n_edges++] = e;
}

void mtx_nfa_byte(mtx_nfa *f, int32_t from, int32_t to, uint8_t lo, uint8_t hi) {
  link_edge(f, from, (nfa_edge){.kind = NE_BYTE, .lo = lo, .hi = hi, .to = to});
}

void mtx_nfa_eps(mtx_nfa *f, int32_t from, int32_t to) {
  link_edge(f, from, (nfa_edge){.kind = NE_EPS, .to = to});
}

// Full tails of continuation bytes, shared within one class.
typedef struct {
  mtx_nfa *f;
  int32_t to;
  int32_t tail[3];  // tail[k]: needs k + 1 continuation bytes to reach `to`; -1 not made yet
} utf8_ctx;

static int32_t full_tail(utf8_ctx *u, int k) {
  if (k == 0) return u->to;
  if (u->tail[k - 1] < 0) {
    int32_t next = full_tail(u, k - 1);
    int32_t s = mtx_nfa_state(u->f);
    mtx_nfa_byte(u->f, s, next, 0x80, 0xbf);
    u->tail[k - 1] = s;
  }
  return u->tail[k - 1];
}

// Values lo..hi of the low 6*(k+1) bits; `mark` is or-ed to the first byte
// (the lead byte's bits, or 0x80).
static void utf8_split(utf8_ctx *u, int k, uint32_t lo, uint32_t hi, uint8_t mark, int32_t from) {
  uint32_t mask = (1u << (6 * k)) - 1;
  if (k == 0 || ((lo & mask) == 0 && (hi & mask) == mask)) {
    mtx_nfa_byte(u->f, from, full_tail(u, k), (uint8_t)(mark | (lo >> (6 * k))), (uint8_t)(mark | (hi >> (6 * k))));
    return;
  }
  if (lo >> (6 * k) == hi >> (6 * k)) {
    int32_t s = mtx_nfa_state(u->f);
    uint8_t b = (uint8_t)(mark | (lo >> (6 * k)));
    mtx_nfa_byte(u->f, from, s, b, b);
    utf8_split(u, k - 1, lo & mask, hi & mask, 0x80, s);
    return;
  }
  if (lo & mask) {
    utf8_split(u, k, lo, lo | mask, mark, from);
    lo = (lo | mask) + 1;
  }
  if ((hi & mask) != mask) {
    utf8_split(u, k, hi & ~mask, hi, mark, from);
    hi = (hi & ~mask) - 1;
  }
  if (lo <= hi) utf8_split(u, k, lo, hi, mark, from);
}

static void utf8_range(utf8_ctx *u, int32_t from, uint32_t lo, uint32_t hi) {
  static const struct {
    uint32_t lo, hi;
    int k;
    uint8_t mark;
  } part[] = {{0, 0x7f, 0, 0},          {0x80, 0x7ff, 1, 0xc0},      {0x800, 0xd7ff, 2, 0xe0},
              {0xe000, 0xffff, 2, 0xe0}, {0x10000, 0x10ffff, 3, 0xf0}};
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    uint32_t a = lo > part[i].lo ? lo : part[i].lo, z = hi < part[i].hi ? hi : part[i].hi;
    if (a <= z) utf8_split(u, part[i].k, a, z, part[i].mark, from);
  }
}

// ---- code points inside a JSON string (RFC 8259, section 7) --------------------
// Written as themselves, except '"', '\' and the controls, which take their
// short escape or \u00XX. Other characters have no second spelling here: a
// generated key or patterned text needs none, and comparing texts stays exact.

static void json_escape(mtx_nfa *f, int32_t from, int32_t to, uint32_t c) {
  static const char *const shorts = "\"\"\\\\\bb\ff\nn\rr\tt";
  int32_t s = mtx_nfa_state(f);
  mtx_nfa_byte(f, from, s, '\\', '\\');
  for (const char *p = shorts; *p; p += 2)
    if ((uint8_t)*p == c) {
      mtx_nfa_byte(f, s, to, (uint8_t)p[1], (uint8_t)p[1]);
      return;
    }
  const uint8_t digits[4] = {'0', '0', (uint8_t)('0' + (c >> 4)), (uint8_t)"0123456789abcdef"[c & 15]};
  for (int i = -1; i < 4; i++) {
    uint8_t d = i < 0 ? 'u' : digits[i];
    int32_t next = i == 3 ? to : mtx_nfa_state(f);
    mtx_nfa_byte(f, s, next, d, d);
    if (i == 3 && d >= 'a') mtx_nfa_byte(f, s, next, (uint8_t)(d - 32), (uint8_t)(d - 32));
    s = next;
  }
}

// Where the characters that lead to one state share their paths.
typedef struct {
  utf8_ctx u;
  int32_t controls;  // after a backslash: the escapes of all controls; -1 not made yet
} json_ctx;

static int32_t all_controls(json_ctx *j) {
  if (j->controls >= 0) return j->controls;
  mtx_nfa *f = j->u.f;
  int32_t s = j->controls = mtx_nfa_state(f);
  for (const char *p = "bfnrt"; *p; p++) mtx_nfa_byte(f, s, j->u.to, (uint8_t)*p, (uint8_t)*p);
  static const uint8_t digit[4][2] = {{'u', 'u'}, {'0', '0'}, {'0', '0'}, {'0', '1'}};
  for (int i = 0; i < 4; i++) {
    int32_t next = mtx_nfa_state(f);
    mtx_nfa_byte(f, s, next, digit[i][0], digit[i][1]);
    s = next;
  }
  mtx_nfa_byte(f, s, j->u.to, '0', '9');
  mtx_nfa_byte(f, s, j->u.to, 'A', 'F');
  mtx_nfa_byte(f, s, j->u.to, 'a', 'f');
  return j->controls;
}

static void json_range(json_ctx *j, int32_t from, uint32_t lo, uint32_t hi) {
  mtx_nfa *f = j->u.f;
  if (lo == 0 && hi >= 0x1f)
    mtx_nfa_byte(f, from, all_controls(j), '\\', '\\');
  else
    for (uint32_t c = lo; c <= hi && c < 0x20; c++) json_escape(f, from, j->u.to, c);
  if (lo <= '"' && hi >= '"') json_escape(f, from, j->u.to, '"');
  if (lo <= '\\' && hi >= '\\') json_escape(f, from, j->u.to, '\\');
  static const mtx_cprange plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x10ffff}};
  for (size_t i = 0; i < 3; i++) {
    uint32_t a = lo > plain[i].lo ? lo : plain[i].lo, z = hi < plain[i].hi ? hi : plain[i].hi;
    if (a <= z) utf8_range(&j->u, from, a, z);
  }
}

void mtx_nfa_dfa(mtx_nfa *f, const mtx_cdfa *d, bool json, int32_t from, int32_t to) {
  int32_t base = (int32_t)f->n_heads;
  f->chars = base;
  f->n_chars = (int32_t)d->n_states;
  for (uint32_t i = 0; i < d->n_states; i++) mtx_nfa_state(f);
  json_ctx *ctx = malloc(d->n_states * sizeof *ctx);
  if (!ctx) f->failed = true;
  for (uint32_t i = 0; i < d->n_states && !f->failed; i++)
    ctx[i] = (json_ctx){{f, base + (int32_t)i, {-1, -1, -1}}, -1};
  if (!f->failed) mtx_nfa_eps(f, from, base);
  for (uint32_t i = 0; i < d->n_states && !f->failed; i++) {
    const cd_state *s = d->states + i;
    if (s->accept) mtx_nfa_eps(f, base + (int32_t)i, to);
    for (uint32_t k = 0; k < s->n_edges; k++) {
      const cd_edge *e = d->edges + s->edge + k;
      if (json)
        json_range(ctx + e->to, base + (int32_t)i, e->lo, e->hi);
      else
        utf8_range(&ctx[e->to].u, base + (int32_t)i, e->lo, e->hi);
    }
  }
  free(ctx);
}

static void call_edge(mtx_gb *b, mtx_nfa *f, uint32_t rule, int32_t item, int32_t from, int32_t to) {
  link_edge(f, from, (nfa_edge){.kind = NE_CALL, .arg = rule, .item = item, .to = to});
}

// Recursion follows the nesting of the expression, which the front ends bound.
static void lower(mtx_gb *b, mtx_nfa *f, mtx_gx x, int32_t from, int32_t to, int depth) {
  if (f->failed) return;
  if (depth > MAX_DEPTH) {
    f->failed = true;
    return;
  }
  const gx_node *n = b->nodes + x;
  switch (n->kind) {
    case GX_EMPTY: mtx_nfa_eps(f, from, to); break;
    case GX_NEVER: break;
    case GX_LIT:
      for (uint32_t i = 0; i < n->n; i++) {
        int32_t next = i + 1 == n->n ? to : mtx_nfa_state(f);
        mtx_nfa_byte(f, from, next, b->bytes[n->a + i], b->bytes[n->a + i]);
        from = next;
      }
      break;
    case GX_CLASS: {
      utf8_ctx u = {f, to, {-1, -1, -1}};
      for (uint32_t i = 0; i < n->n; i++) utf8_range(&u, from, b->ranges[n->a + i].lo, b->ranges[n->a + i].hi);
      break;
    }
    case GX_CAT:
      for (uint32_t i = 0; i < n->n; i++) {
        int32_t next = i + 1 == n->n ? to : mtx_nfa_state(f);
        lower(b, f, b->kids[n->a + i], from, next, depth + 1);
        from = next;
      }
      break;
    case GX_ALT:
      for (uint32_t i = 0; i < n->n; i++) lower(b, f, b->kids[n->a + i], from, to, depth + 1);
      break;
    case GX_OPT:
      mtx_nfa_eps(f, from, to);
      lower(b, f, n->a, from, to, depth + 1);
      break;
    case GX_STAR:
    case GX_PLUS: {
      int32_t s = mtx_nfa_state(f), t = mtx_nfa_state(f);
      mtx_nfa_eps(f, from, s);
      lower(b, f, n->a, s, t, depth + 1);
      mtx_nfa_eps(f, t, s);
      mtx_nfa_eps(f, n->kind == GX_PLUS ? t : s, to);
      break;
    }
    case GX_REF:
      call_edge(b, f, n->a, -1, from, to);
      if (n->nullable) mtx_nfa_eps(f, from, to);
      break;
    case GX_TOKEN:
      link_edge(f, from, (nfa_edge){.kind = NE_TOKEN, .arg = n->a, .negated = n->flag, .to = to});
      break;
    case GX_DFA: mtx_nfa_dfa(f, b->dfas[n->a], n->flag, from, to); break;
  }
}

void mtx_nfa_lower(mtx_gb *b, uint32_t rule, mtx_nfa *f) {
  f->n_edges = f->n_heads = 0;
  f->failed = false;
  int32_t start = mtx_nfa_state(f), end = mtx_nfa_state(f);
  const gb_rule *r = b->rules + rule;
  if (r->kind == GR_SET) {
    int32_t next = mtx_nfa_state(f);
    lower(b, f, r->sep, end, next, 0);
    for (uint32_t i = 0; i < r->n_items; i++) {
      call_edge(b, f, b->items[r->item + i].rule, b->items[r->item + i].item, start, end);
      call_edge(b, f, b->items[r->item + i].rule, b->items[r->item + i].item, next, end);
    }
  } else {
    lower(b, f, r->body, start, end, 0);
  }
  if (f->failed)
    mtx_gb_fail(b, MTX_ELIMIT, 0, "rule %.*s is too large or nested too deeply", (int)r->n_name, b->text + r->name);
}
