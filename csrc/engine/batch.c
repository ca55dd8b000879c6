// SPDX-License-Identifier: MIT
// Which rows the next step evaluates.
//
// Runs are served in the policy's order, then by priority, then by arrival.
// Every run that decodes gets its row; prompts share what is left of the step,
// cut so that the decoding ones feel little of it. A waiting run is let in when
// its prompt's pages are free beside those the running ones still need; the
// prefix index gives up its entries for it. When pages run out later, the last
// in order gives its own back and waits again: its tokens are known, so it goes
// on where it was, bit for bit.
#include <stdlib.h>
#include <string.h>

#include "engine/state.h"

// Unless the policy says otherwise, a step with prompt rows takes about this many times its decode part.
#define PREFILL_RATIO 2.5

enum {
  HEADROOM = 2 * MTX_PAGE_TOKENS,  // tokens beyond the prompt that must fit before a run is let in
};

static int64_t to_feed(const mtx_engine *e, const mtx_run *r) {
  return (int64_t)r->tokens.len - (r->seq >= 0 ? mtx_kv_seq_len(e->kv, r->seq) : 0);
}

static bool decodes(const mtx_engine *e, const mtx_run *r) { return !r->job && r->t_first > 0 && to_feed(e, r) == 1; }

int mtx_run_compare(const mtx_run *a, const mtx_run *b) {
  bool waits_a = a->job && !a->job->group, waits_b = b->job && !b->job->group;
  if (waits_a != waits_b) return waits_a ? -1 : 1;  // somebody's thread is blocked on it
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  if (a->priority != b->priority) return a->priority > b->priority ? -1 : 1;
  return 0;
}

// ---- pages ----------------------------------------------------------------------

static void leave(mtx_engine *e, mtx_run *r) {
  mtx_kv_seq_free(e->kv, r->seq);
  r->seq = -1;
  if (r->start) r->start->n_logprobs = r->start->n_top = 0;
  pthread_mutex_lock(&e->lock);
  e->stats.n_preempted++;
  pthread_mutex_unlock(&e->lock);
}

static bool has_rows(const mtx_engine *e, const mtx_run *r) {
  for (int k = 0; k < e->n_rows; k++)
    if (e->rows[k].seq == r->seq) return true;
  return false;
}

// Ending a run takes the pages of its guide (or of whom it guides) too; not while that one
// has rows in the step being built. In the next one it has nothing to feed.
static bool may_end(const mtx_engine *e, const mtx_run *r) {
  const mtx_run *other = r->guide ? r->guide : r->guided;
  return !other || other->seq < 0 || !has_rows(e, other);
}

bool mtx_batch_make_room(mtx_engine *e, const mtx_run *r) {
  if (mtx_prefix_evict(e->prefix)) return true;
  for (size_t i = e->n_runs; i-- > 0;) {
    mtx_run *v = e->runs[i];
    if (v != r && v->parked && v->seq >= 0 && !v->job) {
      leave(e, v);
      return true;
    }
  }
  for (size_t i = e->n_runs; i-- > 0;) {
    mtx_run *v = e->runs[i];
    if (v == r) return false;  // everybody behind r has left already
    if (v->seq < 0 || v->job || v->doomed || has_rows(e, v)) continue;
    leave(e, v);
    return true;
  }
  return false;
}

// Pages that running requests still need for the tokens they have.
static int64_t promised(const mtx_engine *e, const mtx_run *except) {
  int64_t n = 0;
  for (size_t i = 0; i < e->n_runs; i++) {
    const mtx_run *r = e->runs[i];
    if (r != except && r->seq >= 0 && !r->doomed && !r->parked) n += mtx_kv_seq_pages_needed(e->kv, r->seq, to_feed(e, r));
  }
  return n;
}

// A request and its guide count once, and are nobody to each other.
static size_t n_running(const mtx_engine *e, const mtx_run *except) {
  size_t n = 0;
  for (size_t i = 0; i < e->n_runs; i++) {
    const mtx_run *r = e->runs[i];
    n += r != except && r->guide != except && !r->guided && r->seq >= 0 && !r->doomed && !r->parked && !r->job;
  }
  return n;
}

