// SPDX-License-Identifier: MIT
// Moving sets of positions through a grammar, byte by byte.
//
// A position (cfg) is a state, its frame's counter and the stack below. Stacks
// are linked nodes that are never stored twice (equal stacks have equal
// numbers), so ambiguous grammars merge instead of multiplying. Nodes are
// only added at the end and removed from the end; a child's number is always
// above its parent's.
#ifndef MTX_GRAMMAR_STEP_H
#define MTX_GRAMMAR_STEP_H

#include "grammar/automaton.h"

#define GR_BOTTOM 0  // the empty stack: the text may end here
#define GR_EXIT 1    // a stack that is not known (masks of one frame, see mask.c)
#define GR_MAX_SET 4096u  // positions after one byte; more is too ambiguous to follow

typedef struct {
  int32_t d;
  int32_t parent;  // node, GR_BOTTOM or GR_EXIT
  uint64_t c;
} gr_cfg;

typedef struct {
  int32_t ret, parent;
  uint64_t c;  // the counter the frame will have when it is returned to
} gr_node;

typedef struct {
  const mtx_grammar *g;
  MTX_VEC(gr_node, nodes);
  int32_t *hash;
  uint32_t n_hash;
  MTX_VEC(gr_cfg, work);
  // The loop directly above GR_EXIT runs without its bounds and counts from 0.
  bool free_loop;
  bool skip_wide;   // the first byte leaves out calls of wide rules from PLAIN states: they are frames of their own
  int64_t fuel;     // position moves left
  mtx_code status;  // MTX_OK, or why stepping stopped (ELIMIT, ENOMEM)
} gr_stacks;

typedef struct {
  MTX_VEC(gr_cfg, v);
} gr_cfgs;

mtx_code gr_stacks_init(gr_stacks *s, const mtx_grammar *g);
void gr_stacks_fini(gr_stacks *s);
void gr_stacks_truncate(gr_stacks *s, uint32_t n_nodes);
// Drops nodes no position of set[0..n) stands on; renumbers the set.
void gr_stacks_collect(gr_stacks *s, gr_cfg *set, uint32_t n);
int32_t gr_stacks_push(gr_stacks *s, int32_t ret, int32_t parent, uint64_t c);

// Appends to out the positions after `byte`; returns how many (0: none, or
// s->status is set). in may point into out->v.
uint32_t gr_step(gr_stacks *s, gr_cfgs *out, uint32_t i_in, uint32_t n_in, uint8_t byte);
// A superset of the bytes that can come at the positions of set[0..n).
void gr_bytes(const gr_stacks *s, const gr_cfg *set, uint32_t n, uint64_t bits[4]);
// The position inside call k of x's state, if it calls a wide rule from a PLAIN state; false: it does not.
bool gr_open_wide(gr_stacks *s, gr_cfg x, uint32_t k, gr_cfg *out);
// The same for a token reference: matches(ctx, ref) tells if the token is meant.
uint32_t gr_step_token(gr_stacks *s, gr_cfgs *out, const gr_cfg *in, uint32_t n_in,
                       bool (*matches)(const void *ctx, uint32_t ref, bool negated), const void *ctx);
// All positions reachable without a byte that have token references, into
// s->work[0..n).
uint32_t gr_token_closure(gr_stacks *s, const gr_cfg *in, uint32_t n_in);

// Does the position accept, all frames down to the bottom included?
bool gr_complete(const gr_stacks *s, gr_cfg x);
// Position accepts and GR_EXIT is below: true, *count = the free loop's counter or 0.
bool gr_exits(const gr_stacks *s, gr_cfg x, uint64_t *count);
// Iterations of the free loop that have begun at x.
uint64_t gr_begun(const gr_stacks *s, gr_cfg x);

#endif
