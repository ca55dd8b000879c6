// SPDX-License-Identifier: MIT
// Sessions: commands to the engine's thread that their caller waits for.
// Evaluations become runs and share steps with requests.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/state.h"

// ---- on the engine's thread -----------------------------------------------------

void mtx_job_end(mtx_engine *e, mtx_job *job, mtx_code rc) {
  mtx_session *s = job->session;
  if (job->run) {
    job->run->doomed = true;
    job->run->job = NULL;
    job->run->tokens = (mtx_ids){0};
  }
  if (job->kind == MTX_JOB_EVAL && rc) {  // as it was
    s->tokens.len = (size_t)job->base;
    if (s->seq >= 0 && mtx_kv_seq_len(e->kv, s->seq) > job->base) (void)mtx_kv_seq_truncate(e->kv, s->seq, job->base);
  }
  if (job->embed && s->seq >= 0) {
    mtx_kv_seq_free(e->kv, s->seq);
    s->seq = -1;
  }
  if (job->group) {
    mtx_embed_ended(e, job, rc);
    return;
  }
  pthread_mutex_lock(&e->lock);
  job->rc = rc;
  job->done = true;
  pthread_cond_broadcast(&e->done_cond);
  pthread_mutex_unlock(&e->lock);
}

static void start_eval(mtx_engine *e, mtx_job *job) {
  mtx_session *s = job->session;
  job->base = (int64_t)s->tokens.len;
  mtx_code rc = MTX_OK;
  if (job->base + job->n > e->n_ctx)
    rc = mtx_fail(&job->err, MTX_ELIMIT, "%lld tokens and %lld more do not fit the context of %lld tokens; rewind the session or open the model with a larger context",
                  (long long)job->base, (long long)job->n, (long long)e->n_ctx);
  if (!rc) rc = mtx_ids_append(&s->tokens, job->tokens, (size_t)job->n, &job->err);
  if (rc) {
    mtx_job_end(e, job, rc);
    return;
  }
  mtx_run *r = malloc(sizeof *r);
  if (r) *r = (mtx_run){.job = job, .lora = mtx_lora_ref(s->lora), .tokens = s->tokens, .seq = s->seq, .n_max = (int64_t)s->tokens.len, .rank = INT64_MAX,
                        .logprobs = -1, .prompt_logprobs = -1, .n_prompt = (int64_t)s->tokens.len};
  if (r && mtx_engine_add_run(e, r)) {
    job->run = r;
    return;
  }
  free(r);
  mtx_job_end(e, job, mtx_fail(&job->err, MTX_ENOMEM, "no memory for an evaluation"));
}

void mtx_job_start(mtx_engine *e, mtx_job *job) {
  mtx_session *s = job->session;
  int64_t kept;
  mtx_code rc = MTX_OK;
  switch (job->kind) {
    case MTX_JOB_EVAL: start_eval(e, job); return;
    case MTX_JOB_FORK:
      rc = mtx_ids_append(&job->other->tokens, s->tokens.ptr, s->tokens.len, &job->err);
      if (rc || s->seq < 0) break;
      rc = mtx_kv_seq_fork(e->kv, s->seq, (int64_t)s->tokens.len, &job->other->seq, &kept, &job->err);
      break;
    case MTX_JOB_REWIND:
      s->tokens.len = (size_t)job->n;
      if (s->seq >= 0) (void)mtx_kv_seq_truncate(e->kv, s->seq, job->n);
      break;
    case MTX_JOB_CLOSE:
      if (s->seq >= 0) mtx_kv_seq_free(e->kv, s->seq);
      break;
    case MTX_JOB_SAVE: mtx_job_save(e, job); return;
    case MTX_JOB_LOAD: mtx_job_load(e, job); return;
    case MTX_JOB_FORGET:
      if (job->key) job->n_done = mtx_prefix_forget(e->prefix, job->key, job->tokens, job->n);
      else while (mtx_prefix_evict(e->prefix)) {}
      if (e->disk) mtx_disk_forget(e->disk, job->key, job->tokens, job->n);
      break;
    case MTX_JOB_DISK_NEXT:
      if (e->disk) {
        rc = mtx_disk_next(e->disk, job->piece, &job->err);
      } else {  // switched off meanwhile, which removes every file
        if (job->piece->path) unlink(job->piece->path);
        mtx_disk_piece_fini(job->piece);
      }
      break;
    case MTX_JOB_CHECK: job->ok_check = mtx_kv_check(e->kv) && mtx_prefix_check(e->prefix); break;
    case MTX_JOB_PROFILE:
      job->n_profile = mtx_context_profile_take(e->ctx, job->profile, job->n_profile);
      mtx_context_profile(e->ctx, job->profile_on);
      break;
  }
  mtx_job_end(e, job, rc);
}