// ---- admission --------------------------------------------------------------------

static mtx_code take_sequence(mtx_engine *e, mtx_run *r, mtx_err *err) {
  if (r->job || !r->cache_key || r->prompt_logprobs >= 0) return mtx_kv_seq_new(e->kv, &r->seq, err);
  if (e->disk) mtx_disk_fetch(e->disk, r->cache_key, r->tokens.ptr, (int64_t)r->tokens.len - 1);
  int64_t kept;  // one token at least is evaluated: its logits are wanted
  mtx_code rc = mtx_prefix_take(e->prefix, r->cache_key, r->tokens.ptr, (int64_t)r->tokens.len - 1, &r->seq, &kept, err);
  if (!rc && !r->started) r->n_cached = kept < r->n_prompt ? kept : r->n_prompt;
  return rc;
}

// A prompt that would not be read by its deadline even if it began now, and alone, is not begun, since others wait for the
// time. Where nobody else is, it is: that costs nobody anything, and tells how fast prompts are read now.
static bool hopeless(const mtx_engine *e, const mtx_run *r, mtx_err *err) {
  if (!r->t_deadline || r->t_start || !n_running(e, r)) return false;
  double ms = (double)to_feed(e, r) * e->pace.ms_row, left = r->t_deadline - mtx_now_ms();
  if (ms <= left) return false;
  mtx_fail(err, MTX_ECANCELLED, "the deadline cannot be met: it is in %.1f s, and reading %lld tokens of the prompt takes about %.1f s",
           left / 1000, (long long)to_feed(e, r), ms / 1000);
  return true;
}

// True when the run has a sequence now. False: it waits, or it was ended because it can never fit.
static bool admit(mtx_engine *e, mtx_run *r) {
  mtx_err err;
  if (r->job && r->job->session->seq >= 0) {
    r->seq = r->job->session->seq;
    return true;
  }
  if (!r->job && !r->guided && n_running(e, r) >= (size_t)e->opts.n_parallel) return false;
  mtx_code rc = take_sequence(e, r, &err);
  if (rc && rc != MTX_ELIMIT) {
    if (may_end(e, r)) mtx_run_fail(e, r, &err);
    return false;
  }
  if (!rc && hopeless(e, r, &err)) {
    mtx_run_finish(e, r, MTX_DONE_ERROR, NULL, &err, "deadline");
    return false;
  }
  if (!rc) {
    int64_t room = r->n_max - (int64_t)r->tokens.len;
    int64_t want = mtx_kv_seq_pages_needed(e->kv, r->seq, to_feed(e, r) + (room < HEADROOM ? room : HEADROOM));
    // A guide whose request already runs must get in, or both would wait for each other.
    while (want + promised(e, r) > mtx_kv_get_stats(e->kv).n_free && (r->guided ? mtx_batch_make_room(e, r) : mtx_prefix_evict(e->prefix))) {}
    int64_t others = promised(e, r);
    mtx_kv_stats pages = mtx_kv_get_stats(e->kv);
    if (want + others > pages.n_free) {
      // Alone it may also use the headroom; if even the tokens do not fit, nothing that runs will free them.
      want = mtx_kv_seq_pages_needed(e->kv, r->seq, to_feed(e, r));
      if (n_running(e, r) || want + others > pages.n_free) {
        mtx_fail(&err, MTX_ELIMIT, "%lld tokens need %lld pages of %d; %lld of %lld are free beside open sessions",
                 (long long)r->tokens.len, (long long)want, MTX_PAGE_TOKENS, (long long)pages.n_free, (long long)pages.n_total);
        mtx_kv_seq_free(e->kv, r->seq);
        r->seq = -1;
        rc = MTX_ELIMIT;
      }
    }
  }
  if (rc) {
    bool others_run = false;
    for (size_t i = 0; i < e->n_runs; i++) {
      const mtx_run *o = e->runs[i];
      others_run |= o != r && o != r->guided && o != r->guide && o->seq >= 0 && !o->doomed;
    }
    if (!others_run && may_end(e, r)) {
      mtx_run *main = r->guided ? r->guided : r;
      if (main->guide && main->n_generated) mtx_run_end(e, main, MTX_DONE_LENGTH);
      else mtx_run_fail(e, r, &err);
    }
    return false;
  }
  if (r->job) r->job->session->seq = r->seq;
  if (!r->t_start) {
    r->t_start = mtx_now_ms();
    if (r->id) {
      pthread_mutex_lock(&e->lock);
      e->n_waiting--;
      e->stats.n_prompt_tokens += r->n_prompt;
      e->stats.n_cached_tokens += r->n_cached;
      pthread_mutex_unlock(&e->lock);
      if (!r->start) mtx_emit_start(e, r);
    }
  }
  return true;
}

