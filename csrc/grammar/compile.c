// SPDX-License-Identifier: MIT
// Rules into the automaton form of automaton.h, with its invariants.
//
// Order: nullable rules, then each rule made deterministic, dead ends removed,
// left recursion refused, and last the byte sets (first, follow) that keep
// the matcher from trying calls and returns that cannot lead anywhere.
#include <stdio.h>
#include <string.h>

#include "grammar/build.h"
#include "grammar/cdfa.h"
#include "grammar/mask.h"

#define MAX_TABLES 16384u
#define TABLE_MIN_EDGES 5u
#define WIDE_BYTES 24  // first bytes from which a leaf is worth a frame of its own in masks

// Members that have come or must come.
static uint64_t set_due(const mtx_grammar *g, const gr_set *s, uint64_t c) {
  const uint64_t used = c & ((1ull << GR_SET_BITS) - 1);
  uint64_t due = used | s->required;
  if (s->n_needs)
    for (uint64_t left = used; left; left &= left - 1) due |= g->set_needs[s->needs + (uint32_t)__builtin_ctzll(left)];
  return due;
}

bool gr_set_next(const mtx_grammar *g, const gr_set *s, int32_t item, uint64_t c, uint64_t *next) {
  if (s->ordered) {
    *next = c;
    if (item == GR_EXTRA) return true;
    *next = (uint64_t)item + 1;
    return (uint64_t)item >= c && (uint32_t)item <= g->set_next[s->next_required + c];
  }
  const uint64_t used = c & ((1ull << GR_SET_BITS) - 1);
  if (item == GR_EXTRA) {
    // counted only while the count can still matter
    bool counts = s->max != UINT32_MAX || (c >> GR_SET_BITS) < s->min;
    *next = counts ? c + (1ull << GR_SET_BITS) : c;
  } else {
    const uint64_t bit = 1ull << item;
    if (used & bit) return false;
    if ((s->in_order & bit) && (s->in_order & (bit - 1) & ~used)) return false;
    *next = c | bit;
  }
  // room must be left for the members that have to come
  return s->max == UINT32_MAX || (uint64_t)__builtin_popcountll(set_due(g, s, *next)) + (*next >> GR_SET_BITS) <= s->max;
}

bool gr_set_more(const mtx_grammar *g, const gr_rule *r, uint64_t c) {
  const gr_state *st = g->states + r->start;
  uint64_t next;
  for (uint32_t k = 0; k < st->n_calls; k++)
    if (gr_set_next(g, g->sets + r->set, g->calls[st->call + k].item, c, &next)) return true;
  return false;
}

bool gr_set_done(const mtx_grammar *g, const gr_set *s, uint64_t c) {
  if (s->ordered) return g->set_next[s->next_required + c] == UINT32_MAX;
  const uint64_t used = c & ((1ull << GR_SET_BITS) - 1);
  return set_due(g, s, c) == used && (uint64_t)__builtin_popcountll(used) + (c >> GR_SET_BITS) >= s->min;
}

// ---- nullable -----------------------------------------------------------------

static bool rule_nullable(mtx_gb *b, uint8_t *rules, const gb_rule *r) {
  switch (r->kind) {
    case GR_LOOP: return r->min == 0 || rules[r->loop_body];
    case GR_COUNT: return r->min == 0 && b->nodes[r->body].nullable;
    case GR_SET: return false;  // an empty object is the front end's own alternative
    default: return b->nodes[r->body].nullable;
  }
}

