// SPDX-License-Identifier: MIT
// Expressions and rules while a grammar is being built: what every front end
// (GBNF, regex, schema, choice) makes and compile.c turns into automata.
//
// Expressions are numbers into a pool, children before parents; they may be
// shared. Errors are sticky: after the first, builder calls return
// MTX_GX_NEVER and mtx_gb_finish reports it, so front ends need no checks
// after each call.
#ifndef MTX_GRAMMAR_BUILD_H
#define MTX_GRAMMAR_BUILD_H

#include "grammar/automaton.h"

typedef uint32_t mtx_gx;
#define MTX_GX_EMPTY 0u  // matches the empty text
#define MTX_GX_NEVER 1u  // matches nothing
#define MTX_REP_INF UINT32_MAX

typedef struct {
  uint32_t lo, hi;  // code points, both included
} mtx_cprange;

struct mtx_cdfa;

enum { GX_EMPTY, GX_NEVER, GX_LIT, GX_CLASS, GX_CAT, GX_ALT, GX_OPT, GX_STAR, GX_PLUS, GX_REF, GX_TOKEN, GX_DFA };

typedef struct {
  uint8_t kind;
  uint8_t flag;      // TOKEN: negated; DFA: written inside a JSON string
  uint8_t nullable;  // set by compile.c
  uint32_t a, n;     // LIT: bytes; CLASS: ranges; CAT, ALT: kids; REF: rule; TOKEN: ref; DFA: index
  uint32_t size;     // states it will need, saturating
} gx_node;

typedef struct {
  uint8_t kind;  // GR_PLAIN, GR_LOOP, GR_SET, GR_COUNT
  bool defined;
  mtx_gx body;   // PLAIN
  uint32_t name, n_name;
  uint32_t loop_body, min, max;       // LOOP; COUNT: body is a DFA of texts with min to max characters
  uint32_t set, item, n_items;        // SET: gb->items[item..]
  mtx_gx sep;                         // SET: between two members
} gb_rule;

typedef struct {
  uint32_t rule;
  int32_t item;  // index or GR_EXTRA
} gb_item;

typedef struct mtx_gb {
  mtx_code code;
  mtx_err err;
  MTX_VEC(gx_node, nodes);
  MTX_VEC(mtx_gx, kids);
  MTX_VEC(uint8_t, bytes);
  MTX_VEC(mtx_cprange, ranges);
  MTX_VEC(gb_rule, rules);
  MTX_VEC(gb_item, items);
  MTX_VEC(gr_set, sets);
  MTX_VEC(uint32_t, set_next);
  MTX_VEC(uint64_t, set_needs);
  MTX_VEC(gr_token_ref, refs);
  MTX_VEC(char, text);  // rule names and token texts
  MTX_VEC(char *, warnings);
  MTX_VEC(struct mtx_cdfa *, dfas);
  int64_t deadline_ns;
  bool with_cases;    // conditions of schemas are enforced; used_cases: there were some. Without them the
  bool used_cases;    // same schema is smaller, for when it is too large with them
  const char *cycle;  // message for left recursion, with %.*s for the rule's name
} mtx_gb;

