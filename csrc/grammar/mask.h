// SPDX-License-Identifier: MIT
// Token masks of one frame, shared by all matchers of a grammar and a trie.
//
// What may follow splits in two: tokens that end inside the innermost frame
// depend on that frame alone and are found once per state (an entry); tokens
// that leave it start over, where it can end, with whatever stack the matcher
// has. Tokens before whose first byte the frame ends are not its own but those of
// the position that it returns to. The bytes they go on with are few and much alike ("," and "}" after a
// string), so an entry keeps them as a trie of their own (the tails). A loop
// counts as one frame with its body and is walked without its bounds, noting
// how many iterations each token begins: one entry serves every count of every
// loop of a family. A COUNT rule's characters are counted the same way.
//
// A frame without calls (a leaf: the inside of a string, a number) is a plain
// automaton. Its entries are found by table look-ups, and equal automata of
// different grammars share them through the vocabulary.
#ifndef MTX_GRAMMAR_MASK_H
#define MTX_GRAMMAR_MASK_H

#include "grammar/step.h"
#include "grammar/trie.h"

typedef struct {
  int32_t d;
  int32_t family;  // rule number of the loop's family, or of the COUNT rule; -1: neither
  uint64_t c;      // the counter in SET rules, else 0
} mask_key;

typedef struct {
  uint32_t node;
  uint32_t count;  // iterations completed since the token began
} mask_exit;

#define MASK_LEVELS 16u

typedef struct mask_entry {
  atomic_int refs_held;
  // dense: bits of all tokens; for loops followed by MASK_LEVELS + 1 sets, set r
  // holding the tokens that begin at most r iterations. NULL: ids has all.
  uint64_t *dense;
  // sparse: every token; dense loops: those beginning more than MASK_LEVELS,
  // most first. begun is NULL outside loops.
  uint32_t *ids, *begun;
  uint32_t n_ids, max_begun;
  // Tokens that leave the frame, by what they go on with; tail_exits[k] is the exit
  // of the token tails.order[k].
  mtx_walk_trie tails;
  mask_exit *tail_exits;
  // Exits that so many tokens pass that the vocabulary's trie is walked from there.
  mask_exit *exits;
  uint32_t n_exits;
  // The rest of the tails and exits is that of `base`, but for exits at the nodes
  // dropped[0..n_dropped), in order. NULL: there is no more.
  struct mask_entry *base;
  uint32_t *dropped, n_dropped;
  size_t bytes;
} mask_entry;

// One depth of a walk.
typedef struct {
  uint32_t set;        // where the set of its node begins in sets; it ends where the next depth's does
  uint32_t n_nodes;    // stack nodes the set needs
  uint32_t next, end;  // children not yet tried: in the trie's lists, or nodes
  bool listed;
  uint64_t bytes[4];   // that may come below its node
} mask_level;

// Scratch for walking tries; one per matcher.
typedef struct {
  gr_cfgs sets;        // the sets of all depths, one after the other
  mask_level *levels;  // [max_depth + 3]
  MTX_VEC(uint32_t, ids);
  MTX_VEC(uint32_t, begun);
  MTX_VEC(mask_exit, exits);
  MTX_VEC(uint32_t, removed);  // see mtx_mask_walk_against
  MTX_VEC(uint32_t, dropped);
} mask_walk;

typedef struct {
  mask_key key;
  mask_entry *entry;  // NULL: an empty slot
} mask_slot;

typedef struct mask_cache {
  atomic_int refs_held;
  uint64_t serial;
  pthread_mutex_t lock;  // guards table and n_*
  mask_slot *table;
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

// The entry for key, with a reference for the caller.
// NULL: out of memory or fuel, with *code set.
mask_entry *mtx_mask_entry_get(mask_cache *c, const mtx_grammar *g, const mtx_vocab_trie *t, mask_walk *w,
                               mask_key key, mtx_code *code);
void mtx_mask_entry_unref(mask_entry *e);

// Tokens that leave the frame of e and go on from `x` (on s's stacks), where only
// bytes of `follow` can come: appends ids and the exits' counts to w->ids,
// w->begun (emptied first).
mtx_code mtx_mask_leave(const mask_entry *e, gr_stacks *s, const mtx_vocab_trie *t, mask_walk *w,
                        const uint64_t follow[4], gr_cfg x);

// ---- between mask.c, mask_walk.c and mask_shared.c -----------------------------------------

// The rule whose end is the end of key's frame.
static inline uint32_t mtx_mask_frame(const mtx_grammar *g, mask_key key) {
  return key.family >= 0 ? (uint32_t)key.family : g->states[key.d].rule;
}

static inline bool mtx_mask_is_loop(const mtx_grammar *g, mask_key key) { return key.family >= 0 && g->rules[key.family].kind == GR_LOOP; }

// Fills w->ids, w->begun and w->exits for the frame; exits only where a byte of
// `follow` can come next.
mtx_code mtx_mask_walk_frame(const mtx_grammar *g, const mtx_walk_trie *t, mask_walk *w, mask_key key,
                             const uint64_t follow[4]);
// The same for a leaf that is no loop, by what differs from the state `base` of
// its rule: w->ids and w->exits are those base does not have, w->removed the
// tokens only base allows, w->dropped the nodes whose exits only base has or that
// lie beside base's path. MTX_ELIMIT: so much differs that it is no help.
mtx_code mtx_mask_walk_against(const mtx_grammar *g, const mtx_walk_trie *t, mask_walk *w, int32_t d, int32_t base,
                               const uint64_t follow[4]);
// The entry for what such a walk has found; base is NULL or the dense entry it was held against.
mask_entry *mtx_mask_entry_make(const mtx_vocab_trie *t, const mask_walk *w, const uint64_t follow[4], bool loop,
                                mask_entry *base);

// Entries of leaf frames by the shape of their automaton, one store per vocabulary.
struct mask_shared *mtx_mask_shared_new(void);
void mtx_mask_shared_free(struct mask_shared *s);  // NULL is fine
// As mtx_mask_entry_get, for a frame that is a leaf. MTX_EUNSUPPORTED: it is too large to be compared.
mask_entry *mtx_mask_shared_get(const mtx_grammar *g, const mtx_vocab_trie *t, mask_walk *w, mask_key key,
                                mtx_code *code);

#endif