static void find_nullable(mtx_gb *b, uint8_t *rules) {
  for (bool changed = true; changed && mtx_gb_in_time(b);) {
    changed = false;
    for (uint32_t i = 0; i < b->n_nodes; i++) {
      gx_node *n = b->nodes + i;
      if (n->nullable) continue;
      bool yes = false;
      switch (n->kind) {
        case GX_EMPTY:
        case GX_OPT:
        case GX_STAR: yes = true; break;
        case GX_PLUS: yes = b->nodes[n->a].nullable; break;
        case GX_REF: yes = rules[n->a]; break;
        case GX_DFA: yes = b->dfas[n->a]->states[0].accept; break;
        case GX_ALT:
          for (uint32_t k = 0; k < n->n && !yes; k++) yes = b->nodes[b->kids[n->a + k]].nullable;
          break;
        case GX_CAT:
          yes = true;
          for (uint32_t k = 0; k < n->n && yes; k++) yes = b->nodes[b->kids[n->a + k]].nullable;
          break;
        default: break;
      }
      if (yes) n->nullable = 1, changed = true;
    }
    for (uint32_t i = 0; i < b->n_rules; i++)
      if (!rules[i] && rule_nullable(b, rules, b->rules + i)) rules[i] = 1, changed = true;
  }
}

// ---- dead ends ------------------------------------------------------------------

// A SET can only end if each required member can.
static bool set_possible(const mtx_grammar *g, uint32_t rule) {
  const gr_rule *r = g->rules + rule;
  const gr_set *s = g->sets + r->set;
  const gr_state *st = g->states + r->start;
  for (uint32_t k = 0; k < st->n_calls; k++) {
    const gr_call *c = g->calls + st->call + k;
    if (c->item == GR_EXTRA) continue;
    bool required = s->ordered ? g->set_next[s->next_required + (uint32_t)c->item] == (uint32_t)c->item
                               : (s->required >> c->item & 1);
    if (required && !g->rules[c->rule].productive) return false;
  }
  return true;
}

static bool is_live(const mtx_grammar *g, const uint8_t *live, const gr_state *s) {
  if (s->accept) return true;
  for (uint32_t k = 0; k < s->n_edges; k++)
    if (live[g->edges[s->edge + k].to]) return true;
  for (uint32_t k = 0; k < s->n_calls; k++)
    if (g->rules[g->calls[s->call + k].rule].productive && live[g->calls[s->call + k].ret]) return true;
  for (uint32_t k = 0; k < s->n_toks; k++)
    if (live[g->toks[s->tok + k].to]) return true;
  return false;
}

// Members of a SET that can end.
static uint64_t set_members(const mtx_grammar *g, const gr_state *s) {
  uint64_t bits = 0;
  for (uint32_t k = 0; k < s->n_calls; k++) {
    const gr_call *c = g->calls + s->call + k;
    if (c->item >= 0 && c->item < GR_SET_BITS && g->rules[c->rule].productive) bits |= 1ull << c->item;
  }
  return bits;
}

// Does the member need one that is not among those? It must not come then.
static bool needs_other(const mtx_grammar *g, const gr_state *s, int32_t item, uint64_t possible) {
  if (s->kind != GR_SET || item < 0 || item == GR_EXTRA) return false;
  const gr_set *set = g->sets + g->rules[s->rule].set;
  return set->n_needs && (g->set_needs[set->needs + (uint32_t)item] & ~possible);
}