void mtx_gb_init(mtx_gb *b);
void mtx_gb_fini(mtx_gb *b);
// After a failure: may the same be tried with less? Then the builder is empty again.
bool mtx_gb_again(mtx_gb *b);
// Records the first failure; later ones are ignored.
void mtx_gb_fail(mtx_gb *b, mtx_code code, uint64_t offset, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void mtx_gb_warn(mtx_gb *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// False, with a failure recorded, once the compile time is used up.
bool mtx_gb_in_time(mtx_gb *b);

mtx_gx mtx_gx_lit(mtx_gb *b, const void *bytes, size_t n);
// Ranges in any order, overlapping or not; surrogates drop out.
mtx_gx mtx_gx_class(mtx_gb *b, const mtx_cprange *r, size_t n, bool negated);
mtx_gx mtx_gx_cat(mtx_gb *b, const mtx_gx *kids, size_t n);
mtx_gx mtx_gx_alt(mtx_gb *b, const mtx_gx *kids, size_t n);
mtx_gx mtx_gx_cat2(mtx_gb *b, mtx_gx x, mtx_gx y);
mtx_gx mtx_gx_alt2(mtx_gb *b, mtx_gx x, mtx_gx y);
// Small counts are written out, large ones become a LOOP rule.
mtx_gx mtx_gx_rep(mtx_gb *b, mtx_gx x, uint32_t min, uint32_t max);
// Always a LOOP rule over a rule: for wide bodies, whatever the counts.
mtx_gx mtx_gx_loop(mtx_gb *b, uint32_t body, uint32_t min, uint32_t max);
// The texts of a DFA that have min to max characters, as a COUNT rule. d: minimal, and such that
// mtx_cdfa_is_countable says so for these bounds; ownership as of mtx_gx_dfa.
mtx_gx mtx_gx_count(mtx_gb *b, struct mtx_cdfa *d, bool json, uint32_t min, uint32_t max);
mtx_gx mtx_gx_ref(mtx_gb *b, uint32_t rule);
mtx_gx mtx_gx_token(mtx_gb *b, uint32_t ref, bool negated);
// Takes ownership of d (freed with the builder), even on failure. json: the
// text stands inside a JSON string and is escaped there as needed.
mtx_gx mtx_gx_dfa(mtx_gb *b, struct mtx_cdfa *d, bool json);

// Is x ( text )* or ( text )+ and `after` a literal that cannot begin the text: the inside of a string?
bool mtx_gx_is_inside(const mtx_gb *b, mtx_gx x, mtx_gx after);

// A rule may be referred to before it is defined.
uint32_t mtx_gb_rule(mtx_gb *b, const char *name, size_t n_name);
void mtx_gb_define(mtx_gb *b, uint32_t rule, mtx_gx body);
// A new rule for x, or the rule x already refers to.
uint32_t mtx_gb_rule_of(mtx_gb *b, mtx_gx x, const char *name);
// Turns a declared rule into a SET over items[0..n), sep between members.
void mtx_gb_define_set(mtx_gb *b, uint32_t rule, const gr_set *set, const gb_item *items, size_t n,
                       mtx_gx sep);

// Appends to the text pool; returns the offset.
uint32_t mtx_gb_text(mtx_gb *b, const char *s, size_t n);

// Compiles and hands over; the builder may be finished with mtx_gb_fini after.
mtx_code mtx_gb_finish(mtx_gb *b, uint32_t root, mtx_grammar **out, mtx_err *err);

// ---- between compile.c and its parts ------------------------------------------
enum { NE_EPS, NE_BYTE, NE_CALL, NE_TOKEN };
typedef struct {
  uint8_t kind, lo, hi, negated;
  int32_t to, next;
  uint32_t arg;  // CALL: rule; TOKEN: ref
  int32_t item;
} nfa_edge;

typedef struct {
  MTX_VEC(nfa_edge, edges);
  MTX_VEC(int32_t, heads);  // first edge of each state, -1: none
  int32_t chars, n_chars;   // states of the last DFA, between characters
  bool failed;
} mtx_nfa;

int32_t mtx_nfa_state(mtx_nfa *f);
void mtx_nfa_byte(mtx_nfa *f, int32_t from, int32_t to, uint8_t lo, uint8_t hi);
void mtx_nfa_eps(mtx_nfa *f, int32_t from, int32_t to);
// Paths for the DFA between from and to, code points as UTF-8 bytes.
void mtx_nfa_dfa(mtx_nfa *f, const struct mtx_cdfa *d, bool json, int32_t from, int32_t to);
// Empties f and fills it with rule's automaton: start 0, end 1.
void mtx_nfa_lower(mtx_gb *b, uint32_t rule, mtx_nfa *f);
// Appends the deterministic automaton of f to g as rule's states.
mtx_code mtx_nfa_determinize(mtx_gb *b, const mtx_nfa *f, uint32_t rule, mtx_grammar *g);

#endif
