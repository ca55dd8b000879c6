// SPDX-License-Identifier: MIT
// One position in a grammar: its life, and moving on. The set of positions is exact.
#include "grammar/matcher.h"

#include <stdio.h>
#include <string.h>

#define COLLECT_NODES 4096u     // collect unused stack nodes above this

void mtx_matcher_free(mtx_matcher *m) {
  if (!m) return;
  mtx_matcher_drop_leaves(m);
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

// ---- moving on ---------------------------------------------------------------------------

mtx_code mtx_matcher_too_ambiguous(mtx_code code, mtx_err *err) {
  if (code == MTX_ENOMEM) return mtx_fail(err, code, "out of memory");
  return mtx_fail(err, MTX_ELIMIT, "the grammar is too ambiguous at this point to be followed; make its alternatives start differently");
}

static void collect(mtx_matcher *m) {
  if (m->stacks.n_nodes < m->collect_at) return;
  gr_stacks_collect(&m->stacks, m->cur.v, m->cur.n_v);
  mtx_matcher_drop_leaves(m);
  m->collect_at = m->stacks.n_nodes * 2 > COLLECT_NODES ? m->stacks.n_nodes * 2 : COLLECT_NODES;
}

// Positions of set A (in a->v[0..n_v)) after bytes, into the same vector; the
// number of bytes taken. a->n_v is the set that stands before the next byte.
static size_t run_bytes(mtx_matcher *m, gr_cfgs *a, const char *p, size_t n) {
  m->stacks.fuel = MATCHER_STEP_FUEL;
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

// One byte while the opening text may still come: it and a text of the grammar are followed side
// by side until one is ruled out. False: the byte cannot come here, nothing has changed.
static bool choose_byte(mtx_matcher *m, char c) {
  const mtx_trigger_state before = mtx_trigger_save(m->trigger);
  size_t taken;
  const mtx_opening opening = mtx_trigger_open(m->trigger, &c, 1, &taken);
  m->stacks.status = MTX_OK;
  if (opening == MTX_OPENING_WHOLE) {
    start_set(m);
  } else if (run_bytes(m, &m->cur, &c, 1)) {
    m->empty_ok = false;
  } else if (opening == MTX_OPENING_PART) {
    leave_grammar(m);
  } else {
    mtx_trigger_restore(m->trigger, before);
    return false;
  }
  return true;
}

mtx_code mtx_matcher_accept_bytes(mtx_matcher *m, const char *bytes, size_t len, size_t *n_ok, mtx_err *err) {
  size_t at = 0;
  if (n_ok) *n_ok = 0;
  while (at < len && !m->finished && m->trigger && mtx_trigger_choosing(m->trigger) && choose_byte(m, bytes[at])) {
    at++;
    if (n_ok) *n_ok = at;
    if (m->stacks.status) return mtx_matcher_too_ambiguous(m->stacks.status, err);
  }
  if (m->trigger && mtx_trigger_waiting(m->trigger)) at += mtx_trigger_feed(m->trigger, bytes + at, len - at);
  while (at < len) {
    size_t part = len - at < 512 ? len - at : 512;  // fuel and collecting are per part
    size_t k = m->finished ? 0 : run_bytes(m, &m->cur, bytes + at, part);
    at += k;
    if (k) m->empty_ok = false;
    if (n_ok) *n_ok = at;
    if (m->stacks.status) return mtx_matcher_too_ambiguous(m->stacks.status, err);
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
  if (status) return mtx_matcher_too_ambiguous(status, err);
  return mtx_fail(err, MTX_EINVAL, "token %u goes on after the trigger in a way the grammar does not allow", id);
}

bool mtx_matcher_free_allows(mtx_matcher *m, const char *p, size_t n) {
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
    m->stacks.fuel = MATCHER_STEP_FUEL;
    m->stacks.status = MTX_OK;
    gr_step_token(&m->stacks, &m->next, m->cur.v, m->cur.n_v, ref_is, &(ref_ctx){m->cache, id});
    if (m->stacks.status) return mtx_matcher_too_ambiguous(m->stacks.status, err);
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
    if (!ok) return mtx_matcher_too_ambiguous(m->stacks.status ? m->stacks.status : MTX_ENOMEM, err);
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
    if (!mtx_matcher_free_allows(m, p + taken, n - taken)) {
      mtx_trigger_restore(m->trigger, before);
      if (m->stacks.status) return mtx_matcher_too_ambiguous(m->stacks.status, err);
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
