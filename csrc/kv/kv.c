// SPDX-License-Identifier: MIT
// Sequences over pages and recurrent state: see kv.h.
//
// Window pages are kept a little longer than a row can look back
// (WINDOW_SLACK), so that a short rewind keeps its tokens instead of reading
// the whole prompt again.
#include "kv/kv.h"

#include <stdlib.h>
#include <string.h>

#include "kv/pages.h"
#include "kv/state.h"

enum {
  P = MTX_PAGE_TOKENS,
  WINDOW_SLACK = MTX_SNAPSHOT_TOKENS,  // tokens behind the window that stay
  WINDOW_STEP = 4096,                  // tokens that one step may reserve over all sequences
};

typedef struct {
  bool used;
  int64_t len;
  mtx_table table[MTX_KV_MAX_GROUPS];
  mtx_state state;
} seq_t;

struct mtx_kv {
  mtx_kv_layout layout;
  int global;          // group that budgets count in: the first without a window, else 0
  int max_seqs, n_seqs;
  mtx_pool pool[MTX_KV_MAX_GROUPS];
  seq_t *seq;          // [max_seqs]
  int64_t n_holds;
};

static int64_t div_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static int global_group(const mtx_kv_layout *l) {
  for (int g = 0; g < l->n_groups; g++)
    if (l->window[g] == 0) return g;
  return 0;
}

static int64_t pool_pages(const mtx_kv_layout *l, int g, int64_t max_tokens, int max_seqs) {
  int64_t all = div_up(max_tokens, P);
  if (l->window[g] == 0) return all;
  int64_t each = div_up((int64_t)l->window[g] + WINDOW_SLACK, P) + 2;
  int64_t windows = each * max_seqs + WINDOW_STEP / P;
  return windows < all + max_seqs ? windows : all + max_seqs;
}

// ---- life -------------------------------------------------------------------

mtx_code mtx_kv_open(mtx_kv **out, const mtx_kv_layout *layout, int64_t max_tokens, int max_seqs, mtx_err *err) {
  *out = NULL;
  if (max_tokens < 1 || max_tokens > INT64_C(1) << 40 || max_seqs < 1 || max_seqs > 1 << 20)
    return mtx_fail(err, MTX_EINVAL, "a KV cache of %lld tokens for %d sequences is out of range",
                    (long long)max_tokens, max_seqs);
  mtx_kv *kv = calloc(1, sizeof *kv);
  if (!kv) return mtx_fail(err, MTX_ENOMEM, "no memory for a KV cache");
  kv->layout = *layout;
  kv->max_seqs = max_seqs;
  mtx_code rc = mtx_kv_layout_fill(&kv->layout, err);
  if (rc) goto fail;
  kv->global = global_group(&kv->layout);
  kv->seq = calloc((size_t)max_seqs, sizeof *kv->seq);
  if (!kv->seq) {
    rc = mtx_fail(err, MTX_ENOMEM, "no memory for %d sequences", max_seqs);
    goto fail;
  }
  for (int g = 0; g < kv->layout.n_groups; g++)
    if ((rc = mtx_pool_init(&kv->pool[g], kv->layout.page_bytes[g], pool_pages(&kv->layout, g, max_tokens, max_seqs), err)))
      goto fail;
  *out = kv;
  return MTX_OK;
fail:
  mtx_kv_close(kv);
  return rc;
}

void mtx_kv_close(mtx_kv *kv) {
  if (!kv) return;
  if (kv->seq)
    for (int i = 0; i < kv->max_seqs; i++) mtx_kv_seq_free(kv, i);
  for (int g = 0; g < kv->layout.n_groups && g < MTX_KV_MAX_GROUPS; g++) mtx_pool_fini(&kv->pool[g]);
  free(kv->seq);
  free(kv);
}

const mtx_kv_layout *mtx_kv_get_layout(const mtx_kv *kv) { return &kv->layout; }

// ---- sequences --------------------------------------------------------------

bool mtx_kv_seq_valid(const mtx_kv *kv, int seq) { return seq >= 0 && seq < kv->max_seqs && kv->seq[seq].used; }

