// SPDX-License-Identifier: MIT
// The step engine of step.h: no recursion, and all work is paid in fuel.
#include "grammar/step.h"

#include <string.h>

#define MAX_NODES (1u << 20)

static uint32_t hash_node(gr_node n) {
  uint64_t h = (uint64_t)(uint32_t)n.ret * 0x9e3779b97f4a7c15u;
  h = (h ^ (uint32_t)n.parent) * 0xff51afd7ed558ccdu;
  h = (h ^ n.c) * 0xc4ceb9fe1a85ec53u;
  return (uint32_t)(h >> 32);
}

static bool grow_hash(gr_stacks *s) {
  uint32_t n = s->n_hash ? s->n_hash * 2 : 64;
  int32_t *h = calloc(n, sizeof *h);
  if (!h) {
    s->status = MTX_ENOMEM;
    return false;
  }
  for (uint32_t i = 2; i < s->n_nodes; i++) {
    uint32_t k = hash_node(s->nodes[i]) & (n - 1);
    while (h[k]) k = (k + 1) & (n - 1);
    h[k] = (int32_t)i;
  }
  free(s->hash);
  s->hash = h;
  s->n_hash = n;
  return true;
}

mtx_code gr_stacks_init(gr_stacks *s, const mtx_grammar *g) {
  memset(s, 0, sizeof *s);
  s->g = g;
  if (!MTX_VEC_GROW(s, nodes, 64, MAX_NODES) || !grow_hash(s)) {
    gr_stacks_fini(s);
    return MTX_ENOMEM;
  }
  memset(s->nodes, 0, 2 * sizeof *s->nodes);
  s->n_nodes = 2;
  return MTX_OK;
}

void gr_stacks_fini(gr_stacks *s) {
  free(s->nodes);
  free(s->hash);
  free(s->work);
  memset(s, 0, sizeof *s);
}

// Slots are emptied in the reverse order of insertion, which is what makes
// emptying safe under linear probing.
void gr_stacks_truncate(gr_stacks *s, uint32_t n) {
  while (s->n_nodes > n) {
    uint32_t i = --s->n_nodes;
    uint32_t k = hash_node(s->nodes[i]) & (s->n_hash - 1);
    while (s->hash[k] != (int32_t)i) k = (k + 1) & (s->n_hash - 1);
    s->hash[k] = 0;
  }
}

void gr_stacks_collect(gr_stacks *s, gr_cfg *set, uint32_t n) {
  int32_t *to = calloc(s->n_nodes, sizeof *to);
  if (!to) return;  // nothing is lost, only not yet freed
  for (uint32_t i = 0; i < n; i++) to[set[i].parent] = 1;
  for (uint32_t i = s->n_nodes; i-- > 2;)
    if (to[i]) to[s->nodes[i].parent] = 1;
  to[0] = 0;
  to[1] = 1;
  uint32_t k = 2;
  for (uint32_t i = 2; i < s->n_nodes; i++) {
    if (!to[i]) continue;
    gr_node x = s->nodes[i];
    x.parent = to[x.parent];
    to[i] = (int32_t)k;
    s->nodes[k++] = x;
  }
  s->n_nodes = k;
  for (uint32_t i = 0; i < n; i++) set[i].parent = to[set[i].parent];
  memset(s->hash, 0, s->n_hash * sizeof *s->hash);
  for (uint32_t i = 2; i < k; i++) {
    uint32_t h = hash_node(s->nodes[i]) & (s->n_hash - 1);
    while (s->hash[h]) h = (h + 1) & (s->n_hash - 1);
    s->hash[h] = (int32_t)i;
  }
  free(to);
}