static void trim(mtx_gb *b, mtx_grammar *g) {
  uint8_t *live = calloc(g->n_states ? g->n_states : 1, 1);
  if (!live) {
    mtx_gb_fail(b, MTX_ENOMEM, 0, "out of memory");
    return;
  }
  for (bool changed = true; changed && mtx_gb_in_time(b);) {
    changed = false;
    for (uint32_t i = g->n_states; i-- > 0;)
      if (!live[i] && is_live(g, live, g->states + i) &&
          (g->states[i].kind != GR_LOOP || g->rules[g->rules[g->states[i].rule].body].productive))
        live[i] = 1, changed = true;
    for (uint32_t i = 0; i < g->n_rules; i++) {
      gr_rule *r = g->rules + i;
      if (r->productive || !live[r->start] || (r->kind == GR_SET && !set_possible(g, i))) continue;
      r->productive = 1;
      changed = true;
    }
  }
  for (uint32_t i = 0; i < g->n_states; i++) {
    gr_state *s = g->states + i;
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n_edges; k++)
      if (live[g->edges[s->edge + k].to]) g->edges[s->edge + n++] = g->edges[s->edge + k];
    s->n_edges = n;
    n = 0;
    const uint64_t possible = s->kind == GR_SET ? set_members(g, s) : 0;
    for (uint32_t k = 0; k < s->n_calls; k++) {
      gr_call c = g->calls[s->call + k];
      if (live[c.ret] && g->rules[c.rule].productive && !needs_other(g, s, c.item, possible)) g->calls[s->call + n++] = c;
    }
    s->n_calls = n;
    n = 0;
    for (uint32_t k = 0; k < s->n_toks; k++)
      if (live[g->toks[s->tok + k].to]) g->toks[s->tok + n++] = g->toks[s->tok + k];
    s->n_toks = n;
    s->final = s->kind == GR_PLAIN && s->accept && !s->n_edges && !s->n_calls && !s->n_toks;
  }
  free(live);
}

// ---- left recursion and first sets -------------------------------------------------

static void add_first(mtx_grammar *g, const gr_state *s, uint64_t out[4], uint8_t *tok) {
  for (uint32_t k = 0; k < s->n_edges; k++)
    for (int c = g->edges[s->edge + k].lo; c <= g->edges[s->edge + k].hi; c++) out[c >> 6] |= 1ull << (c & 63);
  if (s->n_toks) *tok = 1;
  for (uint32_t k = 0; k < s->n_calls; k++) {
    const gr_rule *r = g->rules + g->calls[s->call + k].rule;
    for (int i = 0; i < 4; i++) out[i] |= r->first[i];
    *tok |= r->first_token;
  }
}

static void find_leaves(mtx_grammar *g) {
  for (uint32_t i = 0; i < g->n_rules; i++) g->rules[i].leaf = g->rules[i].kind == GR_PLAIN ? 2 : g->rules[i].kind == GR_COUNT;  // 2: also fit as a body
  for (uint32_t i = 0; i < g->n_states; i++) {
    const gr_state *s = g->states + i;
    uint8_t *leaf = &g->rules[s->rule].leaf;
    if (s->n_calls || s->n_toks)
      *leaf = 0;
    else if (s->accept && !s->final && *leaf)
      *leaf = 1;
  }
  for (uint32_t i = 0; i < g->n_rules; i++)
    if (g->rules[i].kind == GR_LOOP) g->rules[i].leaf = g->rules[g->rules[i].body].leaf == 2;
}

// With the rules that r may begin with known.
static bool is_wide(const mtx_grammar *g, const gr_rule *r) {
  const gr_state *s = g->states + r->start;
  bool wide = false;
  int n = 0;
  for (int k = 0; k < 4; k++) n += __builtin_popcountll(r->first[k]);
  for (uint32_t k = 0; k < s->n_calls; k++) wide |= g->rules[g->calls[s->call + k].rule].wide;
  return r->leaf ? n >= WIDE_BYTES || r->kind == GR_COUNT : r->kind == GR_PLAIN && wide;
}

