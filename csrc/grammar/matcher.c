// SPDX-License-Identifier: MIT
// One position in a grammar: what may come next, and moving on.
//
// The set of positions is exact; masks are assembled from the shared entries
// of mask.h plus, per stack, the tokens that leave the frame. Those are kept
// too, so inside one string only its first token pays for them.
#include <stdio.h>
#include <string.h>

#include "grammar/mask.h"
#include "grammar/trigger.h"

#define STEP_FUEL 20000000ll    // positions per byte or mask; far above any sane grammar
#define COLLECT_NODES 4096u     // collect unused stack nodes above this
#define N_LEAVES 256u           // remembered (frame, stack) pairs

typedef struct {
  bool used;
  mask_key key;
  int32_t stack;
  uint32_t n;
  uint32_t *ids, *counts;
} leave;

struct mtx_matcher {
  mtx_grammar *g;
  mtx_vocab_trie *trie;
  mask_cache *cache;
  gr_stacks stacks;
  gr_cfgs cur;
  gr_cfgs next;       // scratch
  uint32_t collect_at;
  bool empty_ok;      // nothing was taken yet and the empty text is complete
  bool finished;      // an EOG token was taken
  mtx_trigger *trigger;  // NULL: constrained from the first byte
  uint32_t start_rule;
  bool has_walk;
  mask_walk walk;
  leave *leaves;      // [N_LEAVES], NULL until the first mask
  uint64_t *scratch;  // one mask
};

static void drop_leaves(mtx_matcher *m) {
  if (!m->leaves) return;
  for (uint32_t i = 0; i < N_LEAVES; i++) {
    free(m->leaves[i].ids);
    free(m->leaves[i].counts);
  }
  memset(m->leaves, 0, N_LEAVES * sizeof *m->leaves);
}

void mtx_matcher_free(mtx_matcher *m) {
  if (!m) return;
  drop_leaves(m);
  free(m->leaves);
  free(m->scratch);
  if (m->has_walk) mtx_mask_walk_fini(&m->walk);
  gr_stacks_fini(&m->stacks);
  free(m->cur.v);
  free(m->next.v);
  mtx_trigger_free(m->trigger);
  mtx_mask_cache_unref(m->cache);
  mtx_vocab_trie_unref(m->trie);
  mtx_grammar_unref(m->g);
  free(m);
}

// The positions before the first byte; room for one must be there.
static void put_start(const mtx_matcher *m, gr_cfgs *to) {
  const gr_rule *r = m->g->rules + m->start_rule;
  to->n_v = 0;
  if (r->productive) to->v[to->n_v++] = (gr_cfg){r->start, GR_BOTTOM, 0};
}

static void start_set(mtx_matcher *m) {
  put_start(m, &m->cur);
  m->empty_ok = m->g->rules[m->start_rule].nullable;
}

mtx_code mtx_matcher_new(mtx_grammar *g, mtx_vocab_trie *trie, const mtx_matcher_opts *opts, mtx_matcher **out,
                         mtx_err *err) {
  *out = NULL;
  mtx_matcher *m = calloc(1, sizeof *m);
  mtx_code code = MTX_ENOMEM;
  if (!m) goto fail;
  m->g = mtx_grammar_ref(g);
  m->collect_at = COLLECT_NODES;
  if (trie) {
    m->trie = mtx_vocab_trie_ref(trie);
    if ((code = mtx_mask_cache_get(g, trie, &m->cache, err))) {
      mtx_matcher_free(m);
      return code;
    }
  }
  if ((code = gr_stacks_init(&m->stacks, g))) goto fail;
  code = MTX_ENOMEM;
  if (!MTX_VEC_GROW(&m->cur, v, 16, 1u << 20)) goto fail;
  m->start_rule = opts && opts->skip_ws ? g->ws_root : g->root;
  if (opts && opts->n_triggers) {
    if ((code = mtx_trigger_new(opts, trie, &m->trigger, err))) {
      mtx_matcher_free(m);
      return code;
    }
  }
  start_set(m);
  *out = m;
  return MTX_OK;
fail:
  mtx_matcher_free(m);
  return mtx_fail(err, code, "out of memory");
}

