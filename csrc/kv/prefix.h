// SPDX-License-Identifier: MIT
// The index of prefixes: sequences of finished requests that later ones may
// start from.
//
// An entry is a kv sequence with its tokens and a key (who may reuse it). Pages
// are shared with whoever forks from it, so an entry costs no copy. Entries leave
// in order of last use, when their bytes pass the budget, when the pool needs
// pages, or when a longer entry holds all of their tokens. One thread at a time.
#ifndef MTX_KV_PREFIX_H
#define MTX_KV_PREFIX_H

#include "kv/kv.h"

typedef struct mtx_prefix mtx_prefix;

// budget_bytes: of pages and states held by entries (shared pages count for each).
mtx_code mtx_prefix_open(mtx_prefix **out, mtx_kv *kv, int max_entries, uint64_t budget_bytes, mtx_err *err);
void mtx_prefix_close(mtx_prefix *p);  // frees the entries' sequences

// Takes over `seq`, whose first mtx_kv_seq_len tokens are tokens[]; it is freed at
// once when it adds nothing (another entry holds these tokens, or no budget).
void mtx_prefix_put(mtx_prefix *p, const char *key, int seq, const int32_t *tokens);

// The entry from which most of tokens[0..n) can be taken over. *kept = how many
// (at most n); returns its sequence to fork from, or -1.
int mtx_prefix_find(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n, int64_t *kept);

// True when a sequence cannot be cut at will (windows, recurrent state), so that
// places worth coming back to should be put on their own.
bool mtx_prefix_wants_checkpoints(const mtx_prefix *p);

// Frees the entry that was used longest ago; false when there is none.
bool mtx_prefix_evict(mtx_prefix *p);

typedef struct { int n_entries; uint64_t bytes; } mtx_prefix_stats;
mtx_prefix_stats mtx_prefix_get_stats(const mtx_prefix *p);

#endif
