// SPDX-License-Identifier: MIT
// Prefix index: see prefix.h.
//
// Entries stand in a flat list. There are at most some hundred (each is a kv
// sequence), and comparing tokens ends at the first difference, so a search
// costs microseconds; the sharing that a tree would give is in the pages.
#include "kv/prefix.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  int seq;
  char *key;
  int32_t *tokens;
  int64_t n;
  uint64_t bytes, used;
} entry;

struct mtx_prefix {
  mtx_kv *kv;
  entry *e;  // [max]
  int n, max;
  uint64_t budget, bytes, clock;
  bool exact;  // a longer sequence can always be cut to a shorter one
};

mtx_code mtx_prefix_open(mtx_prefix **out, mtx_kv *kv, int max_entries, uint64_t budget_bytes, mtx_err *err) {
  *out = NULL;
  mtx_prefix *p = calloc(1, sizeof *p);
  if (p && max_entries > 0) p->e = calloc((size_t)max_entries, sizeof *p->e);
  if (!p || (max_entries > 0 && !p->e)) {
    free(p);
    return mtx_fail(err, MTX_ENOMEM, "no memory for a prefix index");
  }
  p->kv = kv;
  p->max = max_entries > 0 ? max_entries : 0;
  p->budget = budget_bytes;
  const mtx_kv_layout *l = mtx_kv_get_layout(kv);
  p->exact = l->state_bytes == 0;
  for (int g = 0; g < l->n_groups; g++) p->exact &= l->window[g] == 0;
  *out = p;
  return MTX_OK;
}

static void drop(mtx_prefix *p, int i) {
  entry *e = &p->e[i];
  mtx_kv_seq_free(p->kv, e->seq);
  free(e->key);
  free(e->tokens);
  p->bytes -= e->bytes;
  p->e[i] = p->e[--p->n];
}

void mtx_prefix_close(mtx_prefix *p) {
  if (!p) return;
  while (p->n) drop(p, p->n - 1);
  free(p->e);
  free(p);
}

bool mtx_prefix_evict(mtx_prefix *p) {
  if (!p->n) return false;
  int oldest = 0;
  for (int i = 1; i < p->n; i++)
    if (p->e[i].used < p->e[oldest].used) oldest = i;
  drop(p, oldest);
  return true;
}

static int64_t common(const entry *e, const int32_t *tokens, int64_t n) {
  int64_t k = 0, max = e->n < n ? e->n : n;
  while (k < max && e->tokens[k] == tokens[k]) k++;
  return k;
}

static uint64_t cost(const mtx_prefix *p, int64_t n) {
  const mtx_kv_layout *l = mtx_kv_get_layout(p->kv);
  uint64_t total = 2 * (uint64_t)l->state_bytes;  // the state and about one snapshot of its own
  for (int g = 0; g < l->n_groups; g++) {
    int64_t tokens = l->window[g] && l->window[g] < n ? l->window[g] : n;
    total += (uint64_t)((tokens + MTX_PAGE_TOKENS - 1) / MTX_PAGE_TOKENS) * l->page_bytes[g];
  }
  return total;
}

void mtx_prefix_put(mtx_prefix *p, const char *key, int seq, const int32_t *tokens) {
  int64_t n = mtx_kv_seq_len(p->kv, seq);
  entry e = {.seq = seq, .n = n, .bytes = cost(p, n), .used = ++p->clock};
  bool useless = n == 0 || p->max == 0 || e.bytes > p->budget;
  for (int i = 0; i < p->n && !useless; i++) {
    if (strcmp(p->e[i].key, key) != 0) continue;
    int64_t k = common(&p->e[i], tokens, n);
    if (k == n && (p->exact || p->e[i].n == n)) p->e[i].used = p->clock, useless = true;
    else if (p->exact && k == p->e[i].n) drop(p, i--);
  }
  if (!useless) {
    e.key = strdup(key);
    e.tokens = malloc((size_t)n * sizeof *e.tokens);
    useless = !e.key || !e.tokens;
  }
  if (useless) {
    free(e.key);
    free(e.tokens);
    mtx_kv_seq_free(p->kv, seq);
    return;
  }
  memcpy(e.tokens, tokens, (size_t)n * sizeof *tokens);
  while (p->n && (p->n == p->max || p->bytes + e.bytes > p->budget)) mtx_prefix_evict(p);
  p->e[p->n++] = e;
  p->bytes += e.bytes;
}

int mtx_prefix_find(mtx_prefix *p, const char *key, const int32_t *tokens, int64_t n, int64_t *kept) {
  int best = -1;
  *kept = 0;
  for (int i = 0; i < p->n; i++) {
    if (strcmp(p->e[i].key, key) != 0) continue;
    int64_t k = common(&p->e[i], tokens, n);
    if (k <= *kept) continue;
    k = mtx_kv_seq_keepable(p->kv, p->e[i].seq, k);
    if (k > *kept) *kept = k, best = i;
  }
  if (best < 0) return -1;
  p->e[best].used = ++p->clock;
  return p->e[best].seq;
}

mtx_prefix_stats mtx_prefix_get_stats(const mtx_prefix *p) { return (mtx_prefix_stats){p->n, p->bytes}; }

bool mtx_prefix_wants_checkpoints(const mtx_prefix *p) { return !p->exact && p->max > 0; }