mtx_code mtx_matcher_clone(const mtx_matcher *m, mtx_matcher **out, mtx_err *err) {
  *out = NULL;
  mtx_matcher *c = calloc(1, sizeof *c);
  if (!c) return mtx_fail(err, MTX_ENOMEM, "out of memory");
  c->g = mtx_grammar_ref(m->g);
  if (m->trie) c->trie = mtx_vocab_trie_ref(m->trie);
  if (m->cache) {
    atomic_fetch_add(&m->cache->refs_held, 1);
    c->cache = m->cache;
  }
  c->collect_at = m->collect_at;
  c->empty_ok = m->empty_ok;
  c->finished = m->finished;
  c->start_rule = m->start_rule;
  bool ok = !gr_stacks_copy(&c->stacks, &m->stacks) && MTX_VEC_GROW(&c->cur, v, m->cur.n_v + 16, 1u << 20) &&
            (!m->trigger || (c->trigger = mtx_trigger_copy(m->trigger)));
  if (!ok) {
    mtx_matcher_free(c);
    return mtx_fail(err, MTX_ENOMEM, "out of memory");
  }
  memcpy(c->cur.v, m->cur.v, m->cur.n_v * sizeof *m->cur.v);
  c->cur.n_v = m->cur.n_v;
  *out = c;
  return MTX_OK;
}

// ---- moving on ---------------------------------------------------------------------------

static mtx_code too_ambiguous(mtx_code code, mtx_err *err) {
  if (code == MTX_ENOMEM) return mtx_fail(err, code, "out of memory");
  return mtx_fail(err, MTX_ELIMIT, "the grammar is too ambiguous at this point to be followed; make its alternatives start differently");
}

static void collect(mtx_matcher *m) {
  if (m->stacks.n_nodes < m->collect_at) return;
  gr_stacks_collect(&m->stacks, m->cur.v, m->cur.n_v);
  drop_leaves(m);
  m->collect_at = m->stacks.n_nodes * 2 > COLLECT_NODES ? m->stacks.n_nodes * 2 : COLLECT_NODES;
}

// Positions of set A (in a->v[0..n_v)) after bytes, into the same vector; the
// number of bytes taken. a->n_v is the set that stands before the next byte.
static size_t run_bytes(mtx_matcher *m, gr_cfgs *a, const char *p, size_t n) {
  m->stacks.fuel = STEP_FUEL;
  m->stacks.status = MTX_OK;
  for (size_t i = 0; i < n; i++) {
    uint32_t n_old = a->n_v;
    uint32_t k = gr_step(&m->stacks, a, 0, n_old, (uint8_t)p[i]);
    if (!k) {
      a->n_v = n_old;
      return i;
    }
    memmove(a->v, a->v + n_old, k * sizeof *a->v);
    a->n_v = k;
  }
  return n;
}

// No text of the grammar begins like what has come; only the opening text is left.
static void leave_grammar(mtx_matcher *m) {
  m->cur.n_v = 0;
  m->empty_ok = false;
}

mtx_code mtx_matcher_accept_bytes(mtx_matcher *m, const char *bytes, size_t len, size_t *n_ok, mtx_err *err) {
  size_t at = 0;
  if (n_ok) *n_ok = 0;
  if (m->trigger && mtx_trigger_choosing(m->trigger)) {
    switch (mtx_trigger_open(m->trigger, bytes, len, &at)) {
      case MTX_OPENING_WHOLE: start_set(m); break;
      case MTX_OPENING_PART:
        if (run_bytes(m, &m->cur, bytes, len) < len) leave_grammar(m);
        m->empty_ok = false;
        if (n_ok) *n_ok = len;
        return m->stacks.status ? too_ambiguous(m->stacks.status, err) : MTX_OK;
      case MTX_OPENING_BLANK:
      case MTX_OPENING_NO: break;
    }
  }
  if (m->trigger && mtx_trigger_waiting(m->trigger)) at += mtx_trigger_feed(m->trigger, bytes + at, len - at);
  while (at < len) {
    size_t part = len - at < 512 ? len - at : 512;  // fuel and collecting are per part
    size_t k = m->finished ? 0 : run_bytes(m, &m->cur, bytes + at, part);
    at += k;
    if (k) m->empty_ok = false;
    if (n_ok) *n_ok = at;
    if (m->stacks.status) return too_ambiguous(m->stacks.status, err);
    if (k < part)
      return mtx_fail_at(err, MTX_EINVAL, NULL, NULL, at, "byte 0x%02x cannot come here", (unsigned char)bytes[at]);
    collect(m);
  }
  if (n_ok) *n_ok = at;
  return MTX_OK;
}

