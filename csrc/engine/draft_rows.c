// SPDX-License-Identifier: MIT
// Drafts in a step: how many rows they get, and what of them holds.
//
// A step of a few rows costs little more than one of a single row, since both read all weights. So behind
// the last token of a run its draft is evaluated in the same step, and the sampler is asked row by row as if
// each had been a step of its own; the first token that is another one ends it, and the memory is cut back to
// what holds. A row's logits do not depend on its company, so the tokens are those of a run without drafts,
// whatever the sampler, and nothing here can change them: it is only about time.
//
// Rows are given out by what they bring: the likeliest first, up to the number at which most tokens come per
// millisecond, by measured times of steps with that many rows.
#include <math.h>

#include "engine/state.h"

enum {
  FAR = 8,        // a step is at most so many rows wider than one whose time is known
  PROBE_AT = 128, // steps after which another width than the best one is measured again
};
#define PAYS 1.05       // what a draft must bring to be worth its trouble
#define TOGETHER 1.25   // where several decode, a step with drafts takes at most this many times one without

static const double *cost_of(const mtx_engine *e, int n_rows) { return &e->ms_rows[n_rows - 1]; }

void mtx_draft_measure(mtx_engine *e, double ms) {
  if (e->n_rows > MTX_DRAFT_WIDEST || e->n_rows != e->n_decode_rows + e->n_draft_rows) return;
  double *mean = &e->ms_rows[e->n_rows - 1];
  if (*mean <= 0) *mean = ms > 1e-6 ? ms : 1e-6;
  else if (ms < *mean) *mean += (ms - *mean) * 0.3;
  else *mean += ((ms < 1.5 * *mean ? ms : 1.5 * *mean) - *mean) * 0.1;  // what other programs took away is not its cost
}

// What a run would draft now, into its draft's next[] with likelihoods p[].
static int guess(const mtx_engine *e, mtx_run *r, double *p) {
  mtx_draft *d = r->draft;
  int64_t room = r->n_max - (int64_t)r->tokens.len - 1;  // the last row gives the last token
  int n = d->opts.max < room ? d->opts.max : room > 0 ? (int)room : 0;
  n = mtx_draft_guess(d, d->next, p, n);
  for (int j = 0; j < n; j++)  // an end is sampled, and nothing evaluated behind it
    if (e->eog[d->next[j] / 64] >> (d->next[j] % 64) & 1) return j;
  return n;
}

typedef struct { mtx_run *run; int n, n_taken; double p[MTX_DRAFT_MOST]; } offer;

// The offer whose next row is the likeliest to hold, NULL when all are taken.
static offer *best_of(offer *o, int n) {
  offer *best = NULL;
  for (int i = 0; i < n; i++)
    if (o[i].n_taken < o[i].n && (!best || o[i].p[o[i].n_taken] > best->p[best->n_taken])) best = &o[i];
  return best;
}

// Sets n_taken of each offer. n_rows: of the step without these drafts.
static void choose(mtx_engine *e, offer *o, int n, int n_rows, int widest) {
  double plain = *cost_of(e, n_rows), known = plain, best_rate = PAYS * n_rows / plain, tokens = n_rows;
  double limit = n_rows > 1 ? TOGETHER * plain : INFINITY;
  uint8_t order[MTX_DRAFT_WIDEST];
  int n_order = 0, n_best = 0;
  if (plain <= 0) return;  // is measured first
  for (int width = n_rows + 1, at = n_rows; width <= widest && width <= at + FAR; width++) {
    offer *x = best_of(o, n);
    if (!x) break;
    order[n_order++] = (uint8_t)(x - o);
    tokens += x->p[x->n_taken++];
    double ms = *cost_of(e, width);
    if (ms > 0) known = ms, at = width;
    if (known <= limit && tokens / known > best_rate) best_rate = tokens / known, n_best = n_order;
  }
  if (n_order && ++e->n_chosen % PROBE_AT == 0) n_best = 1 + (int)(e->n_chosen / PROBE_AT % n_order);
  for (int k = n_best; k < n_order; k++) o[order[k]].n_taken--;
}