// Depth-first over calls that can happen before any byte; post-order gives
// the first sets and which rules are wide, a back edge is left recursion.
static void find_first(mtx_gb *b, mtx_grammar *g) {
  typedef struct {
    uint32_t rule, i_call;
  } step;
  uint8_t *color = calloc(g->n_rules, 1);
  step *stack = malloc(g->n_rules * sizeof *stack);
  if (!color || !stack) mtx_gb_fail(b, MTX_ENOMEM, 0, "out of memory");
  for (uint32_t root = 0; !b->code && root < g->n_rules; root++) {
    if (color[root]) continue;
    uint32_t n = 0;
    stack[n++] = (step){root, 0};
    color[root] = 1;
    while (n && !b->code) {
      step *top = stack + n - 1;
      gr_rule *r = g->rules + top->rule;
      const gr_state *s = g->states + r->start;
      if (top->i_call < s->n_calls) {
        uint32_t callee = g->calls[s->call + top->i_call++].rule;
        if (color[callee] == 1) {
          const gr_rule *x = g->rules + callee;
          char msg[200];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
          snprintf(msg, sizeof msg, b->cycle, (int)(x->n_name < 80 ? x->n_name : 80), g->text + x->name);
#pragma GCC diagnostic pop
          mtx_gb_fail(b, MTX_EFORMAT, 0, "%s", msg);
        } else if (!color[callee]) {
          color[callee] = 1;
          stack[n++] = (step){callee, 0};
        }
      } else {
        add_first(g, s, r->first, &r->first_token);
        r->wide = is_wide(g, r);
        color[top->rule] = 2;
        n--;
      }
    }
  }
  free(color);
  free(stack);
}

static bool merge_set(uint64_t dst[4], const uint64_t src[4]) {
  bool changed = false;
  for (int i = 0; i < 4; i++) {
    changed |= (src[i] & ~dst[i]) != 0;
    dst[i] |= src[i];
  }
  return changed;
}

static void find_follow(mtx_gb *b, mtx_grammar *g) {
  for (bool changed = true; changed && mtx_gb_in_time(b);) {
    changed = false;
    for (uint32_t i = 0; i < g->n_states; i++) {
      const gr_state *s = g->states + i;
      for (uint32_t k = 0; k < s->n_calls; k++) {
        const gr_call *c = g->calls + s->call + k;
        const gr_state *ret = g->states + c->ret;
        uint64_t first[4] = {0};
        uint8_t tok = 0;
        add_first(g, ret, first, &tok);
        changed |= merge_set(g->rules[c->rule].follow, first);
        if (ret->accept) changed |= merge_set(g->rules[c->rule].follow, g->rules[ret->rule].follow);
      }
    }
  }
}

static uint64_t family_hash(const gr_rule *r) {
  uint64_t h = r->body * 0x9e3779b97f4a7c15u;
  for (int k = 0; k < 4; k++) h = (h ^ r->follow[k]) * 0xff51afd7ed558ccdu;
  return h ^ (h >> 32);
}

static void find_families(mtx_gb *b, mtx_grammar *g) {
  uint32_t cap = 64;
  while (cap < g->n_rules * 2) cap *= 2;
  uint32_t *table = malloc(cap * sizeof *table);
  if (!table) {
    mtx_gb_fail(b, MTX_ENOMEM, 0, "out of memory");
    return;
  }
  memset(table, 0xff, cap * sizeof *table);
  for (uint32_t i = 0; i < g->n_rules; i++) {
    gr_rule *r = g->rules + i;
    if (r->kind != GR_LOOP) continue;
    uint32_t h = (uint32_t)family_hash(r) & (cap - 1);
    for (; table[h] != UINT32_MAX; h = (h + 1) & (cap - 1)) {
      const gr_rule *o = g->rules + table[h];
      if (o->body == r->body && !memcmp(o->follow, r->follow, sizeof r->follow)) break;
    }
    if (table[h] == UINT32_MAX) table[h] = i;
    r->family = table[h];
  }
  free(table);
}

// Characters before the nearest end, for each state of a COUNT rule.
static void find_distances(mtx_gb *b, mtx_grammar *g) {
  for (uint32_t i = 0; i < g->n_states; i++)
    if (g->states[i].kind == GR_COUNT) g->states[i].dist = g->states[i].accept ? 0 : UINT16_MAX;
  for (bool changed = true; changed && mtx_gb_in_time(b);) {
    changed = false;
    for (uint32_t i = g->n_states; i-- > 0;) {
      gr_state *s = g->states + i;
      for (uint32_t k = 0; s->kind == GR_COUNT && k < s->n_edges; k++) {
        const gr_state *to = g->states + g->edges[s->edge + k].to;
        if (to->dist == UINT16_MAX || to->dist + to->tick >= s->dist) continue;
        s->dist = (uint16_t)(to->dist + to->tick);
        changed = true;
      }
    }
  }
}