typedef struct {
  const mask_cache *cache;
  uint32_t id;
} ref_ctx;

static bool ref_is(const void *ctx, uint32_t ref, bool negated) {
  const ref_ctx *r = ctx;
  return (r->cache->ref_tokens[ref] == r->id) != negated;
}

// Free text p[0..n) of a token; `before`: the trigger's state before the whole token.
static mtx_code accept_free(mtx_matcher *m, uint32_t id, const char *p, size_t n, mtx_trigger_state before, mtx_err *err) {
  size_t at = mtx_trigger_feed(m->trigger, p, n);
  if (at == n) return MTX_OK;
  size_t k = run_bytes(m, &m->cur, p + at, n - at);
  if (k == n - at) {
    m->empty_ok = false;
    return MTX_OK;
  }
  mtx_code status = m->stacks.status;
  mtx_trigger_restore(m->trigger, before);
  start_set(m);
  if (status) return too_ambiguous(status, err);
  return mtx_fail(err, MTX_EINVAL, "token %u goes on after the trigger in a way the grammar does not allow", id);
}

// Whether free text p[0..n) may come: if a trigger ends inside, the grammar must take the rest. Changes nothing.
static bool free_allows(mtx_matcher *m, const char *p, size_t n) {
  const mtx_trigger_state before = mtx_trigger_save(m->trigger);
  const size_t at = mtx_trigger_feed(m->trigger, p, n);
  mtx_trigger_restore(m->trigger, before);
  m->stacks.status = MTX_OK;
  if (at == n) return true;
  if (!MTX_VEC_GROW(&m->next, v, 16, 1u << 20)) {
    m->stacks.status = MTX_ENOMEM;
    return false;
  }
  const uint32_t n_nodes = m->stacks.n_nodes;
  put_start(m, &m->next);
  const bool ok = run_bytes(m, &m->next, p + at, n - at) == n - at;
  gr_stacks_truncate(&m->stacks, n_nodes);
  return ok;
}

static mtx_code accept_constrained(mtx_matcher *m, uint32_t id, mtx_err *err) {
  const uint8_t flags = m->trie->flags[id];
  m->next.n_v = 0;
  if (m->g->n_toks) {
    m->stacks.fuel = STEP_FUEL;
    m->stacks.status = MTX_OK;
    gr_step_token(&m->stacks, &m->next, m->cur.v, m->cur.n_v, ref_is, &(ref_ctx){m->cache, id});
    if (m->stacks.status) return too_ambiguous(m->stacks.status, err);
  }
  const uint32_t n_named = m->next.n_v, n = m->trie->offsets[id + 1] - m->trie->offsets[id];
  bool by_bytes = false;
  if (!flags && n) {
    gr_cfgs copy = {0};
    if (!MTX_VEC_GROW(&copy, v, m->cur.n_v + 16, 1u << 20)) return mtx_fail(err, MTX_ENOMEM, "out of memory");
    memcpy(copy.v, m->cur.v, m->cur.n_v * sizeof *copy.v);
    copy.n_v = m->cur.n_v;
    by_bytes = run_bytes(m, &copy, m->trie->bytes + m->trie->offsets[id], n) == n;
    bool ok = !m->stacks.status && (!by_bytes || MTX_VEC_GROW(&m->next, v, copy.n_v, 1u << 20));
    if (ok && by_bytes) {
      memcpy(m->next.v + n_named, copy.v, copy.n_v * sizeof *copy.v);
      m->next.n_v += copy.n_v;
    }
    free(copy.v);
    if (!ok) return too_ambiguous(m->stacks.status ? m->stacks.status : MTX_ENOMEM, err);
  }
  if (!n_named && !by_bytes) return mtx_fail(err, MTX_EINVAL, "token %u is not allowed here", id);
  gr_cfgs old = m->cur;
  m->cur = m->next;
  m->next = old;
  m->empty_ok = false;
  collect(m);
  return MTX_OK;
}