int64_t mtx_kv_seq_len(const mtx_kv *kv, int seq) { return mtx_kv_seq_valid(kv, seq) ? kv->seq[seq].len : 0; }

int mtx_kv_n_seqs(const mtx_kv *kv) { return kv->n_seqs; }

mtx_code mtx_kv_seq_new(mtx_kv *kv, int *seq, mtx_err *err) {
  *seq = -1;
  for (int i = 0; i < kv->max_seqs; i++) {
    if (kv->seq[i].used) continue;
    memset(&kv->seq[i], 0, sizeof kv->seq[i]);
    mtx_code rc = mtx_state_init(&kv->seq[i].state, kv->layout.state_bytes, err);
    if (rc) return rc;
    kv->seq[i].used = true;
    kv->n_seqs++;
    *seq = i;
    return MTX_OK;
  }
  return mtx_fail(err, MTX_ELIMIT, "all %d sequences are in use; close one or open the context with a larger max_seqs",
                  kv->max_seqs);
}

void mtx_kv_seq_free(mtx_kv *kv, int seq) {
  if (!mtx_kv_seq_valid(kv, seq)) return;
  seq_t *s = &kv->seq[seq];
  for (int g = 0; g < kv->layout.n_groups; g++) mtx_table_fini(&s->table[g], &kv->pool[g]);
  mtx_state_fini(&s->state);
  s->used = false;
  s->len = 0;
  kv->n_seqs--;
}

// Largest n <= n_tokens at which the sequence can go on.
static int64_t keepable(const mtx_kv *kv, const seq_t *s, int64_t n_tokens) {
  int64_t n = n_tokens < s->len ? n_tokens : s->len;
  if (n < 0) n = 0;
  if (kv->layout.state_bytes) n = mtx_state_nearest(&s->state, s->len, n);
  for (int g = 0; g < kv->layout.n_groups; g++)
    if (mtx_kv_window_start(&kv->layout, g, n) < s->table[g].first * P) return 0;
  return n;
}

mtx_code mtx_kv_seq_fork(mtx_kv *kv, int src, int64_t n_tokens, int *dst, int64_t *kept, mtx_err *err) {
  *dst = -1;
  *kept = 0;
  if (!mtx_kv_seq_valid(kv, src)) return mtx_fail(err, MTX_EINVAL, "sequence %d does not exist", src);
  int id;
  mtx_code rc = mtx_kv_seq_new(kv, &id, err);
  if (rc) return rc;
  const seq_t *s = &kv->seq[src];
  seq_t *d = &kv->seq[id];
  int64_t n = keepable(kv, s, n_tokens);
  for (int g = 0; n > 0 && g < kv->layout.n_groups; g++)
    if ((rc = mtx_table_share(&d->table[g], s->table[g].page, &kv->pool[g], n, err))) {
      mtx_kv_seq_free(kv, id);
      return rc;
    }
  if (kv->layout.state_bytes) mtx_state_restore(&d->state, &s->state, kv->layout.state_bytes, s->len, n);
  d->len = *kept = n;
  *dst = id;
  return MTX_OK;
}

mtx_code mtx_kv_seq_build(mtx_kv *kv, int64_t n_tokens, uint8_t *const *const *page, mtx_snapshot *at, int *seq, mtx_err *err) {
  mtx_code rc = mtx_kv_seq_new(kv, seq, err);
  if (rc) return rc;
  seq_t *s = &kv->seq[*seq];
  for (int g = 0; g < kv->layout.n_groups; g++)
    if ((rc = mtx_table_share(&s->table[g], page[g], &kv->pool[g], n_tokens, err))) {
      mtx_kv_seq_free(kv, *seq);
      *seq = -1;
      return rc;
    }
  if (at) memcpy(s->state.live, at->data, kv->layout.state_bytes);
  s->len = n_tokens;
  return MTX_OK;
}

