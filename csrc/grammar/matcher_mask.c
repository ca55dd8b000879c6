// SPDX-License-Identifier: MIT
// What may come next at a matcher's positions.
//
// Masks are assembled from the shared entries of mask.h plus, per stack, the tokens
// that leave the frame after their first byte. Those are kept too, so inside one string
// only its first token pays for them. Where a frame may end at once, what it returns to
// is a position like any other, with an entry of its own.
#include <string.h>

#include "grammar/matcher.h"

void mtx_matcher_drop_leaves(mtx_matcher *m) {
  if (!m->leaves) return;
  for (uint32_t i = 0; i < MATCHER_N_LEAVES; i++) {
    free(m->leaves[i].ids);
    free(m->leaves[i].counts);
  }
  memset(m->leaves, 0, MATCHER_N_LEAVES * sizeof *m->leaves);
}

// A position as (frame, stack below, counts): the frame is its rule, or the
// loop with its body when the loop is next on the stack. COUNT rules count
// characters where loops count iterations.
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
  if (s->kind == GR_COUNT) {
    f.key.family = (int32_t)s->rule;
    f.done = x.c;
    f.min = g->rules[s->rule].min;
    if (g->rules[s->rule].max != UINT32_MAX) f.max = g->rules[s->rule].max;
  } else if (s->kind == GR_LOOP) {
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
  leave *l = m->leaves + (h ^ h >> 15) % MATCHER_N_LEAVES;
  if (!l->used || l->stack != f->below || l->key.d != f->key.d || l->key.family != f->key.family ||
      l->key.c != f->key.c) {
    const gr_node n = m->stacks.nodes[f->below];
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
  m->leaves = m->leaves ? m->leaves : calloc(MATCHER_N_LEAVES, sizeof *m->leaves);
  if (!m->scratch) m->scratch = malloc((m->trie->n_tokens + 63) / 64 * sizeof *m->scratch);
  if (!m->leaves || !m->scratch || mtx_mask_walk_init(&m->walk, m->trie)) return MTX_ENOMEM;
  m->has_walk = true;
  return MTX_OK;
}

// Tokens named by reference at the current positions.
static mtx_code add_named(mtx_matcher *m, uint64_t *bits) {
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
    if (!mtx_matcher_free_allows(m, p, m->trie->offsets[ids[i] + 1] - m->trie->offsets[ids[i]])) bits[ids[i] >> 6] &= ~(1ull << (ids[i] & 63));
    code = m->stacks.status;
  }
  return code;
}

// What may follow one position, without what it calls or returns to before the first byte.
static mtx_code add_position(mtx_matcher *m, gr_cfg x, uint64_t *bits, bool first) {
  const frame f = frame_of(m, x);
  mtx_code code;
  mask_entry *e = mtx_mask_entry_get(m->cache, m->g, m->trie, &m->walk, f.key, &code);
  if (!e) return code;
  add_entry(m, e, &f, bits, first);
  code = add_leaving(m, e, &f, bits);
  mtx_mask_entry_unref(e);
  return code;
}

// Where x is after its frame has ended; false: it cannot end here, or nothing is below.
static bool leave_now(const mtx_matcher *m, gr_cfg x, gr_cfg *out) {
  const int32_t below = frame_of(m, x).below;
  for (int32_t at = -1; at != below;) {
    at = x.parent;
    if (at <= GR_EXIT || !gr_accepts(m->g, m->g->states + x.d, x.c)) return false;
    const gr_node n = m->stacks.nodes[at];
    x = (gr_cfg){n.ret, n.parent, n.c};
  }
  *out = x;
  return true;
}

static void add_next(mtx_matcher *m, gr_cfg x) {
  gr_cfgs *all = &m->next;
  for (uint32_t i = 0; i < all->n_v; i++)
    if (all->v[i].d == x.d && all->v[i].parent == x.parent && all->v[i].c == x.c) return;
  m->stacks.fuel -= all->n_v / 4 + 1;
  if (m->stacks.fuel < 0 || !MTX_VEC_GROW(all, v, 1, GR_MAX_SET)) {
    m->stacks.status = MTX_ELIMIT;
    return;
  }
  all->v[all->n_v++] = x;
}

// The current positions, those their frames return to before the next byte, and those inside
// the wide rules that they call: into m->next.
static mtx_code list_positions(mtx_matcher *m) {
  gr_cfg x;
  m->next.n_v = 0;
  for (uint32_t i = 0; i < m->cur.n_v; i++) add_next(m, m->cur.v[i]);
  for (uint32_t i = 0; i < m->next.n_v && !m->stacks.status; i++) {
    const gr_cfg at = m->next.v[i];
    if (leave_now(m, at, &x)) add_next(m, x);
    for (uint32_t k = 0; k < m->g->states[at.d].n_calls && !m->stacks.status; k++)
      if (gr_open_wide(&m->stacks, at, k, &x) && !m->stacks.status) add_next(m, x);
  }
  return m->stacks.status;
}

static mtx_code grammar_mask(mtx_matcher *m, uint64_t *bits) {
  const size_t words = (m->trie->n_tokens + 63) / 64;
  memset(bits, 0, words * sizeof *bits);
  m->stacks.fuel = MATCHER_STEP_FUEL;
  m->stacks.status = MTX_OK;
  mtx_code code = list_positions(m);
  for (uint32_t i = 0; i < m->next.n_v && !code; i++) code = add_position(m, m->next.v[i], bits, i == 0);
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
    if (mtx_matcher_free_allows(m, p + taken, len - taken)) bits[ids[i] >> 6] |= 1ull << (ids[i] & 63);
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
  if (code) return mtx_matcher_too_ambiguous(code, err);
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
      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"string\",\"maxLength\":99}},\"additionalProperties\":true}";
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