static void make_tables(mtx_gb *b, mtx_grammar *g) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->n_states; i++) n += g->states[i].n_edges >= TABLE_MIN_EDGES;
  if (n > MAX_TABLES) n = MAX_TABLES;
  if (!n) return;
  g->tables = malloc(n * sizeof *g->tables);
  if (!g->tables) {
    mtx_gb_fail(b, MTX_ENOMEM, 0, "out of memory");
    return;
  }
  for (uint32_t i = 0; i < g->n_states && g->n_tables < n; i++) {
    gr_state *s = g->states + i;
    if (s->n_edges < TABLE_MIN_EDGES) continue;
    int32_t *row = g->tables[g->n_tables];
    memset(row, 0xff, 256 * sizeof *row);
    for (uint32_t k = 0; k < s->n_edges; k++) {
      const gr_edge *e = g->edges + s->edge + k;
      for (int c = e->lo; c <= e->hi; c++) row[c] = e->to;
    }
    s->table = (int32_t)g->n_tables++;
  }
}

// ---- putting it together ---------------------------------------------------------

static void loop_state(mtx_gb *b, mtx_grammar *g, uint32_t rule) {
  if (!MTX_VEC_GROW(g, states, 1, MTX_GRAMMAR_MAX_STATES) ||
      !MTX_VEC_GROW(g, calls, 1, MTX_GRAMMAR_MAX_STATES * 8)) {
    mtx_gb_fail(b, MTX_ELIMIT, 0, "the grammar needs too many states");
    return;
  }
  gr_rule *r = g->rules + rule;
  r->start = (int32_t)g->n_states;
  g->states[g->n_states++] = (gr_state){.call = g->n_calls, .n_calls = 1, .edge = g->n_edges, .tok = g->n_toks,
                                        .table = -1, .rule = rule, .accept = 1, .kind = GR_LOOP};
  g->calls[g->n_calls++] = (gr_call){r->body, r->start, -1};
}

static void make_rules(mtx_gb *b, mtx_grammar *g, const uint8_t *nullable) {
  if (!MTX_VEC_GROW(g, rules, b->n_rules, MTX_GRAMMAR_MAX_RULES)) {
    mtx_gb_fail(b, MTX_ENOMEM, 0, "out of memory");
    return;
  }
  g->n_rules = b->n_rules;
  memset(g->rules, 0, g->n_rules * sizeof *g->rules);
  mtx_nfa f = {0};
  for (uint32_t i = 0; i < b->n_rules && !b->code; i++) {
    const gb_rule *r = b->rules + i;
    g->rules[i] = (gr_rule){.kind = r->kind, .nullable = nullable[i], .name = r->name, .n_name = r->n_name,
                            .body = r->loop_body, .min = r->min, .max = r->max, .set = r->set};
    if (!r->defined) {
      mtx_gb_fail(b, MTX_EFORMAT, 0, "rule %.*s is used but not defined", (int)r->n_name, b->text + r->name);
    } else if (r->kind == GR_LOOP) {
      if (nullable[r->loop_body]) g->rules[i].min = 0;
      loop_state(b, g, i);
    } else {
      mtx_nfa_lower(b, i, &f);
      if (!b->code) mtx_nfa_determinize(b, &f, i, g);
    }
  }
  free(f.edges);
  free(f.heads);
}