mtx_code mtx_kv_seq_blank(mtx_kv *kv, int64_t n_tokens, const int64_t *first, int *seq, mtx_err *err) {
  mtx_code rc = mtx_kv_seq_new(kv, seq, err);
  if (rc) return rc;
  seq_t *s = &kv->seq[*seq];
  for (int g = 0; g < kv->layout.n_groups && !rc; g++) {
    int64_t want = div_up(n_tokens, P) - first[g];
    if (want > kv->pool[g].n_free)
      rc = mtx_fail(err, MTX_ELIMIT, "%lld tokens need %lld pages of %d; %lld of %lld are free", (long long)n_tokens, (long long)want, P,
                    (long long)kv->pool[g].n_free, (long long)kv->pool[g].n_pages);
    else rc = mtx_table_blank(&s->table[g], &kv->pool[g], first[g], n_tokens, err);
  }
  s->len = n_tokens;
  if (!rc) return MTX_OK;
  mtx_kv_seq_free(kv, *seq);
  *seq = -1;
  return rc;
}

void mtx_kv_seq_add_snapshot(mtx_kv *kv, int seq, mtx_snapshot *snap) {
  mtx_state *s = &kv->seq[seq].state;
  if (s->n == mtx_state_max_snapshots(kv->layout.state_bytes)) return;
  mtx_snapshot_ref(snap);
  s->snap[s->n++] = snap;
}

int64_t mtx_kv_seq_truncate(mtx_kv *kv, int seq, int64_t n_tokens) {
  if (!mtx_kv_seq_valid(kv, seq)) return 0;
  seq_t *s = &kv->seq[seq];
  int64_t n = keepable(kv, s, n_tokens);
  for (int g = 0; g < kv->layout.n_groups; g++) mtx_table_cut(&s->table[g], &kv->pool[g], n);
  if (kv->layout.state_bytes) mtx_state_restore(&s->state, &s->state, kv->layout.state_bytes, s->len, n);
  s->len = n;
  return n;
}

int64_t mtx_kv_seq_pages_needed(const mtx_kv *kv, int seq, int64_t n) {
  if (!mtx_kv_seq_valid(kv, seq) || !kv->layout.n_groups) return 0;
  return mtx_table_needed(&kv->seq[seq].table[kv->global], &kv->pool[kv->global], kv->seq[seq].len, n);
}

mtx_code mtx_kv_seq_reserve(mtx_kv *kv, int seq, int64_t n, mtx_err *err) {
  if (!mtx_kv_seq_valid(kv, seq) || n < 0 || n > INT32_MAX)
    return mtx_fail(err, MTX_EINVAL, "cannot reserve %lld tokens for sequence %d", (long long)n, seq);
  seq_t *s = &kv->seq[seq];
  for (int g = 0; g < kv->layout.n_groups; g++) {
    int64_t want = mtx_table_needed(&s->table[g], &kv->pool[g], s->len, n);
    if (want > kv->pool[g].n_free)
      return mtx_fail(err, MTX_ELIMIT, "KV cache is full: %lld more tokens need %lld pages of %d, %lld of %lld are free",
                      (long long)n, (long long)want, P, (long long)kv->pool[g].n_free, (long long)kv->pool[g].n_pages);
  }
  for (int g = 0; g < kv->layout.n_groups; g++) {
    mtx_code rc = mtx_table_reserve(&s->table[g], &kv->pool[g], s->len, n, err);
    if (rc) {
      for (int h = 0; h < g; h++) mtx_table_cut(&s->table[h], &kv->pool[h], s->len);
      return rc;
    }
  }
  return MTX_OK;
}

bool mtx_kv_warm(mtx_kv *kv, int64_t n) {
  for (int g = 0; g < kv->layout.n_groups; g++)
    if (mtx_pool_warm(&kv->pool[g], n)) return true;
  return false;
}

void mtx_kv_seq_advance(mtx_kv *kv, int seq, int64_t n) {
  if (!mtx_kv_seq_valid(kv, seq)) return;
  seq_t *s = &kv->seq[seq];
  s->len += n;
  for (int g = 0; g < kv->layout.n_groups; g++)
    if (kv->layout.window[g])
      mtx_table_give_back(&s->table[g], &kv->pool[g], mtx_kv_window_start(&kv->layout, g, s->len) - WINDOW_SLACK);
  if (n > 0 && s->len % MTX_SNAPSHOT_TOKENS == 0) mtx_kv_seq_keep(kv, seq);
}

