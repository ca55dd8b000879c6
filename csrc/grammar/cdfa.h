// SPDX-License-Identifier: MIT
// Deterministic automata over code points: the algebra behind `pattern`,
// formats, number bounds and "any key but these".
//
// Regular conditions on one text are combined here (and, or, not) before they
// are written into a grammar, because a pushdown grammar has no intersection.
// State 0 is the start; a missing edge means "no". Surrogates never occur.
// All functions return NULL when out of memory or over MTX_CDFA_MAX_STATES.
#ifndef MTX_GRAMMAR_CDFA_H
#define MTX_GRAMMAR_CDFA_H

#include "grammar/vec.h"

#define MTX_CDFA_MAX_STATES 20000u
#define MTX_CDFA_MAX_EDGES 400000u

typedef struct {
  uint32_t lo, hi;
  uint32_t to;
} cd_edge;

typedef struct {
  uint32_t edge, n_edges;  // ordered by lo, not overlapping
  bool accept;
} cd_state;

typedef struct mtx_cdfa {
  MTX_VEC(cd_state, states);
  MTX_VEC(cd_edge, edges);
} mtx_cdfa;

mtx_cdfa *mtx_cdfa_new(void);
void mtx_cdfa_free(mtx_cdfa *d);
// Adds a state; its edges are then added, in order, before the next state's.
// Returns the index or UINT32_MAX.
uint32_t mtx_cdfa_state(mtx_cdfa *d, bool accept);
bool mtx_cdfa_edge(mtx_cdfa *d, uint32_t lo, uint32_t hi, uint32_t to);

mtx_cdfa *mtx_cdfa_any(void);  // every text
mtx_cdfa *mtx_cdfa_length(uint32_t min, uint32_t max);  // code points; max UINT32_MAX: no bound
// Exactly these UTF-8 texts.
mtx_cdfa *mtx_cdfa_words(const char *const *words, const size_t *lens, size_t n);
mtx_cdfa *mtx_cdfa_and(const mtx_cdfa *x, const mtx_cdfa *y);
mtx_cdfa *mtx_cdfa_minus(const mtx_cdfa *x, const mtx_cdfa *y);
// Fewest states; dead ends removed.
mtx_cdfa *mtx_cdfa_minimize(const mtx_cdfa *x);
bool mtx_cdfa_is_empty(const mtx_cdfa *x);  // matches nothing; x minimal
// May its texts be counted while they are written (COUNT rules, automaton.h)? x minimal. With a lower
// bound above the shortest text every state must have an end at each length from its nearest on.
bool mtx_cdfa_is_countable(const mtx_cdfa *x, uint32_t min);
bool mtx_cdfa_match(const mtx_cdfa *d, const char *utf8, size_t n);

#endif