#define MOVE(g, b, name) \
  ((g)->name = (b)->name, (g)->n_##name = (b)->n_##name, (g)->cap_##name = (b)->cap_##name, (b)->name = NULL, \
   (b)->n_##name = (b)->cap_##name = 0)

static uint32_t blank_root(mtx_gb *b, uint32_t root) {
  const mtx_cprange blank[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
  mtx_gx ws = mtx_gx_rep(b, mtx_gx_class(b, blank, 3, false), 0, 8);
  uint32_t r = mtx_gb_rule(b, "blanks", 6);
  mtx_gb_define(b, r, mtx_gx_cat2(b, ws, mtx_gx_ref(b, root)));
  return r;
}

mtx_code mtx_gb_finish(mtx_gb *b, uint32_t root, mtx_grammar **out, mtx_err *err) {
  *out = NULL;
  mtx_grammar *g = calloc(1, sizeof *g);
  if (!g) return mtx_fail(err, MTX_ENOMEM, "out of memory");
  atomic_init(&g->refs_held, 1);
  pthread_mutex_init(&g->lock, NULL);
  g->root = root;
  g->ws_root = blank_root(b, root);
  uint8_t *nullable = calloc(b->n_rules + 1, 1);
  if (!nullable) mtx_gb_fail(b, MTX_ENOMEM, 0, "out of memory");
  if (!b->code) find_nullable(b, nullable);
  if (!b->code) make_rules(b, g, nullable);
  free(nullable);
  if (!b->code) {
    MOVE(g, b, sets);
    MOVE(g, b, set_next);
    MOVE(g, b, set_needs);
    MOVE(g, b, refs);
    MOVE(g, b, text);
    MOVE(g, b, warnings);
    trim(b, g);
  }
  if (!b->code && !g->rules[root].productive && !g->rules[root].nullable)
    mtx_gb_fail(b, MTX_EFORMAT, 0, "nothing can match: the rules never come to an end or contradict each other");
  if (!b->code) find_leaves(g);
  if (!b->code) find_first(b, g);
  if (!b->code) find_follow(b, g);
  if (!b->code) find_families(b, g);
  if (!b->code) find_distances(b, g);
  if (!b->code) make_tables(b, g);
  if (b->code) {
    mtx_grammar_unref(g);
    if (err) *err = b->err;
    return b->code;
  }
  *out = g;
  return MTX_OK;
}

mtx_grammar *mtx_grammar_ref(mtx_grammar *g) {
  atomic_fetch_add(&g->refs_held, 1);
  return g;
}

void mtx_grammar_unref(mtx_grammar *g) {
  if (!g || atomic_fetch_sub(&g->refs_held, 1) != 1) return;
  for (size_t i = 0; i < sizeof g->caches / sizeof *g->caches; i++) mtx_mask_cache_unref(g->caches[i]);
  for (uint32_t i = 0; i < g->n_warnings; i++) free(g->warnings[i]);
  free(g->states);
  free(g->edges);
  free(g->calls);
  free(g->toks);
  free(g->rules);
  free(g->sets);
  free(g->set_next);
  free(g->set_needs);
  free(g->refs);
  free(g->text);
  free(g->warnings);
  free(g->tables);
  pthread_mutex_destroy(&g->lock);
  free(g);
}

size_t mtx_grammar_n_warnings(const mtx_grammar *g) { return g->n_warnings; }
const char *mtx_grammar_get_warning(const mtx_grammar *g, size_t i) { return i < g->n_warnings ? g->warnings[i] : NULL; }

size_t mtx_grammar_size_bytes(const mtx_grammar *g) {
  return sizeof *g + g->cap_states * sizeof *g->states + g->cap_edges * sizeof *g->edges +
         g->cap_calls * sizeof *g->calls + g->cap_toks * sizeof *g->toks + g->cap_rules * sizeof *g->rules +
         g->cap_sets * sizeof *g->sets + g->cap_set_next * sizeof *g->set_next + g->cap_set_needs * sizeof *g->set_needs + g->cap_refs * sizeof *g->refs +
         g->cap_text + g->n_tables * sizeof *g->tables;
}
