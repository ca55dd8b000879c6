// SPDX-License-Identifier: MIT
// The memory of sequences: pages of keys and values, and recurrent state.
//
// A page holds MTX_PAGE_TOKENS tokens of every layer of one layer group (layers
// with the same attention window share a group, so that sliding-window layers can
// give pages back on their own). Pages are reference-counted: a shared prefix is
// stored once; the last page is copied when one of its owners writes to it.
// Recurrent layers (Mamba, DeltaNet) keep one state slot per sequence, with
// snapshots at token counts that are multiples of MTX_SNAPSHOT_TOKENS.
// No file names and no policy live here; one thread uses an mtx_kv at a time.
#ifndef MTX_KV_KV_H
#define MTX_KV_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
  MTX_PAGE_TOKENS = 32,       // two 16-lane vectors of scores
  MTX_SNAPSHOT_TOKENS = 256,  // recurrent state is kept at these borders
  MTX_MAX_SNAPSHOTS = 8,      // per sequence; older ones are thinned out
};

typedef enum { MTX_KV_F32, MTX_KV_F16, MTX_KV_BF16, MTX_KV_Q8_0, MTX_KV_N_TYPES } mtx_kv_type;
const char *mtx_kv_type_name(mtx_kv_type t);
bool mtx_kv_type_parse(const char *name, mtx_kv_type *out);

// What one attention layer stores per token.
typedef struct mtx_kv_layer {
  int group;            // index into mtx_kv_layout.window
  int n_head_kv;
  int dk, dv;           // floats per head of a key / of a value
  // Filled by mtx_kv_layout_fill: byte offsets inside a page of the group (multiples of 64).
  // K of head h, transposed: [n_head_kv][dk][MTX_PAGE_TOKENS]; V: [n_head_kv][MTX_PAGE_TOKENS][dv].
  // Q8_0: each head's int8 data is followed by f32 scales: K [(dk+31)/32][MTX_PAGE_TOKENS],
  // V [MTX_PAGE_TOKENS][(dv+31)/32]. *_head_bytes covers one head, a multiple of 64.
  size_t k_off, v_off, k_head_bytes, v_head_bytes;
} mtx_kv_layer;

enum { MTX_KV_MAX_GROUPS = 4, MTX_KV_MAX_LAYERS = 512 };

typedef struct mtx_kv_layout {
  mtx_kv_type type;
  int n_groups;
  int window[MTX_KV_MAX_GROUPS];        // tokens a row can look back (itself included); 0 = all
  size_t page_bytes[MTX_KV_MAX_GROUPS]; // filled by mtx_kv_layout_fill
  int n_layers;                         // attention layers, in plan order
  mtx_kv_layer layer[MTX_KV_MAX_LAYERS];
  size_t state_bytes;                   // recurrent state of one sequence, 0 = none; starts zeroed
} mtx_kv_layout;

// Fills the sizes and offsets from type, groups and heads. MTX_EINVAL, MTX_ELIMIT.
mtx_code mtx_kv_layout_fill(mtx_kv_layout *l, mtx_err *err);
// Bytes that one sequence of n_tokens takes in a filled layout: its pages (of a window's group those the window
// reaches) and its state. UINT64_MAX when no 64 bits hold it.
uint64_t mtx_kv_seq_bytes(const mtx_kv_layout *l, int64_t n_tokens);
// The first token a row at position n sees in a group, 0 without a window.
int64_t mtx_kv_window_start(const mtx_kv_layout *l, int group, int64_t n);

typedef struct mtx_kv mtx_kv;

// max_tokens: budget of cached tokens over all sequences of the global group
// (other groups get what their window needs for max_seqs sequences plus slack).
mtx_code mtx_kv_open(mtx_kv **out, const mtx_kv_layout *layout, int64_t max_tokens, int max_seqs, mtx_err *err);
void mtx_kv_close(mtx_kv *kv);
const mtx_kv_layout *mtx_kv_get_layout(const mtx_kv *kv);

// ---- sequences (ids are small integers, reused after free) -----------------
mtx_code mtx_kv_seq_new(mtx_kv *kv, int *seq, mtx_err *err);          // MTX_ELIMIT when all are in use
void mtx_kv_seq_free(mtx_kv *kv, int seq);
bool mtx_kv_seq_valid(const mtx_kv *kv, int seq);
int64_t mtx_kv_seq_len(const mtx_kv *kv, int seq);                    // tokens stored