// ---- rows -------------------------------------------------------------------------

static bool wanted(const mtx_run *r, int64_t i) {
  bool last = i == (int64_t)r->tokens.len - 1;
  if (!r->job) return last || (r->prompt_logprobs >= 0 && r->start && i < r->n_prompt);
  const mtx_job *j = r->job;
  if (j->embed && j->pooling == MTX_POOL_CLS) return i == 0;
  return last || ((j->all || (j->embed && j->pooling == MTX_POOL_MEAN)) && i >= j->base);
}

bool mtx_run_wants_hidden(const mtx_engine *e, const mtx_run *r) { return r->job && r->job->embed && mtx_model_get_info(e->model)->has_logits; }

// Takes the pages of r's next n tokens; false when they are not to be had. It is done before the step because fresh memory
// may have to be waited for, and how many prompt rows the step takes depends on that.
static bool take_pages(mtx_engine *e, mtx_run *r, int64_t n) {
  while (mtx_kv_seq_pages_needed(e->kv, r->seq, n) > mtx_kv_get_stats(e->kv).n_free)
    if (!mtx_batch_make_room(e, r)) return false;
  (void)mtx_kv_seq_reserve(e->kv, r->seq, n, NULL);  // what else it lacks the step finds out and tells
  return true;
}

// Appends the next n tokens of r.
static void add_rows(mtx_engine *e, mtx_run *r, int64_t n) {
  int64_t at = mtx_kv_seq_len(e->kv, r->seq);
  bool hidden = mtx_run_wants_hidden(e, r);
  for (int64_t i = at; i < at + n; i++) {
    bool want = wanted(r, i);
    if (want) {
      e->out_run[e->n_outs] = r;
      e->out_token[e->n_outs++] = i;
    }
    e->rows[e->n_rows++] = (mtx_row){r->tokens.ptr[i], r->seq, !want ? MTX_WANT_NOTHING : hidden ? MTX_WANT_HIDDEN : MTX_WANT_OUTPUT, r->lora};
  }
}

static void out_of_pages(mtx_engine *e, mtx_run *r) {
  mtx_err err;
  mtx_kv_stats pages = mtx_kv_get_stats(e->kv);
  mtx_fail(&err, MTX_ELIMIT, "the KV cache is full: %lld tokens are stored, %lld of %lld pages are free",
           (long long)mtx_kv_seq_len(e->kv, r->seq), (long long)pages.n_free, (long long)pages.n_total);
  if (r->job) {
    mtx_run_fail(e, r, &err);
  } else if (n_running(e, r)) {
    leave(e, r);  // goes on when the others have ended
  } else if (!may_end(e, r)) {
    return;
  } else if (decodes(e, r)) {
    mtx_run_end(e, r->guided ? r->guided : r, MTX_DONE_LENGTH);
  } else {
    mtx_run_fail(e, r, &err);
  }
}

// Runs that read their prompt now or as soon as a place is free.
static int n_reading(const mtx_engine *e) {
  int n = 0, most = e->opts.n_parallel > e->n_decode_rows ? e->opts.n_parallel - e->n_decode_rows : 1;
  for (size_t i = 0; i < e->n_runs && n < most; i++) n += !e->runs[i]->doomed && !e->runs[i]->parked && !decodes(e, e->runs[i]);
  return n;
}

