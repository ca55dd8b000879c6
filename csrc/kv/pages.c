// SPDX-License-Identifier: MIT
// Page pools and page tables: see pages.h.
//
// A page is zeroed when it is handed out: a kernel that loads whole vectors then
// never meets the bytes of another request, whatever it masks later. The cost is
// one write of a page per MTX_PAGE_TOKENS tokens, far below that of computing them.
#include "kv/pages.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SMALL_BYTES = 4096, HUGE_BYTES = 2 << 20 };  // pages of the memory manager

// Reserved at once, touched page by page. Huge pages: attention walks the pages of
// a sequence one after the other, and address translation would cost more than
// the bytes.
static uint8_t *map_pages(size_t n) {
  void *mem = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mem == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
  madvise(mem, n, MADV_HUGEPAGE);
#endif
  return mem;
}

mtx_code mtx_pool_init(mtx_pool *p, size_t page_bytes, int64_t n_pages, mtx_err *err) {
  memset(p, 0, sizeof *p);
  p->page_bytes = page_bytes;
  p->n_pages = p->n_free = p->n_fresh = n_pages;
  size_t total;
  if (n_pages > INT32_MAX || __builtin_mul_overflow(page_bytes, (size_t)n_pages, &total))
    return mtx_fail(err, MTX_ELIMIT, "a KV cache of %lld pages is too large", (long long)n_pages);
  if (!total) return MTX_OK;
  p->base = map_pages(total);
  p->refs = calloc((size_t)n_pages, sizeof *p->refs);
  p->held = calloc((size_t)n_pages, sizeof *p->held);
  p->free = malloc((size_t)n_pages * sizeof *p->free);
  if (!p->base || !p->refs || !p->held || !p->free) {
    mtx_pool_fini(p);
    return mtx_fail(err, MTX_ENOMEM, "no memory for a KV cache of %zu bytes; use a smaller context or KV type", total);
  }
  for (int64_t i = 0; i < n_pages; i++) p->free[i] = (int32_t)(n_pages - 1 - i);
  return MTX_OK;
}

void mtx_pool_fini(mtx_pool *p) {
  if (p->base) munmap(p->base, p->page_bytes * (size_t)p->n_pages);
  free(p->refs);
  free(p->held);
  free(p->free);
  memset(p, 0, sizeof *p);
}

// Zeroed, count 1; NULL when none is free.
static uint8_t *pool_take(mtx_pool *p) {
  if (!p->n_free) return NULL;
  int32_t i = p->free[--p->n_free];
  p->refs[i] = 1;
  uint8_t *page = p->base + (size_t)i * p->page_bytes;
  if (p->n_free < p->n_fresh) {
    p->n_fresh = p->n_free;
    size_t end = (size_t)(i + 1) * p->page_bytes;
    if (end > p->warm) p->warm = end;
  }
  memset(page, 0, p->page_bytes);
  return page;
}

bool mtx_pool_warm(mtx_pool *p, int64_t n) {
  n -= p->n_free - p->n_fresh;  // what was given back is handed out first
  if (n > p->n_fresh) n = p->n_fresh;
  size_t want = (size_t)(p->n_pages - p->n_fresh + n) * p->page_bytes, total = p->page_bytes * (size_t)p->n_pages;
  if (n <= 0 || p->warm >= want) return false;
  size_t end = p->warm + (HUGE_BYTES - (uintptr_t)(p->base + p->warm) % HUGE_BYTES);
  for (end = end < total ? end : total; p->warm < end; p->warm += SMALL_BYTES) *(volatile uint8_t *)(p->base + p->warm) = 0;
  p->warm = end;
  return true;
}

int64_t mtx_pool_index(const mtx_pool *p, const uint8_t *page) {
  return (int64_t)((size_t)(page - p->base) / p->page_bytes);
}

static void pool_ref(mtx_pool *p, uint8_t *page) {
  if (p->refs[mtx_pool_index(p, page)]++ == 1) p->n_shared++;
}

static void pool_unref(mtx_pool *p, uint8_t *page) {
  int64_t i = mtx_pool_index(p, page);
  uint32_t left = --p->refs[i];
  if (left == 1) p->n_shared--;
  if (left == 0) p->free[p->n_free++] = (int32_t)i;
}

