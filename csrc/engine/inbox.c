// SPDX-License-Identifier: MIT
// What other threads have left for the engine's: requests, jobs, cancels, a policy;
// and the runs that come of it, in the order in which they are served.
#include <errno.h>
#include <stdlib.h>

#include "engine/state.h"

// ---- runs -------------------------------------------------------------------------

bool mtx_engine_add_run(mtx_engine *e, mtx_run *r) {
  if (mtx_grow(&e->runs, &e->cap_runs, e->n_runs + 1, sizeof *e->runs, NULL)) return false;
  size_t i = e->n_runs++;
  for (; i > 0 && mtx_run_compare(e->runs[i - 1], r) > 0; i--) e->runs[i] = e->runs[i - 1];
  e->runs[i] = r;
  return true;
}

static void sort_runs(mtx_engine *e) {  // stable: equals stay in order of arrival
  for (size_t i = 1; i < e->n_runs; i++) {
    mtx_run *r = e->runs[i];
    size_t j = i;
    for (; j > 0 && mtx_run_compare(e->runs[j - 1], r) > 0; j--) e->runs[j] = e->runs[j - 1];
    e->runs[j] = r;
  }
}

void mtx_engine_sweep(mtx_engine *e) {
  size_t n = 0;
  int64_t left = 0;
  for (size_t i = 0; i < e->n_runs; i++) {
    mtx_run *r = e->runs[i];
    if (!r->doomed) {
      e->runs[n++] = r;
    } else {
      left += r->id && !r->t_start;
      mtx_run_free(r);
    }
  }
  e->n_runs = n;
  pthread_mutex_lock(&e->lock);
  e->n_waiting -= left;
  pthread_mutex_unlock(&e->lock);
}

static void apply_policy(mtx_engine *e, mtx_run *r) {
  int64_t id = r->guided ? r->guided->id : r->id;
  r->rank = INT64_MAX;
  r->parked = false;
  for (int i = 0; i < e->policy.n_order && id; i++)
    if (e->policy.order[i] == id) {
      r->rank = i;
      break;
    }
  for (int i = 0; i < e->policy.n_preempt && id; i++) r->parked |= e->policy.preempt[i] == id;
}

// ---- what came in -------------------------------------------------------------------

static double next_deadline(const mtx_engine *e) {
  double t = 0;
  for (size_t i = 0; i < e->n_runs; i++)
    if (e->runs[i]->t_deadline && (!t || e->runs[i]->t_deadline < t)) t = e->runs[i]->t_deadline;
  return t;
}

bool mtx_inbox_receive(mtx_engine *e, bool idle, mtx_inbox *in) {
  double until = idle ? next_deadline(e) : 0;
  struct timespec at = mtx_at_ms(until);
  pthread_mutex_lock(&e->lock);
  while (idle && !e->stop && !e->arrived && !e->jobs && !e->n_cancels && !e->has_new_policy && !e->has_new_disk && !e->new_threads) {
    if (!until) pthread_cond_wait(&e->work_cond, &e->lock);
    else if (pthread_cond_timedwait(&e->work_cond, &e->lock, &at) == ETIMEDOUT) break;
  }
  bool stop = e->stop;
  *in = (mtx_inbox){e->arrived, e->jobs, e->cancels, e->n_cancels, e->has_new_policy};
  e->arrived = NULL;
  e->arrived_tail = &e->arrived;
  e->jobs = NULL;
  e->jobs_tail = &e->jobs;
  e->cancels = NULL;
  e->n_cancels = e->cap_cancels = 0;
  if (e->has_new_policy) {
    free((void *)e->policy.order);
    free((void *)e->policy.preempt);
    e->policy = e->new_policy;
    e->new_policy = (mtx_policy){0};
    e->has_new_policy = false;
  }
  int n_threads = e->new_threads;
  e->new_threads = 0;
  bool has_disk = e->has_new_disk;
  mtx_disk_opts disk = e->new_disk;
  e->new_disk = (mtx_disk_opts){0};
  e->has_new_disk = false;
  pthread_mutex_unlock(&e->lock);
  if (has_disk) mtx_engine_take_disk(e, disk);
  if (n_threads) mtx_context_set_threads(e->ctx, n_threads);
  return !stop;
}

void mtx_inbox_accept(mtx_engine *e, mtx_inbox *in) {
  mtx_err err;
  for (mtx_run *r = in->arrived, *next; r; r = next) {
    next = r->next;
    apply_policy(e, r);
    if (mtx_engine_add_run(e, r)) continue;
    mtx_fail(&err, MTX_ENOMEM, "no memory for a request");
    mtx_run_fail(e, r, &err);
    if (r->guide) next = r->guide->next, mtx_run_free(r->guide);
    else if (r->guided) r->guided->guide = NULL;
    mtx_run_free(r);
  }
  for (mtx_job *j = in->jobs, *next; j; j = next) {
    next = j->next;  // a finished job's memory belongs to its caller again
    mtx_job_start(e, j);
  }
  if (in->policy) {
    for (size_t i = 0; i < e->n_runs; i++) apply_policy(e, e->runs[i]);
    sort_runs(e);
  }
  for (size_t c = 0; c < in->n_cancels; c++)
    for (size_t i = 0; i < e->n_runs; i++) {
      mtx_run *r = e->runs[i];
      if (r->id && r->id == in->cancels[c]) mtx_run_finish(e, r, MTX_DONE_CANCELLED, NULL, NULL, NULL);
      if (!mtx_embed_belongs(r, in->cancels[c])) continue;
      mtx_fail(&err, MTX_ECANCELLED, "the embeddings were cancelled");
      mtx_run_fail(e, r, &err);
    }
  free(in->cancels);
  double now = mtx_now_ms();
  for (size_t i = 0; i < e->n_runs; i++) {
    mtx_run *r = e->runs[i];
    if (!r->t_deadline || now < r->t_deadline) continue;
    mtx_fail(&err, MTX_ECANCELLED, "the deadline of this request has passed");
    mtx_run_finish(e, r, MTX_DONE_ERROR, NULL, &err, "deadline");
  }
  mtx_engine_sweep(e);
}

void mtx_inbox_refuse(mtx_engine *e, mtx_inbox *in, const mtx_err *err) {
  for (mtx_run *r = in->arrived, *next; r; r = next) next = r->next, mtx_run_free(r);
  for (mtx_job *j = in->jobs, *next; j; j = next) {
    next = j->next;
    if (j->kind == MTX_JOB_CLOSE) mtx_job_start(e, j);
    else j->err = *err, j->base = j->session ? (int64_t)j->session->tokens.len : 0, mtx_job_end(e, j, err->code);
  }
  free(in->cancels);
}
