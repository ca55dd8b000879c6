// SPDX-License-Identifier: MIT
// Inside of a matcher: matcher.c moves it, matcher_mask.c says what may come.
#ifndef MTX_GRAMMAR_MATCHER_H
#define MTX_GRAMMAR_MATCHER_H

#include "grammar/mask.h"
#include "grammar/trigger.h"

#define MATCHER_STEP_FUEL 20000000ll  // positions per byte or mask; far above any sane grammar
#define MATCHER_N_LEAVES 256u         // remembered (frame, stack) pairs

// The tokens that leave a frame, as they were found for one stack below it.
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
  leave *leaves;      // [MATCHER_N_LEAVES], NULL until the first mask
  uint64_t *scratch;  // one mask
};

// Forgets m->leaves: stacks have got other numbers.
void mtx_matcher_drop_leaves(mtx_matcher *m);
// Whether free text p[0..n) may come: if a trigger ends inside, the grammar must take the rest.
// Changes nothing; m->stacks.status tells why not when that is no matter of the text.
bool mtx_matcher_free_allows(mtx_matcher *m, const char *p, size_t n);
// The error of a step that failed with `code`.
mtx_code mtx_matcher_too_ambiguous(mtx_code code, mtx_err *err);

#endif