// Makes room for a draft's pages, of those that are free; takes less of it where they are short.
static int reserve(mtx_engine *e, const mtx_run *r, int n) {
  int64_t n_free = mtx_kv_get_stats(e->kv).n_free;
  while (n && mtx_kv_seq_pages_needed(e->kv, r->seq, 1 + n) > n_free) n--;
  return n && !mtx_kv_seq_reserve(e->kv, r->seq, 1 + n, NULL) ? n : 0;
}

// The rows of the step, each with its draft behind it; from the back, since they move that way.
static void spread(mtx_engine *e, int n_more) {
  int to = e->n_rows + n_more;
  for (int i = e->n_rows; i-- > 0;) {
    mtx_run *r = e->out_run[i];
    int n = r->n_sure ? r->draft->n_next : 0;
    mtx_row row = e->rows[i];
    for (int j = n; j >= 0; j--) {
      e->rows[--to] = row;
      if (j) e->rows[to].token = r->draft->next[j - 1];
      e->out_run[to] = r;
      e->out_token[to] = (int64_t)r->tokens.len - 1 + j;
    }
  }
  e->n_rows = e->n_outs = e->n_rows + n_more;
}

void mtx_draft_rows(mtx_engine *e, int most_rows) {
  bool off = e->drafts_off;
  e->drafts_off = false;
  if (off || e->n_rows >= MTX_DRAFT_WIDEST) return;
  int widest = most_rows < MTX_DRAFT_WIDEST ? most_rows : MTX_DRAFT_WIDEST;
  offer adaptive[MTX_DRAFT_WIDEST], fixed[MTX_DRAFT_WIDEST];
  int n_adaptive = 0, n_fixed = 0, n_rows = e->n_rows, n_more = 0;
  for (int i = 0; i < e->n_rows; i++) {
    mtx_run *r = e->out_run[i];
    if (!r->draft) continue;
    offer *o = r->draft->opts.fixed ? &fixed[n_fixed] : &adaptive[n_adaptive];
    *o = (offer){.run = r};
    o->n = guess(e, r, o->p);
    if (!o->n) continue;
    if (!r->draft->opts.fixed) {
      n_adaptive++;
      continue;
    }
    n_fixed++;
    o->n_taken = o->n < widest - n_rows ? o->n : widest - n_rows;
    n_rows += o->n_taken;
  }
  if (n_adaptive) choose(e, adaptive, n_adaptive, n_rows, widest);
  for (int i = 0; i < n_fixed + n_adaptive; i++) {
    const offer *o = i < n_fixed ? &fixed[i] : &adaptive[i - n_fixed];
    mtx_draft *d = o->run->draft;
    d->n_next = reserve(e, o->run, o->n_taken);
    if (!d->n_next) continue;
    d->at = o->run->n_sure = (int64_t)o->run->tokens.len;
    d->n_drafted += d->n_next;
    n_more += d->n_next;
  }
  if (n_more) spread(e, n_more);
  e->n_draft_rows = n_more;
}

bool mtx_draft_holds(mtx_run *r, int64_t i_token) {
  if (!r->n_sure) return true;
  if (i_token >= (int64_t)r->tokens.len) return false;  // another token came before it
  const mtx_draft *d = r->draft;
  if (i_token >= d->at && r->tokens.ptr[i_token] != d->next[i_token - d->at]) return false;
  r->draft->n_accepted += i_token >= d->at;
  r->n_sure = i_token + 1;
  return true;
}

int mtx_draft_settle(mtx_engine *e, bool failed) {
  int n_held = 0;
  for (size_t i = 0; i < e->n_runs && e->n_draft_rows; i++) {
    mtx_run *r = e->runs[i];
    if (!r->n_sure) continue;
    n_held += (int)(r->n_sure - r->draft->at);
    if (failed) r->draft->n_drafted -= r->draft->n_next;
    else if (r->seq >= 0) (void)mtx_kv_seq_truncate(e->kv, r->seq, r->n_sure);
    r->n_sure = 0;
  }
  if (failed && e->n_draft_rows) e->drafts_off = true;
  return n_held;
}
