// SPDX-License-Identifier: MIT
// The compiled form of a grammar: one byte automaton per rule, with calls.
//
// Why this form: a rule is made deterministic over bytes on its own, so most
// steps are one table look-up; what is not regular (recursion, counted
// repetition, sets of keys) is a call that pushes a frame. Invariants that the
// compiler (compile.c) establishes and the matcher relies on:
//  - no epsilon: a call always consumes at least one byte (a nullable callee
//    is also an epsilon at the call site, removed by determinisation);
//  - no left recursion, so calls without a byte between them form a DAG;
//  - every state is live: from it the end of its rule can be reached.
// A frame has a 64-bit counter: LOOP rules count iterations in it, COUNT rules
// characters, SET rules keep which keys were used; it is 0 in plain rules.
#ifndef MTX_GRAMMAR_AUTOMATON_H
#define MTX_GRAMMAR_AUTOMATON_H

#include <pthread.h>
#include <stdatomic.h>

#include "grammar/grammar.h"
#include "grammar/vec.h"

typedef struct {
  uint8_t lo, hi;
  int32_t to;
} gr_edge;

typedef struct {
  uint32_t rule;
  int32_t ret;   // state of the caller after the callee has ended
  int32_t item;  // in SET rules: which member this is, or GR_EXTRA; else -1
} gr_call;

#define GR_EXTRA 0xffff  // a SET member that may repeat

typedef struct {
  uint32_t ref;  // index into gr->refs
  int32_t to;
  bool negated;
} gr_token_edge;

// A token named by a grammar, by id or by text; resolved against a trie.
typedef struct {
  bool by_id;
  uint32_t id;
  uint32_t text, n_text;  // into gr->text
} gr_token_ref;

enum { GR_PLAIN, GR_LOOP, GR_SET, GR_COUNT };

typedef struct {
  uint32_t edge, n_edges;
  uint32_t call, n_calls;
  uint32_t tok, n_toks;
  int32_t table;  // row of 256 targets in gr->tables, or -1: use the edges
  uint32_t rule;
  uint8_t accept;
  uint8_t final;  // accepts and nothing can follow within the rule (never in SET rules)
  uint8_t kind;   // of its rule
  uint8_t tick;   // COUNT rules: entering it completes a character
  uint16_t dist;  // COUNT rules: characters that still complete before the nearest end
} gr_state;

typedef struct {
  uint8_t kind;
  uint8_t nullable;
  uint8_t productive;
  uint8_t first_token;  // may begin with a token reference
  uint8_t leaf;         // bytes only; loops: and every accepting state of the body is final
  uint8_t wide;         // where a PLAIN state calls it, masks take it as a frame of its own: a leaf that may begin with
                        // many bytes (the inside of a string) or counts, or a PLAIN rule that may begin with a wide one
  int32_t start;
  uint64_t first[4];   // bytes it may begin with
  uint64_t follow[4];  // bytes that may come after it, in any context
  uint32_t name, n_name;
  // GR_LOOP: body repeated between min and max times; GR_COUNT: a plain automaton (calls nothing) whose
  // texts have min to max characters. Every end it is steered to must be had at any length that is far
  // enough (compile.c relies on the front end for that).
  uint32_t body;
  uint32_t min, max;  // max UINT32_MAX: no bound, the counter stops at min
  uint32_t family;    // lowest loop rule with the same body and follow set
  // GR_SET
  uint32_t set;
} gr_rule;

// Members used at most once each; two ways to remember which (see gr_set_next).
typedef struct {
  bool ordered;          // counter = index of the first member still allowed
  uint64_t required;     // bits: members that must occur
  uint64_t in_order;     // bits: those of them that come in the order of their numbers
  uint32_t needs, n_needs;  // bits: members that must occur when member i does are gr->set_needs[needs + i],
                            // those that they need included; n_needs 0: none need others
  uint32_t next_required, n_next;  // ordered: gr->set_next[next_required + i] = first required >= i
  uint32_t min, max;     // number of members in all; max UINT32_MAX: no bound
} gr_set;

#define GR_SET_BITS 48  // counter bits 0..47: used members; above: number of extras

struct mask_cache;

struct mtx_grammar {
  atomic_int refs_held;
  MTX_VEC(gr_state, states);
  MTX_VEC(gr_edge, edges);
  MTX_VEC(gr_call, calls);
  MTX_VEC(gr_token_edge, toks);
  MTX_VEC(gr_rule, rules);
  MTX_VEC(gr_set, sets);
  MTX_VEC(uint32_t, set_next);
  MTX_VEC(uint64_t, set_needs);
  MTX_VEC(gr_token_ref, refs);
  MTX_VEC(char, text);
  MTX_VEC(char *, warnings);
  int32_t (*tables)[256];
  uint32_t n_tables;
  uint32_t root;
  uint32_t ws_root;  // up to 8 blanks, then root
  pthread_mutex_t lock;  // guards caches
  struct mask_cache *caches[4];
  uint32_t i_cache;
};

static inline bool gr_has_byte(const uint64_t set[4], uint8_t b) { return set[b >> 6] >> (b & 63) & 1; }

// SET rules: may member `item` come when the counter is c? If so *next is the
// counter afterwards.
bool gr_set_next(const mtx_grammar *g, const gr_set *s, int32_t item, uint64_t c, uint64_t *next);
bool gr_set_more(const mtx_grammar *g, const gr_rule *r, uint64_t c);  // can any member still come?
bool gr_set_done(const mtx_grammar *g, const gr_set *s, uint64_t c);

// Target of a byte from state s with its frame's counter c, or -1. The bytes of a
// SET rule are those of its separator, which may only come when another
// member can follow it.
static inline int32_t gr_next(const mtx_grammar *g, const gr_state *s, uint8_t b, uint64_t c) {
  if (s->kind == GR_SET && !gr_set_more(g, g->rules + s->rule, c)) return -1;
  if (s->table >= 0) return g->tables[s->table][b];
  const gr_edge *e = g->edges + s->edge;
  for (uint32_t i = 0; i < s->n_edges; i++)
    if (b <= e[i].hi) return b >= e[i].lo ? e[i].to : -1;
  return -1;
}

// The counter of a frame that goes on to state `to` when it was c. False: the end would be too far.
static inline bool gr_count(const mtx_grammar *g, const gr_state *to, uint64_t *c) {
  if (to->kind != GR_COUNT) return true;
  const gr_rule *r = g->rules + to->rule;
  *c += to->tick;
  if (r->max != UINT32_MAX) return *c + to->dist <= r->max;
  if (*c > r->min) *c = r->min;
  return true;
}

static inline bool gr_accepts(const mtx_grammar *g, const gr_state *s, uint64_t c) {
  if (!s->accept) return false;
  if (s->kind == GR_PLAIN) return true;
  const gr_rule *r = g->rules + s->rule;
  if (s->kind == GR_COUNT) return c >= r->min;
  if (s->kind == GR_LOOP) return c >= 1 && c >= r->min;
  return gr_set_done(g, g->sets + r->set, c);
}

#endif
