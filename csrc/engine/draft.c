// SPDX-License-Identifier: MIT
// The index of prompt lookup: see draft.h.
#include "engine/draft.h"

#include <stdlib.h>

enum {
  BORDER = -1,               // no token; nothing matches across it
  LOOK_AT = 16,              // earlier places that are compared
  LONGEST = 64,              // matches count as this long at most
  LEAST_TABLE = 1 << 8, MOST_TABLE = 1 << 16,
};

// Where a match's length changes what is to be expected: from so many tokens on, and the share of guesses
// that come true before any has been made (about what prose gives).
static const struct { size_t from; double hit; } CLASS[MTX_DRAFT_CLASSES] = {{0, 0.2}, {3, 0.35}, {4, 0.5}, {6, 0.65}, {10, 0.8}};
#define WEIGHT (1.0 / 12)    // of the newest guess in that share

static int class_of(size_t match) {
  int c = MTX_DRAFT_CLASSES - 1;
  while (match < CLASS[c].from) c--;
  return c;
}

mtx_code mtx_draft_open(mtx_draft **out, const mtx_draft_opts *opts, int64_t n_tokens, const int32_t *reference, int64_t n, mtx_err *err) {
  *out = NULL;
  if (opts->max < 1 || opts->max > MTX_DRAFT_MOST)
    return mtx_fail_at(err, MTX_EINVAL, NULL, "draft.max", 0, "%d is out of range; it must be between 1 and %d", opts->max, MTX_DRAFT_MOST);
  if (opts->min_match < 1 || opts->min_match > MTX_DRAFT_MOST_MATCH)
    return mtx_fail_at(err, MTX_EINVAL, NULL, "draft.min_match", 0, "%d is out of range; it must be between 1 and %d", opts->min_match, MTX_DRAFT_MOST_MATCH);
  if (n > n_tokens) n = n_tokens;  // the sequence can repeat no more of it
  uint32_t size = LEAST_TABLE;
  while (size < MOST_TABLE && size < n + n_tokens) size *= 2;
  mtx_draft *d = calloc(1, sizeof *d);
  if (d) d->last = malloc(size * sizeof *d->last);
  if (!d || !d->last) {
    mtx_draft_close(d);
    return mtx_fail(err, MTX_ENOMEM, "no memory for drafts");
  }
  d->opts = *opts;
  d->table_mask = size - 1;
  for (uint32_t i = 0; i < size; i++) d->last[i] = -1;
  for (int c = 0; c < MTX_DRAFT_CLASSES; c++) d->hit[c] = CLASS[c].hit;
  const int32_t border = BORDER;
  mtx_code rc = n ? mtx_draft_read(d, reference, n, err) : MTX_OK;
  if (!rc && n) rc = mtx_draft_read(d, &border, 1, err);
  d->n_before = d->ids.len;
  if (!rc) *out = d;
  else mtx_draft_close(d);
  return rc;
}

void mtx_draft_close(mtx_draft *d) {
  if (!d) return;
  mtx_ids_fini(&d->ids);
  free(d->prev);
  free(d->last);
  free(d);
}

// Place in the table of the n-gram that ends at i (i + 1 >= min_match).
static uint32_t place(const mtx_draft *d, size_t i) {
  uint64_t h = 0;
  for (size_t k = i + 1 - (size_t)d->opts.min_match; k <= i; k++) h = (h ^ (uint32_t)d->ids.ptr[k]) * UINT64_C(0x9E3779B97F4A7C15), h ^= h >> 32;
  return (uint32_t)h & d->table_mask;
}

static bool has_gram(const mtx_draft *d, size_t i) { return i + 1 >= (size_t)d->opts.min_match; }

static mtx_code push(mtx_draft *d, int32_t id, mtx_err *err) {
  mtx_code rc = mtx_grow(&d->prev, &d->cap_prev, d->ids.len + 1, sizeof *d->prev, err);
  if (!rc) rc = mtx_ids_push(&d->ids, id, err);
  if (rc) return rc;
  size_t i = d->ids.len - 1;
  if (!has_gram(d, i)) return MTX_OK;
  int32_t *last = &d->last[place(d, i)];
  d->prev[i] = *last;
  *last = (int32_t)i;
  return MTX_OK;
}

mtx_code mtx_draft_read(mtx_draft *d, const int32_t *ids, int64_t n, mtx_err *err) {
  mtx_code rc = MTX_OK;
  d->sought = false;
  for (int64_t i = 0; i < n && !rc; i++) rc = push(d, ids[i], err);
  return rc;
}

// Tokens that the text up to `end` and the text up to its own end have in common there.
static size_t common(const mtx_draft *d, size_t end) {
  const int32_t *a = d->ids.ptr + end, *b = d->ids.ptr + d->ids.len - 1;
  size_t n = 0;
  while (n < LONGEST && n <= end && a[-(int64_t)n] == b[-(int64_t)n] && a[-(int64_t)n] != BORDER) n++;
  return n;
}

// The longest match; of equal ones the latest.
static void seek(mtx_draft *d) {
  if (d->sought) return;
  d->sought = true;
  d->match = 0;
  if (!d->ids.len || !has_gram(d, d->ids.len - 1)) return;
  int32_t i = d->prev[d->ids.len - 1];
  for (int n = 0; i >= 0 && n < LOOK_AT; n++, i = d->prev[i]) {
    size_t match = common(d, (size_t)i);
    if (match < (size_t)d->opts.min_match || match <= d->match || d->ids.ptr[i + 1] == BORDER) continue;
    d->match = match;
    d->from = (size_t)i + 1;
  }
}

mtx_code mtx_draft_add(mtx_draft *d, int32_t id, mtx_err *err) {
  seek(d);
  bool true_guess = d->match && d->ids.ptr[d->from] == id;
  if (d->match) {
    double *hit = &d->hit[class_of(d->match)];
    *hit += ((true_guess ? 1.0 : 0.0) - *hit) * WEIGHT;
  }
  mtx_code rc = push(d, id, err);
  if (rc) return rc;
  // The longest match that goes on is the longest one of the longer text, too.
  d->sought = true_guess && d->ids.ptr[d->from + 1] != BORDER;
  d->from++;
  if (d->match < LONGEST) d->match++;
  return MTX_OK;
}

void mtx_draft_cut(mtx_draft *d, int64_t n) {
  size_t keep = d->n_before + (size_t)n;
  for (size_t i = d->ids.len; i-- > keep;)
    if (has_gram(d, i)) d->last[place(d, i)] = d->prev[i];
  if (d->ids.len > keep) d->ids.len = keep;
  d->sought = false;
}

int mtx_draft_guess(mtx_draft *d, int32_t *ids, double *p, int n) {
  seek(d);
  if (!d->match) return 0;
  double so_far = 1;
  for (int j = 0; j < n; j++) {
    size_t from = d->from + (size_t)j, len = d->ids.len;
    ids[j] = from < len ? d->ids.ptr[from] : ids[from - len];  // a text that repeats goes on into its own draft
    if (ids[j] == BORDER) return j;  // never the first: seek sees to it
    so_far *= d->hit[class_of(d->match + (size_t)j)];
    p[j] = so_far;
  }
  return n;
}