int32_t gr_stacks_push(gr_stacks *s, int32_t ret, int32_t parent, uint64_t c) {
  const gr_node n = {ret, parent, c};
  uint32_t h = hash_node(n);
  uint32_t k = h & (s->n_hash - 1);
  for (; s->hash[k]; k = (k + 1) & (s->n_hash - 1)) {
    const gr_node *o = s->nodes + s->hash[k];
    if (o->ret == ret && o->parent == parent && o->c == c) return s->hash[k];
  }
  if (!MTX_VEC_GROW(s, nodes, 1, MAX_NODES)) {
    s->status = MTX_ELIMIT;
    return GR_BOTTOM;
  }
  if ((s->n_nodes + 1) * 2 > s->n_hash) {
    if (!grow_hash(s)) return GR_BOTTOM;
    k = h & (s->n_hash - 1);
    while (s->hash[k]) k = (k + 1) & (s->n_hash - 1);
  }
  s->nodes[s->n_nodes] = n;
  s->hash[k] = (int32_t)s->n_nodes;
  return (int32_t)s->n_nodes++;
}

// ---- one position -------------------------------------------------------------------

static bool is_free_loop(const gr_stacks *s, const gr_state *st, int32_t parent) {
  return s->free_loop && parent == GR_EXIT && st->kind == GR_LOOP;
}

static bool accepts(const gr_stacks *s, const gr_state *st, gr_cfg x) {
  return is_free_loop(s, st, x.parent) || gr_accepts(s->g, st, x.c);
}

// Nothing but returning is possible.
static bool ended(const gr_stacks *s, const gr_state *st, gr_cfg x) {
  if (st->final) return true;
  if (st->kind == GR_COUNT) return st->accept && x.c >= s->g->rules[st->rule].max;
  return st->kind == GR_LOOP && !is_free_loop(s, st, x.parent) && x.c >= 1 && x.c >= s->g->rules[st->rule].max;
}

static gr_cfg settle(const gr_stacks *s, gr_cfg x) {
  while (x.parent > GR_EXIT && ended(s, s->g->states + x.d, x)) {
    const gr_node *n = s->nodes + x.parent;
    x = (gr_cfg){n->ret, n->parent, n->c};
  }
  return x;
}

// May the call be made? Then *c is the counter of the frame when it returns.
static bool call_allowed(const gr_stacks *s, const gr_state *st, const gr_call *call, gr_cfg x, uint64_t *c) {
  const gr_rule *r = s->g->rules + st->rule;
  switch (st->kind) {
    case GR_LOOP:
      *c = x.c + 1;
      if (is_free_loop(s, st, x.parent)) return true;
      if (r->max == UINT32_MAX) {
        uint64_t stop = r->min ? r->min : 1;
        if (*c > stop) *c = stop;
        return true;
      }
      return x.c < r->max;
    case GR_SET:
      *c = x.c;
      if (call->item < 0) return gr_set_more(s->g, r, x.c);  // blanks of a separator
      return gr_set_next(s->g, s->g->sets + r->set, call->item, x.c, c);
    default: *c = 0; return true;
  }
}

static bool opens_wide(const mtx_grammar *g, const gr_state *st, const gr_call *call) {
  return st->kind == GR_PLAIN && g->rules[call->rule].wide;
}

bool gr_open_wide(gr_stacks *s, gr_cfg x, uint32_t k, gr_cfg *out) {
  const gr_state *st = s->g->states + x.d;
  const gr_call *call = s->g->calls + st->call + k;
  if (!opens_wide(s->g, st, call)) return false;
  const gr_cfg back = {call->ret, x.parent, 0};
  const bool last = x.parent > GR_EXIT && ended(s, s->g->states + call->ret, back);
  *out = (gr_cfg){s->g->rules[call->rule].start, last ? x.parent : gr_stacks_push(s, call->ret, x.parent, 0), 0};
  return true;
}

static void add_range(uint64_t bits[4], uint8_t lo, uint8_t hi) {
  for (int w = lo >> 6; w <= hi >> 6; w++) {
    uint64_t m = ~0ull;
    if (w == lo >> 6) m &= ~0ull << (lo & 63);
    if (w == hi >> 6) m &= ~0ull >> (63 - (hi & 63));
    bits[w] |= m;
  }
}