// The opening text and a text of the grammar are followed side by side until one is ruled out.
static mtx_code accept_choosing(mtx_matcher *m, uint32_t id, mtx_err *err) {
  const char *p = m->trie->bytes + m->trie->offsets[id];
  const size_t n = m->trie->offsets[id + 1] - m->trie->offsets[id];
  const mtx_trigger_state before = mtx_trigger_save(m->trigger);
  size_t taken = 0;
  mtx_opening opening = mtx_trigger_open(m->trigger, p, n, &taken);
  if (opening == MTX_OPENING_PART && mtx_trigger_opens_whole(m->trigger)) {
    mtx_trigger_constrain(m->trigger);
    opening = MTX_OPENING_NO;
  }
  if (opening == MTX_OPENING_WHOLE) {
    if (!free_allows(m, p + taken, n - taken)) {
      mtx_trigger_restore(m->trigger, before);
      if (m->stacks.status) return too_ambiguous(m->stacks.status, err);
      return mtx_fail(err, MTX_EINVAL, "token %u goes on after the trigger in a way the grammar does not allow", id);
    }
    start_set(m);
    return accept_free(m, id, p + taken, n - taken, before, err);
  }
  mtx_code code = accept_constrained(m, id, err);
  if (code == MTX_EINVAL && opening == MTX_OPENING_PART) {
    leave_grammar(m);
    return MTX_OK;
  }
  if (code) mtx_trigger_restore(m->trigger, before);
  return code;
}

mtx_code mtx_matcher_accept_token(mtx_matcher *m, uint32_t id, mtx_err *err) {
  if (!m->trie) return mtx_fail(err, MTX_EINVAL, "this matcher has no vocabulary");
  if (id >= m->trie->n_tokens) return mtx_fail(err, MTX_EINVAL, "token %u does not exist", id);
  if (m->finished) return mtx_fail(err, MTX_EINVAL, "the generation has ended");
  if (m->trie->flags[id] & MTX_TRIE_EOG) {
    if (!mtx_matcher_complete(m)) return mtx_fail(err, MTX_EINVAL, "the text is not complete yet");
    m->finished = true;
    return MTX_OK;
  }
  if (m->trigger && mtx_trigger_choosing(m->trigger)) return accept_choosing(m, id, err);
  if (mtx_matcher_waiting(m)) {
    const char *p = m->trie->bytes + m->trie->offsets[id];
    return accept_free(m, id, p, m->trie->offsets[id + 1] - m->trie->offsets[id], mtx_trigger_save(m->trigger), err);
  }
  return accept_constrained(m, id, err);
}

// ---- state ----------------------------------------------------------------------------------

bool mtx_matcher_waiting(const mtx_matcher *m) { return m->trigger && mtx_trigger_waiting(m->trigger); }

bool mtx_matcher_complete(const mtx_matcher *m) {
  if (mtx_matcher_waiting(m)) return mtx_trigger_optional(m->trigger);
  if (m->empty_ok) return true;
  for (uint32_t i = 0; i < m->cur.n_v; i++)
    if (gr_complete(&m->stacks, m->cur.v[i])) return true;
  return false;
}

void mtx_matcher_describe(const mtx_matcher *m, char *dst, size_t cap) {
  if (!cap) return;
  dst[0] = 0;
  if (mtx_matcher_waiting(m)) {
    snprintf(dst, cap, "waiting for the trigger");
    return;
  }
  if (!m->cur.n_v) return;
  size_t at = 0;
  const gr_cfg *x = m->cur.v;
  uint32_t rule = m->g->states[x->d].rule;
  for (int32_t node = x->parent, n = 0; at < cap && n < 32; n++) {
    const gr_rule *r = m->g->rules + rule;
    int k = snprintf(dst + at, cap - at, "%s%.*s", at ? " > " : "", (int)r->n_name, m->g->text + r->name);
    if (k < 0) return;
    at += (size_t)k;
    if (node <= GR_EXIT) return;
    rule = m->g->states[m->stacks.nodes[node].ret].rule;
    node = m->stacks.nodes[node].parent;
  }
}

