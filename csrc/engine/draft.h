// SPDX-License-Identifier: MIT
// Drafts by prompt lookup: what may follow a text is what followed its end where that stood before.
//
// The index holds a sequence's tokens (before them, if there is one, a reference text that the reply may
// repeat) and for every n-gram where it ended last, in chains as LZ77 coders have them. A token is added and
// taken back in O(1); memory is 8 bytes a token and a table of fixed size. The longest match is what the
// draft goes on from. How often such guesses came true, by the length of the match, is counted with every
// token, drafted or not, so that nothing has to be tried out to learn that it pays again.
// Idea: Saxena 2023, "Prompt Lookup Decoding".
#ifndef MTX_ENGINE_DRAFT_H
#define MTX_ENGINE_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
  MTX_DRAFT_MAX = 15, MTX_DRAFT_MIN_MATCH = 2,  // defaults
  MTX_DRAFT_MOST = 32,         // tokens of one draft
  MTX_DRAFT_MOST_MATCH = 16,   // largest min_match
  MTX_DRAFT_CLASSES = 5,       // lengths of matches told apart
};

typedef struct mtx_draft_opts {
  int max;                     // tokens of a draft at most; 0 = no drafts
  int min_match;               // tokens at the end that must have stood before
  bool fixed;                  // always as many as there are, whatever they cost; else as many as pay
} mtx_draft_opts;

typedef struct mtx_draft {
  mtx_draft_opts opts;
  mtx_ids ids;                 // reference, a border, the sequence
  size_t n_before;             // of them before the sequence
  int32_t *prev; size_t cap_prev;  // [ids.len]: where the n-gram that ends here (or one of the same hash) ended before, -1 = nowhere
  int32_t *last; uint32_t table_mask;  // by hash: where it ended last
  bool sought;                 // `from` and `match` are up to date
  size_t from, match;          // what follows the longest match, and the match's length; 0 = there is none
  double hit[MTX_DRAFT_CLASSES];   // share of the guesses that came true
  int32_t next[MTX_DRAFT_MOST];    // the draft that is being evaluated,
  int n_next;
  int64_t at;                      // which stands at this index of the sequence
  int64_t n_drafted, n_accepted;   // tokens so far
} mtx_draft;

// n_tokens: how long the sequence may become. reference[n]: a text it may repeat, or NULL; only its first n_tokens are kept.
mtx_code mtx_draft_open(mtx_draft **out, const mtx_draft_opts *opts, int64_t n_tokens, const int32_t *reference, int64_t n, mtx_err *err);
void mtx_draft_close(mtx_draft *d);
// The sequence begins with these: they are remembered, nothing is learnt from them.
mtx_code mtx_draft_read(mtx_draft *d, const int32_t *ids, int64_t n, mtx_err *err);
// The sequence's next token.
mtx_code mtx_draft_add(mtx_draft *d, int32_t id, mtx_err *err);
// Only the first n tokens of the sequence count.
void mtx_draft_cut(mtx_draft *d, int64_t n);
// Up to n tokens that may come next into ids[], and into p[] how likely each is to come with all before it. -> how many
int mtx_draft_guess(mtx_draft *d, int32_t *ids, double *p, int n);

#endif
