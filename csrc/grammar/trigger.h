// SPDX-License-Identifier: MIT
// Free text until one of a few strings has been seen ("lazy" grammars). With an opening
// text ("<think>") the free text is only entered by it: any other start is constrained.
#ifndef MTX_GRAMMAR_TRIGGER_H
#define MTX_GRAMMAR_TRIGGER_H

#include "grammar/trie.h"

#define MTX_TRIGGER_MAX 16
#define MTX_TRIGGER_MAX_BYTES 1024

typedef struct mtx_trigger mtx_trigger;

typedef enum { MTX_OPENING_NO, MTX_OPENING_BLANK, MTX_OPENING_PART, MTX_OPENING_WHOLE } mtx_opening;

typedef struct {
  bool choosing;    // the opening text may still come
  bool seen;
  uint16_t opened;  // bytes of the opening text so far
  uint16_t at[MTX_TRIGGER_MAX];  // bytes of each trigger matched so far
} mtx_trigger_state;

// v: the vocabulary, or NULL.
mtx_code mtx_trigger_new(const mtx_matcher_opts *opts, const mtx_vocab_trie *v, mtx_trigger **out, mtx_err *err);
void mtx_trigger_free(mtx_trigger *t);

bool mtx_trigger_choosing(const mtx_trigger *t);
bool mtx_trigger_waiting(const mtx_trigger *t);
// While choosing: what p[0..n) makes of the opening text. PART: all of it belongs there. BLANK: blanks
// and line ends before it, which the grammar must allow too. WHOLE: *taken bytes end it, free
// text follows. NO: no free text will come; the trigger counts as seen.
mtx_opening mtx_trigger_open(mtx_trigger *t, const char *p, size_t n, size_t *taken);
bool mtx_trigger_optional(const mtx_trigger *t);
// A token of the vocabulary is the opening text: a model that has it does not spell it out.
bool mtx_trigger_opens_whole(const mtx_trigger *t);
// No free text: constrained from here on.
void mtx_trigger_constrain(mtx_trigger *t);
// Takes bytes up to and with the one that completes a trigger; returns how many.
size_t mtx_trigger_feed(mtx_trigger *t, const char *p, size_t n);
mtx_trigger_state mtx_trigger_save(const mtx_trigger *t);
void mtx_trigger_restore(mtx_trigger *t, mtx_trigger_state s);

// Tokens that might complete a trigger before their last byte, given what has
// been matched so far (a superset). Borrowed until the next call.
mtx_code mtx_trigger_candidates(mtx_trigger *t, const mtx_vocab_trie *v, const uint32_t **ids, uint32_t *n);
// While choosing: tokens that belong to the opening text, or end it and go on. Borrowed likewise.
mtx_code mtx_trigger_opening_candidates(mtx_trigger *t, const mtx_vocab_trie *v, const uint32_t **ids, uint32_t *n);

#endif