// ---- masks -------------------------------------------------------------------------------------

// A position as (frame, stack below, counts): the frame is its rule, or the
// loop with its body when the loop is next on the stack.
typedef struct {
  mask_key key;
  int32_t below;            // stack the frame returns to
  uint64_t done, min, max;  // loops: iterations already done, and the bounds
} frame;

static frame frame_of(const mtx_matcher *m, gr_cfg x) {
  const mtx_grammar *g = m->g;
  const gr_state *s = g->states + x.d;
  frame f = {{x.d, -1, s->kind == GR_SET ? x.c : 0}, x.parent, 0, 0, UINT64_MAX};
  const gr_rule *loop = NULL;
  if (s->kind == GR_LOOP) {
    loop = g->rules + s->rule;
    f.done = x.c;
    f.key.d = g->rules[loop->family].start;
  } else if (x.parent > GR_EXIT && g->states[m->stacks.nodes[x.parent].ret].kind == GR_LOOP) {
    const gr_node *n = m->stacks.nodes + x.parent;
    loop = g->rules + g->states[n->ret].rule;
    f.done = n->c;
    f.below = n->parent;
    f.key.c = s->kind == GR_SET ? x.c : 0;
  }
  if (loop) {
    f.key.family = (int32_t)loop->family;
    f.min = loop->min ? loop->min : 1;
    if (loop->max != UINT32_MAX) f.max = loop->max;
  }
  return f;
}

static void add_entry(const mtx_matcher *m, const mask_entry *e, const frame *f, uint64_t *bits, bool first) {
  const size_t words = (m->trie->n_tokens + 63) / 64;
  const uint64_t left = f->max == UINT64_MAX ? UINT64_MAX : f->max - f->done;
  if (!e->dense) {
    for (uint32_t i = 0; i < e->n_ids; i++)
      if (!e->begun || e->begun[i] <= left) bits[e->ids[i] >> 6] |= 1ull << (e->ids[i] & 63);
    return;
  }
  const uint64_t *src = e->dense;
  if (left < e->max_begun && left <= MASK_LEVELS) src += (1 + left) * words;
  uint64_t *dst = bits;
  const bool clear = left < e->max_begun && left > MASK_LEVELS;
  if (clear && !first) dst = m->scratch;
  if (first || clear)
    memcpy(dst, src, words * sizeof *bits);
  else
    for (size_t i = 0; i < words; i++) dst[i] |= src[i];
  if (!clear) return;
  for (uint32_t i = 0; i < e->n_ids && e->begun[i] > left; i++) dst[e->ids[i] >> 6] &= ~(1ull << (e->ids[i] & 63));
  if (dst != bits)
    for (size_t i = 0; i < words; i++) bits[i] |= dst[i];
}

static mtx_code add_leaving(mtx_matcher *m, const mask_entry *e, const frame *f, uint64_t *bits) {
  if (f->below <= GR_EXIT || (!e->n_exits && !e->tails.n_nodes && !e->base)) return MTX_OK;
  uint32_t h = (uint32_t)f->below * 31u + (uint32_t)f->key.d * 0x9e3779b1u + (uint32_t)f->key.c;
  leave *l = m->leaves + (h ^ h >> 15) % N_LEAVES;
  if (!l->used || l->stack != f->below || l->key.d != f->key.d || l->key.family != f->key.family ||
      l->key.c != f->key.c) {
    const gr_node n = m->stacks.nodes[f->below];
    m->stacks.fuel = STEP_FUEL;
    m->stacks.status = MTX_OK;
    const uint64_t *follow = m->g->rules[mtx_mask_frame(m->g, f->key)].follow;
    mtx_code code = mtx_mask_leave(e, &m->stacks, m->trie, &m->walk, follow, (gr_cfg){n.ret, n.parent, n.c});
    if (code) return code;
    free(l->ids);
    free(l->counts);
    *l = (leave){true, f->key, f->below, m->walk.n_ids, NULL, NULL};
    l->ids = malloc((l->n + 1) * sizeof *l->ids);
    l->counts = malloc((l->n + 1) * sizeof *l->counts);
    if (!l->ids || !l->counts) {
      free(l->ids);
      free(l->counts);
      *l = (leave){0};
      return MTX_ENOMEM;
    }
    if (l->n) {
      memcpy(l->ids, m->walk.ids, l->n * sizeof *l->ids);
      memcpy(l->counts, m->walk.begun, l->n * sizeof *l->counts);
    }
  }
  const bool loop = f->key.family >= 0;
  for (uint32_t i = 0; i < l->n; i++) {
    uint64_t count = f->done + l->counts[i];
    if (!loop || (count >= f->min && count <= f->max)) bits[l->ids[i] >> 6] |= 1ull << (l->ids[i] & 63);
  }
  return MTX_OK;
}