void gr_bytes(const gr_stacks *s, const gr_cfg *set, uint32_t n, uint64_t bits[4]) {
  const mtx_grammar *g = s->g;
  memset(bits, 0, 4 * sizeof *bits);
  for (uint32_t i = 0; i < n; i++)
    for (gr_cfg x = set[i];;) {
      const gr_state *st = g->states + x.d;
      for (uint32_t k = 0; k < st->n_edges; k++) add_range(bits, g->edges[st->edge + k].lo, g->edges[st->edge + k].hi);
      for (uint32_t k = 0; k < st->n_calls; k++)
        for (int w = 0; w < 4; w++) bits[w] |= g->rules[g->calls[st->call + k].rule].first[w];
      if (x.parent <= GR_EXIT || !accepts(s, st, x)) break;
      const gr_node *node = s->nodes + x.parent;
      x = (gr_cfg){node->ret, node->parent, node->c};
    }
}

static void add_work(gr_stacks *s, gr_cfg x) {
  for (uint32_t i = 0; i < s->n_work; i++)
    if (s->work[i].d == x.d && s->work[i].parent == x.parent && s->work[i].c == x.c) {
      s->fuel -= i / 4;
      return;
    }
  s->fuel -= s->n_work / 4 + 1;
  if (s->fuel < 0 || !MTX_VEC_GROW(s, work, 1, GR_MAX_SET)) {
    if (!s->status) s->status = MTX_ELIMIT;
    return;
  }
  s->work[s->n_work++] = x;
}

// Extends work by what can be called or returned to before the next symbol:
// byte >= 0 keeps to calls that can begin with it, -1 to token references.
static void close_work(gr_stacks *s, int byte) {
  const mtx_grammar *g = s->g;
  const uint32_t n_given = s->n_work;
  for (uint32_t i = 0; i < s->n_work && !s->status; i++) {
    const gr_cfg x = s->work[i];
    const gr_state *st = g->states + x.d;
    for (uint32_t k = 0; k < st->n_calls && !s->status; k++) {
      const gr_call *call = g->calls + st->call + k;
      const gr_rule *r = g->rules + call->rule;
      if (byte >= 0 ? !gr_has_byte(r->first, (uint8_t)byte) : !r->first_token) continue;
      if (s->skip_wide && i < n_given && opens_wide(g, st, call)) continue;
      uint64_t c;
      if (!call_allowed(s, st, call, x, &c)) continue;
      const gr_cfg back = {call->ret, x.parent, c};
      int32_t parent = x.parent;
      if (!ended(s, g->states + call->ret, back)) parent = gr_stacks_push(s, call->ret, x.parent, c);
      if (!s->status) add_work(s, (gr_cfg){r->start, parent, 0});
    }
    if (x.parent > GR_EXIT && accepts(s, st, x)) {
      const gr_node n = s->nodes[x.parent];
      add_work(s, (gr_cfg){n.ret, n.parent, n.c});
    }
  }
}

static void add_out(gr_stacks *s, gr_cfgs *out, uint32_t from, gr_cfg x) {
  x = settle(s, x);
  for (uint32_t i = from; i < out->n_v; i++)
    if (out->v[i].d == x.d && out->v[i].parent == x.parent && out->v[i].c == x.c) return;
  s->fuel -= (out->n_v - from) / 4 + 1;
  if (out->n_v - from >= GR_MAX_SET || !MTX_VEC_GROW(out, v, 1, 1u << 26)) {
    s->status = MTX_ELIMIT;
    return;
  }
  out->v[out->n_v++] = x;
}

// The common case: one position, one look-up. 1: *next is the whole answer,
// 0: there is none, -1: not that simple.
static int step_one(gr_stacks *s, gr_cfg x, uint8_t byte, gr_cfg *next) {
  const mtx_grammar *g = s->g;
  const gr_state *st = g->states + x.d;
  if (st->n_calls == 0 && (x.parent <= GR_EXIT || !st->accept)) {
    int32_t to = gr_next(g, st, byte, x.c);
    if (to < 0 || !gr_count(g, g->states + to, &x.c)) return 0;
    *next = settle(s, (gr_cfg){to, x.parent, x.c});
    return 1;
  }
  if (st->kind != GR_LOOP) return -1;
  const bool unbound = is_free_loop(s, st, x.parent);
  if (!unbound && x.parent > GR_EXIT && gr_accepts(g, st, x.c)) return -1;
  const gr_call *call = g->calls + st->call;
  if (st->n_calls != 1) return -1;
  const gr_state *body = g->states + g->rules[call->rule].start;
  if (body->n_calls || body->kind == GR_COUNT) return -1;
  uint64_t c;
  int32_t to = gr_next(g, body, byte, 0);
  if (to < 0 || !call_allowed(s, st, call, x, &c)) return 0;
  const gr_cfg back = {x.d, x.parent, c};
  if (g->states[to].final) {
    *next = settle(s, back);
    return 1;
  }
  if (ended(s, st, back)) return -1;
  int32_t parent = gr_stacks_push(s, x.d, x.parent, c);
  if (s->status) return -1;
  *next = (gr_cfg){to, parent, 0};
  return 1;
}

