// SPDX-License-Identifier: MIT
// Recurrent state of one sequence: the live state and its snapshots.
//
// The live state is private. Snapshots never change, so forks share them by
// reference count.
#ifndef MTX_KV_STATE_H
#define MTX_KV_STATE_H

#include "kv/kv.h"

struct mtx_snapshot {
  int64_t n_tokens;
  int refs;
  void *data;  // state_bytes
};

typedef struct mtx_state {
  void *live;  // state_bytes, 64-byte aligned
  int n;
  mtx_snapshot *snap[MTX_MAX_SNAPSHOTS];  // ascending n_tokens
} mtx_state;

// Snapshots one sequence may hold: fewer than MTX_MAX_SNAPSHOTS where a state is large.
int mtx_state_max_snapshots(size_t state_bytes);

mtx_code mtx_state_init(mtx_state *s, size_t bytes, mtx_err *err);  // zeroed
void mtx_state_fini(mtx_state *s);
void mtx_snapshot_ref(mtx_snapshot *snap);
void mtx_snapshot_unref(mtx_snapshot *snap);
// A state of zeros to be filled, one reference; NULL without memory.
mtx_snapshot *mtx_snapshot_new(size_t bytes, int64_t n_tokens);
// Takes a snapshot of the live state at n_tokens; without memory it takes none.
void mtx_state_keep(mtx_state *s, size_t bytes, int64_t n_tokens);
// The largest n <= n_tokens at which the state is known: len itself, a snapshot, or 0.
int64_t mtx_state_nearest(const mtx_state *s, int64_t len, int64_t n_tokens);
// Puts the live state of dst to what src was at n_tokens (a value of mtx_state_nearest).
// dst may be src; dst takes references to src's snapshots up to n_tokens.
void mtx_state_restore(mtx_state *dst, const mtx_state *src, size_t bytes, int64_t len, int64_t n_tokens);

#endif