static mtx_code prepare(mtx_matcher *m) {
  if (m->has_walk) return MTX_OK;
  m->leaves = m->leaves ? m->leaves : calloc(N_LEAVES, sizeof *m->leaves);
  if (!m->scratch) m->scratch = malloc((m->trie->n_tokens + 63) / 64 * sizeof *m->scratch);
  if (!m->leaves || !m->scratch || mtx_mask_walk_init(&m->walk, m->trie)) return MTX_ENOMEM;
  m->has_walk = true;
  return MTX_OK;
}

// Tokens named by reference at the current positions.
static mtx_code add_named(mtx_matcher *m, uint64_t *bits) {
  m->stacks.fuel = STEP_FUEL;
  m->stacks.status = MTX_OK;
  const size_t words = (m->trie->n_tokens + 63) / 64;
  uint32_t n = gr_token_closure(&m->stacks, m->cur.v, m->cur.n_v);
  for (uint32_t i = 0; i < n; i++) {
    const gr_state *s = m->g->states + m->stacks.work[i].d;
    for (uint32_t k = 0; k < s->n_toks; k++) {
      const gr_token_edge *e = m->g->toks + s->tok + k;
      uint32_t id = m->cache->ref_tokens[e->ref];
      if (!e->negated) {
        bits[id >> 6] |= 1ull << (id & 63);
        continue;
      }
      bool had = bits[id >> 6] >> (id & 63) & 1;
      memset(bits, 0xff, words * sizeof *bits);
      if (!had) bits[id >> 6] &= ~(1ull << (id & 63));
    }
  }
  return m->stacks.status;
}

static mtx_code waiting_mask(mtx_matcher *m, uint64_t *bits) {
  const size_t words = (m->trie->n_tokens + 63) / 64;
  memset(bits, 0xff, words * sizeof *bits);
  const uint32_t *ids;
  uint32_t n;
  mtx_code code = mtx_trigger_candidates(m->trigger, m->trie, &ids, &n);
  for (uint32_t i = 0; i < n && !code; i++) {
    const char *p = m->trie->bytes + m->trie->offsets[ids[i]];
    if (!free_allows(m, p, m->trie->offsets[ids[i] + 1] - m->trie->offsets[ids[i]])) bits[ids[i] >> 6] &= ~(1ull << (ids[i] & 63));
    code = m->stacks.status;
  }
  return code;
}

// What may follow one position, without the wide leaves it calls.
static mtx_code add_position(mtx_matcher *m, gr_cfg x, uint64_t *bits, bool *first) {
  const frame f = frame_of(m, x);
  mtx_code code;
  mask_entry *e = mtx_mask_entry_get(m->cache, m->g, m->trie, &m->walk, f.key, &code);
  if (!e) return code;
  add_entry(m, e, &f, bits, *first);
  *first = false;
  code = add_leaving(m, e, &f, bits);
  mtx_mask_entry_unref(e);
  return code;
}