void mtx_kv_seq_keep(mtx_kv *kv, int seq) {
  seq_t *s = &kv->seq[seq];
  if (kv->layout.state_bytes) mtx_state_keep(&s->state, kv->layout.state_bytes, s->len);
}

mtx_snapshot *const *mtx_kv_seq_snapshots(const mtx_kv *kv, int seq, int *n) {
  *n = kv->seq[seq].state.n;
  return kv->seq[seq].state.snap;
}

void mtx_kv_hold(mtx_kv *kv, int group, uint8_t *page) {
  mtx_pool_hold(&kv->pool[group], page);
  kv->n_holds++;
}

void mtx_kv_release(mtx_kv *kv, int group, uint8_t *page) {
  mtx_pool_release(&kv->pool[group], page);
  kv->n_holds--;
}

int64_t mtx_kv_n_holds(const mtx_kv *kv) { return kv->n_holds; }

uint64_t mtx_kv_held_bytes(const mtx_kv *kv) {
  uint64_t n = 0;
  for (int g = 0; g < kv->layout.n_groups; g++) n += (uint64_t)kv->pool[g].n_held * kv->layout.page_bytes[g];
  return n;
}

uint8_t *const *mtx_kv_seq_pages(const mtx_kv *kv, int seq, int group) { return kv->seq[seq].table[group].page; }

void *mtx_kv_seq_state(mtx_kv *kv, int seq) { return kv->seq[seq].state.live; }

// ---- counts -----------------------------------------------------------------

mtx_kv_stats mtx_kv_get_stats(const mtx_kv *kv) {
  const mtx_pool *p = &kv->pool[kv->global];
  return (mtx_kv_stats){p->n_pages, p->n_free, p->n_shared};
}

static bool check_group(const mtx_kv *kv, int g, uint32_t *seen) {
  const mtx_pool *p = &kv->pool[g];
  int64_t n_used = 0, n_shared = 0, n_held = 0;
  for (int64_t j = 0; j < p->n_pages; j++) n_held += (seen[j] = p->held[j]) > 0;
  if (n_held != p->n_held) return false;
  for (int i = 0; i < kv->max_seqs; i++) {
    const mtx_table *t = &kv->seq[i].table[g];
    if (!kv->seq[i].used) {
      if (t->n) return false;
      continue;
    }
    if (t->n * P < kv->seq[i].len) return false;
    for (int64_t j = 0; j < t->n; j++) {
      if ((j < t->first) != (t->page[j] == NULL)) return false;
      if (t->page[j]) seen[mtx_pool_index(p, t->page[j])]++;
      // What may be written next is private, except a shared tail that reserve will copy.
      if (t->page[j] && j * P >= kv->seq[i].len && p->refs[mtx_pool_index(p, t->page[j])] != 1) return false;
    }
  }
  for (int64_t j = 0; j < p->n_pages; j++) {
    if (seen[j] != p->refs[j]) return false;
    n_used += seen[j] > 0;
    n_shared += seen[j] > 1;
  }
  for (int64_t j = 0; j < p->n_free; j++) {
    if (p->refs[p->free[j]] || seen[p->free[j]]) return false;
    seen[p->free[j]] = 1;  // a page that stands twice in the list is found here
  }
  return n_used + p->n_free == p->n_pages && n_shared == p->n_shared;
}

bool mtx_kv_check(const mtx_kv *kv) {
  int n = 0;
  for (int i = 0; i < kv->max_seqs; i++) n += kv->seq[i].used;
  if (n != kv->n_seqs) return false;
  for (int g = 0; g < kv->layout.n_groups; g++) {
    uint32_t *seen = malloc((size_t)kv->pool[g].n_pages * sizeof *seen + 1);
    if (!seen) return false;
    bool ok = check_group(kv, g, seen);
    free(seen);
    if (!ok) return false;
  }
  return true;
}
