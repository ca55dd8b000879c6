// SPDX-License-Identifier: MIT
// Page pools and page tables: the part of kv that knows no sequences.
//
// A pool is one block of equal pages with a reference count each. A table is
// the list of pages one sequence owns in one group. Invariants:
//  - entries [0, first) are NULL (given back), [first, n) are owned references;
//  - a page that a sequence may write (at or behind its length) has count 1,
//    which table_reserve establishes and only table_share ends.
#ifndef MTX_KV_PAGES_H
#define MTX_KV_PAGES_H

#include "kv/kv.h"

typedef struct mtx_pool {
  uint8_t *base;       // n_pages * page_bytes, 64-byte aligned; touched as handed out
  size_t page_bytes;
  int64_t n_pages, n_free, n_shared;
  uint32_t *refs;      // [n_pages]
  uint32_t *held;      // [n_pages] how many of the references belong to no table (kv.h: hold)
  int64_t n_held;      // pages held at least once
  int32_t *free;       // stack of the n_free free page numbers
  int64_t n_fresh;     // pages never handed out: the last n_fresh, which are the bottom of the stack
  size_t warm;         // bytes from base on that have been touched
} mtx_pool;

typedef struct mtx_table {
  uint8_t **page;      // [cap]
  int64_t first, n, cap;
} mtx_table;

mtx_code mtx_pool_init(mtx_pool *p, size_t page_bytes, int64_t n_pages, mtx_err *err);
void mtx_pool_fini(mtx_pool *p);
void mtx_pool_hold(mtx_pool *p, uint8_t *page);     // one more reference, counted as held
void mtx_pool_release(mtx_pool *p, uint8_t *page);
int64_t mtx_pool_index(const mtx_pool *p, const uint8_t *page);
bool mtx_pool_warm(mtx_pool *p, int64_t n);         // kv.h: warm

// Pages that table_reserve would take for tokens [len, len + n).
int64_t mtx_table_needed(const mtx_table *t, const mtx_pool *p, int64_t len, int64_t n);
// The caller has checked that the pool has table_needed free pages. MTX_ENOMEM
// changes nothing.
mtx_code mtx_table_reserve(mtx_table *t, mtx_pool *p, int64_t len, int64_t n, mtx_err *err);
// dst (empty) takes references to page[0 .. pages of n_tokens): those that are NULL come first.
mtx_code mtx_table_share(mtx_table *dst, uint8_t *const *page, mtx_pool *p, int64_t n_tokens, mtx_err *err);
// t (empty) gets fresh pages for tokens [first * P, n_tokens), which the pool must have free.
mtx_code mtx_table_blank(mtx_table *t, mtx_pool *p, int64_t first, int64_t n_tokens, mtx_err *err);
void mtx_table_cut(mtx_table *t, mtx_pool *p, int64_t n_tokens);       // keeps pages of tokens < n_tokens
void mtx_table_give_back(mtx_table *t, mtx_pool *p, int64_t n_tokens); // drops pages wholly below n_tokens
void mtx_table_fini(mtx_table *t, mtx_pool *p);

#endif