static mtx_code grammar_mask(mtx_matcher *m, uint64_t *bits) {
  const size_t words = (m->trie->n_tokens + 63) / 64;
  memset(bits, 0, words * sizeof *bits);
  bool first = true;
  mtx_code code = MTX_OK;
  for (uint32_t i = 0; i < m->cur.n_v && !code; i++) {
    const gr_cfg x = m->cur.v[i];
    code = add_position(m, x, bits, &first);
    gr_cfg inside;
    for (uint32_t k = 0; k < m->g->states[x.d].n_calls && !code; k++)
      if (gr_open_wide(&m->stacks, x, k, &inside)) code = m->stacks.status ? m->stacks.status : add_position(m, inside, bits, &first);
  }
  if (!code && m->g->n_toks) code = add_named(m, bits);
  return code;
}

static mtx_code choosing_mask(mtx_matcher *m, uint64_t *bits) {
  mtx_code code = grammar_mask(m, bits);
  if (code) return code;
  const uint32_t *ids;
  uint32_t n;
  code = mtx_trigger_opening_candidates(m->trigger, m->trie, &ids, &n);
  for (uint32_t i = 0; i < n && !code; i++) {
    const char *p = m->trie->bytes + m->trie->offsets[ids[i]];
    const size_t len = m->trie->offsets[ids[i] + 1] - m->trie->offsets[ids[i]];
    const mtx_trigger_state before = mtx_trigger_save(m->trigger);
    size_t taken = len;
    mtx_trigger_open(m->trigger, p, len, &taken);
    if (free_allows(m, p + taken, len - taken)) bits[ids[i] >> 6] |= 1ull << (ids[i] & 63);
    code = m->stacks.status;
    mtx_trigger_restore(m->trigger, before);
  }
  return code;
}

mtx_code mtx_matcher_mask(mtx_matcher *m, uint64_t *bits, mtx_err *err) {
  if (!m->trie) return mtx_fail(err, MTX_EINVAL, "this matcher has no vocabulary");
  const mtx_vocab_trie *t = m->trie;
  if (prepare(m)) return mtx_fail(err, MTX_ENOMEM, "out of memory");
  if (m->finished) {
    memset(bits, 0, (t->n_tokens + 63) / 64 * sizeof *bits);
    return MTX_OK;
  }
  const bool choosing = m->trigger && mtx_trigger_choosing(m->trigger);
  mtx_code code = choosing ? choosing_mask(m, bits) : mtx_matcher_waiting(m) ? waiting_mask(m, bits) : grammar_mask(m, bits);
  if (code) return too_ambiguous(code, err);
  const bool done = mtx_matcher_complete(m);
  for (uint32_t i = 0; i < t->n_eog; i++) {
    if (done)
      bits[t->eog[i] >> 6] |= 1ull << (t->eog[i] & 63);
    else
      bits[t->eog[i] >> 6] &= ~(1ull << (t->eog[i] & 63));
  }
  if (t->n_tokens & 63) bits[t->n_tokens / 64] &= (1ull << (t->n_tokens & 63)) - 1;
  return MTX_OK;
}

// ---- warming -------------------------------------------------------------------------------------

mtx_code mtx_vocab_trie_warm(mtx_vocab_trie *t, mtx_err *err) {
  static const char schema[] =
      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"string\",\"maxLength\":99}}}";
  static const char *const parts[] = {"{\"", "zz\":{\"zz\":1},\"", "a\":\"", "zz\",\"b\":\"", "zz"};
  uint64_t *bits = malloc((t->n_tokens + 63) / 64 * sizeof *bits);
  mtx_grammar *g = NULL;
  mtx_matcher *m = NULL;
  mtx_code code = bits ? mtx_grammar_compile_json_schema(schema, sizeof schema - 1, NULL, &g, err) : mtx_fail(err, MTX_ENOMEM, "out of memory");
  if (!code) code = mtx_matcher_new(g, t, NULL, &m, err);
  for (size_t i = 0; i < sizeof parts / sizeof *parts && !code; i++) {
    code = mtx_matcher_accept_bytes(m, parts[i], strlen(parts[i]), NULL, err);
    if (!code) code = mtx_matcher_mask(m, bits, err);
  }
  mtx_matcher_free(m);
  mtx_grammar_unref(g);
  free(bits);
  return code;
}
