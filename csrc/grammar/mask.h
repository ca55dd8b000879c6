// SPDX-License-Identifier: MIT
// Token masks of one frame, shared by all matchers of a grammar and a trie.
//
// What may follow splits in two: tokens that end inside the innermost frame
// depend on that frame alone and are found once per state (an entry); tokens
// that leave it start over, at the trie nodes where it can end (the exits),
// with whatever stack the matcher has. A loop counts as one frame with its
// body and is walked without its bounds, noting how many iterations each
// token begins: one entry serves every count of every loop of a family.
#ifndef MTX_GRAMMAR_MASK_H
#define MTX_GRAMMAR_MASK_H

#include "grammar/step.h"
#include "grammar/trie.h"

typedef struct {
  int32_t d;
  int32_t family;  // rule number of the loop's family, or -1
  uint64_t c;      // the counter in SET rules, else 0
} mask_key;

typedef struct {
  uint32_t node;
  uint32_t count;  // iterations completed since the token began
} mask_exit;

#define MASK_LEVELS 16u

typedef struct mask_entry {
  mask_key key;
  // dense: bits of all tokens; for loops followed by MASK_LEVELS + 1 sets, set r
  // holding the tokens that begin at most r iterations. NULL: ids has all.
  uint64_t *dense;
  // sparse: every token; dense loops: those beginning more than MASK_LEVELS,
  // most first. begun is NULL outside loops.
  uint32_t *ids, *begun;
  uint32_t n_ids, max_begun;
  mask_exit *exits;
  uint32_t n_exits;
  size_t bytes;
} mask_entry;

// Scratch for walking the trie; one per matcher.
typedef struct {
  gr_cfgs sets;        // the sets of all depths, one after the other
  uint32_t *at;        // [max_depth + 3] where each depth's set begins
  uint32_t *n_nodes;   // [max_depth + 3] stack nodes that depth needs
  MTX_VEC(uint32_t, ids);
  MTX_VEC(uint32_t, begun);
  MTX_VEC(mask_exit, exits);
} mask_walk;

typedef struct mask_cache {
  atomic_int refs_held;
  uint64_t serial;
  pthread_mutex_t lock;  // guards table and n_*
  mask_entry **table;
  uint32_t n_table, n_entries;
  size_t bytes;
  uint32_t *ref_tokens;  // [n_refs] token id of each reference of the grammar
} mask_cache;

// The cache of (g, t), made on first use; the caller gets its own reference.
// MTX_ENOTFOUND: the grammar names a token the vocabulary does not have.
mtx_code mtx_mask_cache_get(mtx_grammar *g, const mtx_vocab_trie *t, mask_cache **out, mtx_err *err);
void mtx_mask_cache_unref(mask_cache *c);

mtx_code mtx_mask_walk_init(mask_walk *w, const mtx_vocab_trie *t);
void mtx_mask_walk_fini(mask_walk *w);

// The entry for key; *owned says the caller must free it (the cache was full).
// NULL: out of memory or fuel, with *code set.
mask_entry *mtx_mask_entry_get(mask_cache *c, const mtx_grammar *g, const mtx_vocab_trie *t, mask_walk *w,
                               mask_key key, bool *owned, mtx_code *code);
void mtx_mask_entry_free(mask_entry *e);

// Tokens that leave the frame at e's exits and go on from `x` (on s's stacks):
// appends ids and the exits' counts to w->ids, w->begun (emptied first).
mtx_code mtx_mask_leave(const mask_entry *e, gr_stacks *s, const mtx_vocab_trie *t, mask_walk *w, gr_cfg x);

#endif