// New sequence that shares the first tokens of src. At most n_tokens are kept;
// *kept tells how many (less when window pages are gone or a recurrent snapshot
// lies further back): the caller evaluates the rest again.
mtx_code mtx_kv_seq_fork(mtx_kv *kv, int src, int64_t n_tokens, int *dst, int64_t *kept, mtx_err *err);
// Cuts seq to at most n_tokens; same rule for the return value (tokens kept).
int64_t mtx_kv_seq_truncate(mtx_kv *kv, int seq, int64_t n_tokens);

// Makes room for n more tokens of seq, copying a shared last page. MTX_ELIMIT
// (nothing changed) when the pool has too few pages.
mtx_code mtx_kv_seq_reserve(mtx_kv *kv, int seq, int64_t n, mtx_err *err);
// Pages that reserve would take from the pool's global group.
int64_t mtx_kv_seq_pages_needed(const mtx_kv *kv, int seq, int64_t n);
// Fresh memory has to be waited for: milliseconds for a huge page that a virtual machine's host has not given or has taken
// back. If fewer than n free pages of a group have been touched, this touches more of them, one huge page at most; true if it did.
bool mtx_kv_warm(mtx_kv *kv, int64_t n);
// The n reserved tokens are written: they count now; window pages nobody can see are
// given back; a recurrent state that stands on a snapshot border is snapshotted
// (step.c ends steps of recurrent models on these borders).
void mtx_kv_seq_advance(mtx_kv *kv, int seq, int64_t n);

// ---- what kernels read -----------------------------------------------------
// Page table of seq in a group: entry i holds tokens [i*P, (i+1)*P); NULL where given back.
uint8_t *const *mtx_kv_seq_pages(const mtx_kv *kv, int seq, int group);
// Recurrent state (state_bytes, 64-byte aligned), private to the sequence; NULL without one.
void *mtx_kv_seq_state(mtx_kv *kv, int seq);

// ---- memory that outlives its sequence (the prefix index) --------------------
// A held page is kept until released, whatever happens to its sequence. It must
// belong to tokens that are written; whoever writes behind them copies it.
void mtx_kv_hold(mtx_kv *kv, int group, uint8_t *page);
void mtx_kv_release(mtx_kv *kv, int group, uint8_t *page);
uint64_t mtx_kv_held_bytes(const mtx_kv *kv);  // of all groups, each page once
int64_t mtx_kv_n_holds(const mtx_kv *kv);      // holds not yet released

typedef struct mtx_snapshot mtx_snapshot;      // recurrent state at some length: state.h
// Takes a snapshot of the present state (sequences of recurrent models; nothing without memory).
void mtx_kv_seq_keep(mtx_kv *kv, int seq);
// The sequence's snapshots, ascending; borrowed.
mtx_snapshot *const *mtx_kv_seq_snapshots(const mtx_kv *kv, int seq, int *n);

// New sequence of n_tokens over shared pages: page[g][i] holds tokens [i*P, (i+1)*P) of group g,
// NULL below what the window needs. `at`: the recurrent state at n_tokens, NULL without one.
mtx_code mtx_kv_seq_build(mtx_kv *kv, int64_t n_tokens, uint8_t *const *const *page, mtx_snapshot *at, int *seq, mtx_err *err);
// New sequence of n_tokens with pages of its own, zeroed, from number first[g] on (the window of a row
// behind them must not reach further back); the caller fills pages, state and snapshots. MTX_ELIMIT: pages.
mtx_code mtx_kv_seq_blank(mtx_kv *kv, int64_t n_tokens, const int64_t *first, int *seq, mtx_err *err);
// Adds a snapshot behind the sequence's others (n_tokens ascending, at most its length); a reference is taken.
void mtx_kv_seq_add_snapshot(mtx_kv *kv, int seq, mtx_snapshot *snap);

typedef struct { int64_t n_total, n_free, n_shared; } mtx_kv_stats;  // pages of the global group
mtx_kv_stats mtx_kv_get_stats(const mtx_kv *kv);
int mtx_kv_n_seqs(const mtx_kv *kv);
// Counts references against page tables; false = a page leaked or is owned twice (tests).
bool mtx_kv_check(const mtx_kv *kv);

#endif