uint32_t gr_step(gr_stacks *s, gr_cfgs *out, uint32_t i_in, uint32_t n_in, uint8_t byte) {
  const uint32_t from = out->n_v;
  if (n_in == 1) {
    gr_cfg next;
    int r = step_one(s, out->v[i_in], byte, &next);
    s->fuel--;
    if (r == 0) return 0;
    if (r == 1) {
      if (!MTX_VEC_GROW(out, v, 1, 1u << 26)) {
        s->status = MTX_ENOMEM;
        return 0;
      }
      out->v[out->n_v++] = next;
      return 1;
    }
  }
  s->n_work = 0;
  for (uint32_t i = 0; i < n_in; i++) add_work(s, out->v[i_in + i]);
  close_work(s, byte);
  for (uint32_t i = 0; i < s->n_work && !s->status; i++) {
    gr_cfg x = s->work[i];
    int32_t to = gr_next(s->g, s->g->states + x.d, byte, x.c);
    if (to >= 0 && gr_count(s->g, s->g->states + to, &x.c)) add_out(s, out, from, (gr_cfg){to, x.parent, x.c});
  }
  if (s->fuel < 0 && !s->status) s->status = MTX_ELIMIT;
  if (s->status) out->n_v = from;
  return out->n_v - from;
}

uint32_t gr_token_closure(gr_stacks *s, const gr_cfg *in, uint32_t n_in) {
  s->n_work = 0;
  for (uint32_t i = 0; i < n_in; i++) add_work(s, in[i]);
  close_work(s, -1);
  return s->status ? 0 : s->n_work;
}

uint32_t gr_step_token(gr_stacks *s, gr_cfgs *out, const gr_cfg *in, uint32_t n_in,
                       bool (*matches)(const void *ctx, uint32_t ref, bool negated), const void *ctx) {
  const uint32_t from = out->n_v;
  uint32_t n = gr_token_closure(s, in, n_in);
  for (uint32_t i = 0; i < n && !s->status; i++) {
    const gr_cfg x = s->work[i];
    const gr_state *st = s->g->states + x.d;
    for (uint32_t k = 0; k < st->n_toks && !s->status; k++) {
      const gr_token_edge *e = s->g->toks + st->tok + k;
      if (matches(ctx, e->ref, e->negated)) add_out(s, out, from, (gr_cfg){e->to, x.parent, x.c});
    }
  }
  return out->n_v - from;
}

bool gr_complete(const gr_stacks *s, gr_cfg x) {
  for (;;) {
    if (!accepts(s, s->g->states + x.d, x)) return false;
    if (x.parent <= GR_EXIT) return x.parent == GR_BOTTOM;
    const gr_node *n = s->nodes + x.parent;
    x = (gr_cfg){n->ret, n->parent, n->c};
  }
}

bool gr_exits(const gr_stacks *s, gr_cfg x, uint64_t *count) {
  for (;;) {
    const gr_state *st = s->g->states + x.d;
    if (!accepts(s, st, x)) return false;
    if (x.parent <= GR_EXIT) {
      *count = is_free_loop(s, st, x.parent) ? x.c : 0;
      return x.parent == GR_EXIT;
    }
    const gr_node *n = s->nodes + x.parent;
    x = (gr_cfg){n->ret, n->parent, n->c};
  }
}

uint64_t gr_begun(const gr_stacks *s, gr_cfg x) {
  if (x.parent == GR_EXIT) return x.c;
  int32_t at = x.parent;
  while (s->nodes[at].parent > GR_EXIT) at = s->nodes[at].parent;
  return s->nodes[at].c;
}