void mtx_pool_hold(mtx_pool *p, uint8_t *page) {
  pool_ref(p, page);
  if (p->held[mtx_pool_index(p, page)]++ == 0) p->n_held++;
}

void mtx_pool_release(mtx_pool *p, uint8_t *page) {
  if (--p->held[mtx_pool_index(p, page)] == 0) p->n_held--;
  pool_unref(p, page);
}

static int64_t pages_of(int64_t n_tokens) { return (n_tokens + MTX_PAGE_TOKENS - 1) / MTX_PAGE_TOKENS; }

// Index of the partly filled page that the next token goes to, if it is shared; else -1.
static int64_t shared_tail(const mtx_table *t, const mtx_pool *p, int64_t len) {
  int64_t i = len / MTX_PAGE_TOKENS;
  if (len % MTX_PAGE_TOKENS == 0 || i >= t->n || !t->page[i]) return -1;
  return p->refs[mtx_pool_index(p, t->page[i])] > 1 ? i : -1;
}

int64_t mtx_table_needed(const mtx_table *t, const mtx_pool *p, int64_t len, int64_t n) {
  if (n <= 0) return 0;
  int64_t want = pages_of(len + n) - t->n;
  return (want > 0 ? want : 0) + (shared_tail(t, p, len) >= 0);
}

static mtx_code grow(mtx_table *t, int64_t n, mtx_err *err) {
  if (n <= t->cap) return MTX_OK;
  int64_t cap = t->cap * 2 > n ? t->cap * 2 : n;
  uint8_t **page = realloc(t->page, (size_t)cap * sizeof *page);
  if (!page) return mtx_fail(err, MTX_ENOMEM, "no memory for a table of %lld pages", (long long)cap);
  t->page = page;
  t->cap = cap;
  return MTX_OK;
}

mtx_code mtx_table_reserve(mtx_table *t, mtx_pool *p, int64_t len, int64_t n, mtx_err *err) {
  if (n <= 0) return MTX_OK;
  mtx_code rc = grow(t, pages_of(len + n), err);
  if (rc) return rc;
  int64_t tail = shared_tail(t, p, len);
  if (tail >= 0) {
    uint8_t *copy = pool_take(p);
    memcpy(copy, t->page[tail], p->page_bytes);
    pool_unref(p, t->page[tail]);
    t->page[tail] = copy;
  }
  while (t->n < pages_of(len + n)) t->page[t->n++] = pool_take(p);
  return MTX_OK;
}

mtx_code mtx_table_share(mtx_table *dst, uint8_t *const *page, mtx_pool *p, int64_t n_tokens, mtx_err *err) {
  int64_t n = pages_of(n_tokens);
  mtx_code rc = grow(dst, n, err);
  if (rc) return rc;
  dst->first = 0;
  for (int64_t i = 0; i < n; i++) {
    dst->page[i] = page[i];
    if (page[i]) pool_ref(p, page[i]);
    else dst->first = i + 1;
  }
  dst->n = n;
  return MTX_OK;
}

mtx_code mtx_table_blank(mtx_table *t, mtx_pool *p, int64_t first, int64_t n_tokens, mtx_err *err) {
  mtx_code rc = grow(t, pages_of(n_tokens), err);
  if (rc) return rc;
  for (int64_t i = 0; i < first; i++) t->page[i] = NULL;
  t->first = t->n = first;
  return mtx_table_reserve(t, p, first * MTX_PAGE_TOKENS, n_tokens - first * MTX_PAGE_TOKENS, err);
}

void mtx_table_cut(mtx_table *t, mtx_pool *p, int64_t n_tokens) {
  int64_t keep = pages_of(n_tokens);
  while (t->n > keep) {
    t->n--;
    if (t->n >= t->first) pool_unref(p, t->page[t->n]);
  }
  if (t->first > t->n) t->first = t->n;
}

void mtx_table_give_back(mtx_table *t, mtx_pool *p, int64_t n_tokens) {
  int64_t end = n_tokens / MTX_PAGE_TOKENS;
  for (; t->first < t->n && t->first < end; t->first++) {
    pool_unref(p, t->page[t->first]);
    t->page[t->first] = NULL;
  }
}

void mtx_table_fini(mtx_table *t, mtx_pool *p) {
  mtx_table_cut(t, p, 0);
  free(t->page);
  memset(t, 0, sizeof *t);
}