// Does anybody read a prompt, or would if this step had room?
static bool reads(const mtx_engine *e) {
  bool full = false;  // those who wait for a place wait for somebody's end
  for (size_t i = 0; i < e->n_runs; i++) {
    const mtx_run *r = e->runs[i];
    if (r->doomed || r->parked || decodes(e, r) || !to_feed(e, r)) continue;
    bool waits = r->seq < 0 && !r->job && !r->guided;
    if (waits && !full) full = n_running(e, r) >= (size_t)e->opts.n_parallel;
    if (!waits || !full) return true;
  }
  return false;
}

// Prompt rows of this step. Those who decode feel all that has happened since the last one.
static int64_t prefill_budget(const mtx_engine *e, int64_t room) {
  int64_t n = e->policy.prefill_tokens;
  if (!mtx_model_get_info(e->model)->causal) return room;  // inputs are read whole
  if (n > 0) return n < room ? n : room;
  double ratio = e->policy.prefill_ratio > 0 ? e->policy.prefill_ratio : PREFILL_RATIO;
  // A long step is a gap to those who decode and a gain to those who read: where more read, it may be longer.
  int reading = e->n_decode_rows ? n_reading(e) : 0;
  if (reading > e->n_decode_rows) ratio *= (double)reading / e->n_decode_rows;
  double spent = e->t_step ? mtx_now_ms() - e->t_step : 0;
  return mtx_pace_rows(&e->pace, e->n_decode_rows, ratio, spent, room);
}

void mtx_batch_build(mtx_engine *e) {
  bool causal = mtx_model_get_info(e->model)->causal;
  int64_t step = mtx_context_max_rows(e->ctx);
  if (causal && e->policy.step_tokens > 0 && e->policy.step_tokens < step) step = e->policy.step_tokens;
  e->n_rows = e->n_outs = e->n_draft_rows = 0;
  for (size_t i = 0; i < e->n_runs && e->n_rows < step; i++) {
    mtx_run *r = e->runs[i];
    if (r->seq < 0 || r->doomed || r->parked || !decodes(e, r)) continue;
    if (take_pages(e, r, 1)) add_rows(e, r, 1);
    else out_of_pages(e, r);
  }
  e->n_decode_rows = e->n_rows;
  int64_t budget = prefill_budget(e, step - e->n_rows);
  bool full = false;  // a request could not be let in: those behind it wait too
  for (size_t i = 0; i < e->n_runs && budget > 0; i++) {
    mtx_run *r = e->runs[i];
    if (r->doomed || r->parked || (r->seq >= 0 && decodes(e, r))) continue;
    if (r->seq < 0 && ((full && !r->job) || !admit(e, r))) {
      full |= !r->doomed && !r->job;
      continue;
    }
    if (decodes(e, r)) continue;  // came back with all but its last token; next step
    int64_t n = to_feed(e, r);
    if (n == 0) continue;  // waits for its guide's logits, or for a token to follow
    if (!causal && n > budget) {
      if (e->n_rows == 0) {
        mtx_err err;
        mtx_fail(&err, MTX_ELIMIT, "the input has %lld tokens; this model reads at most %lld at once", (long long)n, (long long)budget);
        mtx_run_fail(e, r, &err);
      }
      continue;
    }
    if (n > budget) n = budget;
    int64_t at = mtx_kv_seq_len(e->kv, r->seq), mark = mtx_run_next_mark(r, at);
    if (n > mark - at) n = mark - at;  // the step ends where a checkpoint is to be
    if (!take_pages(e, r, n)) {
      out_of_pages(e, r);
      continue;
    }
    if (e->n_decode_rows) {  // that may have taken a while
      int64_t left = prefill_budget(e, step - e->n_decode_rows) - (e->n_rows - e->n_decode_rows);
      if (budget > left) budget = left;
      if (n > budget) n = budget;
    }
    if (n > 0) add_rows(e, r, n);
    budget -= n;
  }
  if (e->n_decode_rows && e->n_rows == e->n_decode_rows && !reads(e)) mtx_draft_rows(e, step);
}
