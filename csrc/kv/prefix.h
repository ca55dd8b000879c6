// SPDX-License-Identifier: MIT
// The index of prefixes: tokens of earlier requests whose memory later ones share.
//
// A radix tree per key (who may reuse it). An edge holds tokens and the pages of
// their layers without a window; whoever comes with the same tokens gets these
// pages, and what it writes behind them is copied first. Models whose sequences
// cannot be cut anywhere (sliding windows, recurrent state) also need a checkpoint:
// the window's pages or the state at one length; they go on from the last one.
//
// A look-up reads the prompt once. All memory counts against the budget: pages and
// states that are held (each once), tokens and the tree's own nodes. Beyond it the
// leaf or the checkpoint that was used longest ago goes. One thread at a time.
#ifndef MTX_KV_PREFIX_H
#define MTX_KV_PREFIX_H

#include "kv/kv.h"

typedef struct mtx_prefix mtx_prefix;

mtx_code mtx_prefix_open(mtx_prefix **out, mtx_kv *kv, uint64_t budget_bytes, mtx_err *err);
void mtx_prefix_close(mtx_prefix *p);

// Remembers the tokens of `seq`: its mtx_kv_seq_len tokens are tokens[]. The sequence
// stays the caller's. For models with checkpoints its present length becomes one.
// Without memory or beyond the whole budget nothing is remembered.
void mtx_prefix_put(mtx_prefix *p, const char *key, int seq, const int32_t *tokens);

// A new sequence with as many of tokens[0..n) as are known; *kept tells how many, maybe 0.
mtx_code mtx_prefix_take(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n, int *seq, int64_t *kept, mtx_err *err);

// The same, but nobody has used them: the order in which they would go stays.
mtx_code mtx_prefix_copy(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n, int *seq, int64_t *kept, mtx_err *err);

// How many of tokens[0..n) take would keep.
int64_t mtx_prefix_known(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n);

// Calls visit for every sequence that no other continues, the last used first, until it returns false.
// visit may copy, and nothing else. Without memory some are left out.
void mtx_prefix_each(mtx_prefix *p, bool (*visit)(void *ctx, const char *key, const int32_t *tokens, int64_t n), void *ctx);

// Forgets tokens[0..n) and what only they led to; returns how many tokens were known.
int64_t mtx_prefix_forget(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n);

// True when sequences cannot be cut at will, so that places worth coming back to are put on their own.
bool mtx_prefix_wants_checkpoints(const mtx_prefix *p);

// Drops what was used longest ago; false when there is nothing.
bool mtx_prefix_evict(mtx_prefix *p);

typedef struct { int64_t n_nodes, n_checkpoints; uint64_t bytes; } mtx_prefix_stats;
mtx_prefix_stats mtx_prefix_get_stats(const mtx_prefix *p);
// Counts everything again; false = the tree is broken or holds pages that it does not know.
bool mtx_prefix_check(const mtx_prefix *p);

#endif