void mtx_job_rows(mtx_engine *e, mtx_run *r, int64_t i_token, const float *row) {
  mtx_job *job = r->job;
  if (job->embed) {
    mtx_embed_row(e, r, i_token, row);
    return;
  }
  size_t n = (size_t)e->n_out;
  memcpy(job->out + (job->all ? (size_t)(i_token - job->base) * n : 0), row, n * sizeof *row);
  if (i_token == (int64_t)r->tokens.len - 1) mtx_job_end(e, job, MTX_OK);
}

// ---- on the caller's -------------------------------------------------------------

void mtx_jobs_hand_in(mtx_engine *e, mtx_job *jobs, size_t n) {
  for (size_t i = 0; i < n; i++) {
    jobs[i].next = NULL;
    *e->jobs_tail = &jobs[i];
    e->jobs_tail = &jobs[i].next;
  }
  pthread_cond_signal(&e->work_cond);
}

mtx_code mtx_jobs_run(mtx_engine *e, mtx_job *jobs, size_t n, mtx_err *err) {
  pthread_mutex_lock(&e->lock);
  mtx_jobs_hand_in(e, jobs, n);
  for (size_t i = 0; i < n; i++)
    while (!jobs[i].done) pthread_cond_wait(&e->done_cond, &e->lock);
  pthread_mutex_unlock(&e->lock);
  for (size_t i = 0; i < n; i++) {
    if (!jobs[i].rc) continue;
    if (err) *err = jobs[i].err;
    return jobs[i].rc;
  }
  return MTX_OK;
}

static mtx_code session_new(mtx_engine *e, mtx_lora *lora, mtx_session **out, mtx_err *err) {
  *out = NULL;
  mtx_session *s = calloc(1, sizeof *s);
  if (!s) return mtx_fail(err, MTX_ENOMEM, "no memory for a session");
  s->engine = e;
  s->seq = -1;
  s->lora = mtx_lora_ref(lora);
  pthread_mutex_lock(&e->lock);
  bool full = e->n_sessions >= e->opts.max_sessions;
  e->n_sessions += !full;
  pthread_mutex_unlock(&e->lock);
  if (full) {
    mtx_lora_unref(s->lora);
    free(s);
    return mtx_fail(err, MTX_ELIMIT, "%d sessions are open; close one", e->opts.max_sessions);
  }
  *out = s;
  return MTX_OK;
}

mtx_code mtx_session_open(mtx_engine *e, mtx_lora *lora, mtx_session **out, mtx_err *err) {
  *out = NULL;
  mtx_code rc = mtx_check_lora(e, lora, err);
  return rc ? rc : session_new(e, lora, out, err);
}

void mtx_session_close(mtx_session *s) {
  if (!s) return;
  mtx_engine *e = s->engine;
  mtx_job job = {.kind = MTX_JOB_CLOSE, .session = s};
  (void)mtx_jobs_run(e, &job, 1, NULL);  // closing cannot fail
  pthread_mutex_lock(&e->lock);
  e->n_sessions--;
  pthread_mutex_unlock(&e->lock);
  mtx_ids_fini(&s->tokens);
  mtx_lora_unref(s->lora);
  free(s->logits);
  free(s);
}

int64_t mtx_session_n_tokens(const mtx_session *s) { return (int64_t)s->tokens.len; }

