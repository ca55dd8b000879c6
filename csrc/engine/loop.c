// SPDX-License-Identifier: MIT
// The engine's thread: takes in what came, builds a batch, runs it as one step, hands its rows on.
#include "engine/state.h"

// Prompts that stand at one of their marks are remembered up to there (run.c: set_marks).
static void keep_marks(mtx_engine *e) {
  if (!mtx_prefix_wants_checkpoints(e->prefix)) return;
  for (size_t i = 0; i < e->n_runs; i++) {
    const mtx_run *r = e->runs[i];
    if (r->seq < 0 || r->t_first || r->doomed || !r->n_marks) continue;
    int64_t at = mtx_kv_seq_len(e->kv, r->seq);
    if (at > 0 && mtx_run_next_mark(r, at - 1) == at) mtx_prefix_put(e->prefix, r->cache_key, r->seq, r->tokens.ptr);
  }
}

// Requests that want to hear of it are told how far their prompts are.
static void tell_progress(mtx_engine *e) {
  for (size_t i = 0; i < e->n_runs; i++) {
    mtx_run *r = e->runs[i];
    if (!r->progress || r->doomed || r->seq < 0 || r->t_first) continue;
    int64_t n = mtx_kv_seq_len(e->kv, r->seq);
    if (n > r->n_prompt) n = r->n_prompt;
    if (n <= r->n_told) continue;  // read again after it had given its pages back
    r->n_told = n;
    mtx_emit_progress(e, r, n);
  }
}

static void failed_step(mtx_engine *e, const mtx_err *err) {
  bool drafted = e->n_draft_rows > 0;
  (void)mtx_draft_settle(e, true);
  if (err->code == MTX_ELIMIT && (drafted || mtx_prefix_evict(e->prefix))) return;  // window pages; try again
  e->n_rows = 0;
  if (err->code == MTX_ELIMIT && mtx_batch_make_room(e, e->n_runs ? e->runs[0] : NULL)) return;
  for (size_t i = 0; i < e->n_runs; i++)
    if (e->runs[i]->seq >= 0 && !e->runs[i]->parked) mtx_run_fail(e, e->runs[i], err);
}

static void step(mtx_engine *e) {
  const float *out, *hidden;
  mtx_err err;
  double start = mtx_now_ms();
  if (mtx_context_step(e->ctx, e->rows, e->n_rows, &out, &err)) {
    failed_step(e, &err);
    return;
  }
  double ms = mtx_now_ms() - start;
  e->t_step = start + ms;
  if (!e->n_draft_rows) mtx_pace_measure(&e->pace, e->n_decode_rows, e->n_rows - e->n_decode_rows, ms);
  mtx_draft_measure(e, ms);
  keep_marks(e);
  if (e->n_rows > e->n_decode_rows) tell_progress(e);
  int64_t n_new = 0;
  hidden = mtx_context_hidden(e->ctx);
  for (int i = 0; i < e->n_outs; i++) {
    mtx_run *r = e->out_run[i];
    const float *row;
    if (mtx_run_wants_hidden(e, r)) row = hidden, hidden += e->n_embed;
    else row = out, out += e->n_out;
    if (r->doomed) continue;
    if (r->job) {
      mtx_job_rows(e, r, e->out_token[i], row);
    } else if (e->out_token[i] < r->n_prompt - 1 && !r->t_first) {
      mtx_run_prompt_logits(e, r, e->out_token[i], row);
    } else {
      if (!mtx_draft_holds(r, e->out_token[i]) || !(r = mtx_guide_join(e, r, e->out_token[i], &row))) continue;
      int64_t before = r->n_generated;
      mtx_run_logits(e, r, row);
      n_new += r->n_generated > before;
      mtx_guide_follow(e, r);
    }
  }
  int n_held = mtx_draft_settle(e, false);
  pthread_mutex_lock(&e->lock);
  mtx_engine_stats *s = &e->stats;
  s->n_steps++;
  s->n_rows += e->n_rows;
  s->n_generated_tokens += n_new;
  s->n_drafted_tokens += e->n_draft_rows;
  s->n_accepted_tokens += n_held;
  s->t_busy_ms += ms;
  s->last_rows = e->n_rows;
  pthread_mutex_unlock(&e->lock);
}

void mtx_engine_read_pages(const mtx_engine *e, mtx_engine_stats *s) {
  mtx_kv_stats pages = mtx_kv_get_stats(e->kv);
  mtx_prefix_stats cache = mtx_prefix_get_stats(e->prefix);
  s->n_pages = pages.n_total;
  s->n_pages_free = pages.n_free;
  s->n_pages_shared = pages.n_shared;
  s->n_cache_entries = cache.n_nodes;
  s->cache_bytes = cache.bytes;
}

static void publish_stats(mtx_engine *e) {
  int64_t n[3] = {0};
  for (size_t i = 0; i < e->n_runs; i++) {
    const mtx_run *r = e->runs[i];
    if (r->job || r->guided) continue;
    if (r->parked) n[2]++;
    else if (r->seq >= 0) n[r->t_first > 0]++;
  }
  pthread_mutex_lock(&e->lock);
  mtx_engine_stats *s = &e->stats;
  s->n_prefill = n[0];
  s->n_decode = n[1];
  s->n_parked = n[2];
  mtx_engine_read_pages(e, s);
  pthread_mutex_unlock(&e->lock);
}

void *mtx_engine_main(void *arg) {
  mtx_engine *e = arg;
  mtx_inbox in;
  bool idle = true;
  while (mtx_inbox_receive(e, idle, &in)) {
    mtx_inbox_accept(e, &in);
    // Beside running streams fresh KV memory is waited for piece by piece, before it is needed: a page each and the next chunk's.
    if (e->t_step && e->n_decode_rows) mtx_kv_warm(e->kv, mtx_kv_n_seqs(e->kv) + 2);
    mtx_batch_build(e);
    idle = e->n_rows == 0;
    for (size_t i = 0; i < e->n_runs && idle; i++) idle = !e->runs[i]->doomed;  // ending one may let others in
    if (e->n_rows) step(e);
    else e->t_step = 0;
    mtx_engine_sweep(e);
    publish_stats(e);
    mtx_events_wake(e);
  }
  // Whoever waits for a job is let go; requests end without events.
  mtx_err err;
  mtx_fail(&err, MTX_ECANCELLED, "the engine was closed");
  mtx_inbox_refuse(e, &in, &err);
  for (size_t i = 0; i < e->n_runs; i++) {
    mtx_run *r = e->runs[i];
    if (r->job) mtx_run_fail(e, r, &err);
    else if (r->seq >= 0) mtx_kv_seq_free(e->kv, r->seq);
    mtx_run_free(r);
  }
  e->n_runs = 0;
  if (e->disk) e->stop_rc = mtx_disk_store(e->disk, &e->stop_err);
  return NULL;
}