mtx_code mtx_check_tokens(const mtx_engine *e, const char *field, const int32_t *tokens, int64_t n, mtx_err *err) {
  if (n < 1) return mtx_fail_at(err, MTX_EINVAL, NULL, field, 0, "there are none");
  for (int64_t i = 0; i < n; i++)
    if (tokens[i] < 0 || tokens[i] >= e->n_vocab)
      return mtx_fail_at(err, MTX_EINVAL, NULL, field, 0, "token %d does not exist; the vocabulary has %d", tokens[i], e->n_vocab);
  return MTX_OK;
}

mtx_code mtx_session_eval(mtx_session *s, const int32_t *tokens, int64_t n, bool all, const float **logits, mtx_err *err) {
  mtx_engine *e = s->engine;
  size_t want;
  mtx_code rc = mtx_check_tokens(e, "tokens", tokens, n, err);
  if (rc) return rc;
  if (__builtin_mul_overflow(all ? (size_t)n : 1, (size_t)e->n_out, &want)) return mtx_fail(err, MTX_ELIMIT, "too many rows of logits");
  if ((rc = mtx_grow(&s->logits, &s->cap_logits, want, sizeof *s->logits, err))) return rc;
  mtx_job job = {.kind = MTX_JOB_EVAL, .session = s, .tokens = tokens, .n = n, .all = all, .out = s->logits};
  if ((rc = mtx_jobs_run(e, &job, 1, err))) return rc;
  *logits = s->logits;
  return MTX_OK;
}

mtx_code mtx_sessions_eval(mtx_session *const *s, const int32_t *tokens, int n, const float **logits, mtx_err *err) {
  if (n < 1) return MTX_OK;
  mtx_engine *e = s[0]->engine;
  mtx_code rc = mtx_check_tokens(e, "tokens", tokens, n, err);
  for (int i = 0; i < n && !rc; i++) {
    bool twice = s[i]->engine != e;
    for (int k = 0; k < i; k++) twice |= s[k] == s[i];
    rc = twice ? mtx_fail(err, MTX_EINVAL, "sessions evaluated together must differ and belong to one engine")
               : mtx_grow(&s[i]->logits, &s[i]->cap_logits, (size_t)e->n_out, sizeof *s[i]->logits, err);
  }
  mtx_job *jobs = rc ? NULL : calloc((size_t)n, sizeof *jobs);
  if (!jobs) return rc ? rc : mtx_fail(err, MTX_ENOMEM, "no memory for %d evaluations", n);
  for (int i = 0; i < n; i++) {
    jobs[i] = (mtx_job){.kind = MTX_JOB_EVAL, .session = s[i], .tokens = &tokens[i], .n = 1, .out = s[i]->logits};
    logits[i] = s[i]->logits;
  }
  rc = mtx_jobs_run(e, jobs, (size_t)n, err);
  free(jobs);
  return rc;
}

mtx_code mtx_session_fork(mtx_session *s, mtx_session **out, mtx_err *err) {
  mtx_code rc = session_new(s->engine, s->lora, out, err);
  if (rc) return rc;
  mtx_job job = {.kind = MTX_JOB_FORK, .session = s, .other = *out};
  if ((rc = mtx_jobs_run(s->engine, &job, 1, err))) {
    mtx_session_close(*out);
    *out = NULL;
  }
  return rc;
}

mtx_code mtx_session_rewind(mtx_session *s, int64_t n, mtx_err *err) {
  if (n < 0 || n > (int64_t)s->tokens.len)
    return mtx_fail(err, MTX_EINVAL, "cannot rewind to %lld; the session has %lld tokens", (long long)n, (long long)s->tokens.len);
  mtx_job job = {.kind = MTX_JOB_REWIND, .session = s, .n = n};
  return mtx_jobs_run(s->engine, &job, 1, err);
}

bool mtx_engine_check(mtx_engine *e) {
  mtx_job job = {.kind = MTX_JOB_CHECK};
  return mtx_jobs_run(e, &job, 1, NULL) == MTX_OK && job.ok_check;
}

int mtx_engine_profile(mtx_engine *e, bool on, mtx_profile_row *rows, int cap) {
  mtx_job job = {.kind = MTX_JOB_PROFILE, .profile_on = on, .profile = rows, .n_profile = cap};
  return mtx_jobs_run(e, &job, 1, NULL) == MTX_OK ? job.n_profile : 0;
}
