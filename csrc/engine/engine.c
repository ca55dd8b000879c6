// SPDX-License-Identifier: MIT
// Opens and closes an engine, and the calls that reach its thread: see engine.h.
#include "engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "engine/state.h"

enum { CACHED_WINDOWS = 64 };  // windows of sliding attention that the prefix index may hold beside those of sequences

double mtx_now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

struct timespec mtx_at_ms(double ms) { return (struct timespec){(time_t)(ms / 1e3), (long)((ms - (double)(int64_t)(ms / 1e3) * 1e3) * 1e6)}; }

// ---- life ---------------------------------------------------------------------------

static uint64_t token_bytes(const mtx_kv_layout *l) {  // of groups without a window
  uint64_t n = 0;
  for (int g = 0; g < l->n_groups; g++)
    if (l->window[g] == 0) n += l->page_bytes[g] / MTX_PAGE_TOKENS;
  return n;
}

static mtx_code open_context(mtx_engine *e, mtx_err *err) {
  mtx_engine_opts *o = &e->opts;
  const mtx_model_info *info = mtx_model_get_info(e->model);
  if (!o->n_ctx) o->n_ctx = mtx_model_context(info->n_ctx_train);
  mtx_kv_layout layout = *mtx_model_kv_layout(e->model);
  layout.type = o->kv_type;
  int64_t kv_tokens = o->kv_tokens;
  if (!kv_tokens) {
    if (__builtin_mul_overflow(o->n_ctx, (int64_t)o->n_parallel, &kv_tokens)) return mtx_fail(err, MTX_ELIMIT, "a context of %lld tokens is too large", (long long)o->n_ctx);
    mtx_code rc = mtx_kv_layout_fill(&layout, err);
    if (rc) return rc;
    uint64_t bytes = token_bytes(&layout);
    uint64_t extra = bytes ? o->cache_bytes / bytes : 0;
    uint64_t most = (uint64_t)o->n_ctx * 64;  // more would be address space only
    kv_tokens += (int64_t)(extra < most ? extra : most);
  }
  mtx_context_opts c = {.n_ctx = o->n_ctx, .kv_tokens = kv_tokens, .max_seqs = 2 * o->n_parallel + o->max_sessions + (o->cache_bytes ? CACHED_WINDOWS : 0),  // a request may have a guide
                        .max_rows = o->max_rows, .n_threads = o->n_threads, .kv_type = o->kv_type};
  mtx_code rc = mtx_context_open(&e->ctx, e->model, &c, err);
  if (rc) return rc;
  e->kv = mtx_context_kv(e->ctx);
  e->n_ctx = mtx_context_n_ctx(e->ctx);
  return mtx_prefix_open(&e->prefix, e->kv, o->cache_bytes, err);
}

static mtx_code open_sampling(mtx_engine *e, mtx_err *err) {
  const mtx_model_info *info = mtx_model_get_info(e->model);
  e->n_vocab = info->n_vocab;
  e->n_out = info->n_out;
  e->n_embed = info->n_embed;
  if (!e->tok || !info->has_logits) return MTX_OK;
  int32_t n_tok = mtx_tok_n_tokens(e->tok), n = n_tok > e->n_vocab ? n_tok : e->n_vocab;
  e->mask = calloc((size_t)n / 64 + 1, sizeof *e->mask);
  e->eog = calloc((size_t)n / 64 + 1, sizeof *e->eog);
  if (!e->mask || !e->eog) return mtx_fail(err, MTX_ENOMEM, "no memory for token masks");
  for (int32_t i = 0; i < n_tok && i < e->n_vocab; i++)
    if (mtx_tok_is_eog(e->tok, i)) e->eog[i / 64] |= UINT64_C(1) << (i % 64);
  return mtx_sample_work_open(&e->work, e->n_vocab, err);
}

static mtx_code start_thread(mtx_engine *e, mtx_err *err) {
  pthread_condattr_t attr;
  if (pthread_mutex_init(&e->lock, NULL) || pthread_condattr_init(&attr)) return mtx_fail(err, MTX_ENOMEM, "cannot make a lock");
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&e->work_cond, &attr);
  pthread_cond_init(&e->done_cond, &attr);
  pthread_condattr_destroy(&attr);
  if (pthread_create(&e->thread, NULL, mtx_engine_main, e)) return mtx_fail(err, MTX_ENOMEM, "cannot start the engine's thread");
  e->has_thread = true;
  return MTX_OK;
}

static mtx_code check_opts(const mtx_engine_opts *o, mtx_err *err) {
  const struct { const char *name; int64_t value, least, most; } limits[] = {
    {"ctx", o->n_ctx, 0, INT32_MAX},           {"n_parallel", o->n_parallel, 1, 4096},      {"max_waiting", o->max_waiting, 0, INT32_MAX},
    {"max_sessions", o->max_sessions, 1, 65536}, {"kv_tokens", o->kv_tokens, 0, INT64_MAX},
  };
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
    if (limits[i].value < limits[i].least || limits[i].value > limits[i].most)
      return mtx_fail_at(err, MTX_EINVAL, NULL, limits[i].name, 0, "%lld is out of range; it must be between %lld and %lld", (long long)limits[i].value,
                         (long long)limits[i].least, (long long)limits[i].most);
  return MTX_OK;
}

mtx_code mtx_engine_open(mtx_engine **out, const mtx_model *model, const mtx_tok *tok, const mtx_engine_opts *opts, mtx_err *err) {
  *out = NULL;
  mtx_engine *e = calloc(1, sizeof *e);
  if (!e) return mtx_fail(err, MTX_ENOMEM, "no memory for an engine");
  e->model = model;
  e->tok = tok;
  if (opts) e->opts = *opts;
  else e->opts.kv_type = MTX_KV_F16;
  mtx_engine_opts *o = &e->opts;
  if (!o->n_parallel) o->n_parallel = 8;
  if (!o->max_waiting) o->max_waiting = 256;
  if (!o->max_sessions) o->max_sessions = 32;
  if (!o->max_unread_bytes) o->max_unread_bytes = 4 << 20;
  e->wake_fd = -1;
  e->next_id = 1;
  e->arrived_tail = &e->arrived;
  e->jobs_tail = &e->jobs;
  e->events_tail = &e->events;
  mtx_code rc;
  if ((rc = check_opts(o, err)) || (rc = open_context(e, err)) || (rc = open_sampling(e, err))) goto fail;
  size_t n = (size_t)mtx_context_max_rows(e->ctx);
  e->rows = malloc(n * sizeof *e->rows);
  e->out_run = malloc(n * sizeof(mtx_run *));
  e->out_token = malloc(n * sizeof *e->out_token);
  e->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (!e->rows || !e->out_run || !e->out_token || e->wake_fd < 0) {
    rc = mtx_fail(err, MTX_ENOMEM, "no memory or file descriptor for an engine");
    goto fail;
  }
  mtx_engine_read_pages(e, &e->stats);
  const mtx_kv_layout *l = mtx_kv_get_layout(e->kv);
  for (int g = 0; g < l->n_groups; g++) e->stats.kv_page_bytes += l->page_bytes[g];
  if ((rc = start_thread(e, err))) goto fail;
  *out = e;
  return MTX_OK;
fail:
  mtx_engine_close(e);
  return rc;
}

mtx_code mtx_engine_stop(mtx_engine *e, mtx_err *err) {
  if (e->joined || !e->has_thread) return MTX_OK;
  pthread_mutex_lock(&e->lock);
  e->stop = true;
  pthread_cond_broadcast(&e->work_cond);
  pthread_mutex_unlock(&e->lock);
  pthread_join(e->thread, NULL);
  e->joined = true;
  if (e->stop_rc && err) *err = e->stop_err;
  return e->stop_rc;
}

void mtx_engine_close(mtx_engine *e) {
  if (!e) return;
  (void)mtx_engine_stop(e, NULL);  // whoever wants to know what was not saved stops it first
  if (e->has_thread) {
    pthread_cond_destroy(&e->work_cond);
    pthread_cond_destroy(&e->done_cond);
    pthread_mutex_destroy(&e->lock);
  }
  mtx_event_free(e->events);
  mtx_disk_close(e->disk);
  mtx_prefix_close(e->prefix);
  mtx_sample_work_close(e->work);
  mtx_context_close(e->ctx);
  if (e->wake_fd >= 0) close(e->wake_fd);
  free((void *)e->policy.order);
  free((void *)e->policy.preempt);
  free((void *)e->new_policy.order);
  free((void *)e->new_policy.preempt);
  free((void *)e->new_disk.dir);
  free(e->cancels);
  free(e->runs);
  free(e->rows);
  free(e->out_run);
  free(e->out_token);
  free(e->mask);
  free(e->eog);
  free(e);
}

// ---- calls from other threads -------------------------------------------------------

int64_t mtx_engine_n_ctx(const mtx_engine *e) { return e->n_ctx; }
int mtx_engine_fd(const mtx_engine *e) { return e->wake_fd; }

mtx_code mtx_engine_submit(mtx_engine *e, const mtx_request *r, int64_t *id, mtx_err *err) {
  mtx_run *run;
  mtx_code rc = mtx_run_new(e, r, &run, err);
  if (rc) return rc;
  pthread_mutex_lock(&e->lock);
  bool full = e->n_waiting >= e->opts.max_waiting;
  if (!full) {
    e->n_waiting++;
    e->stats.n_submitted++;
    *id = run->id = e->next_id++;
    if (run->start) run->start->id = run->id;
    *e->arrived_tail = run;
    e->arrived_tail = &run->next;
    if (run->guide) {
      run->next = run->guide;
      e->arrived_tail = &run->guide->next;
    }
    pthread_cond_signal(&e->work_cond);
  }
  pthread_mutex_unlock(&e->lock);
  if (!full) return MTX_OK;
  mtx_run_free(run->guide);
  mtx_run_free(run);
  return mtx_fail(err, MTX_ELIMIT, "the queue is full: %d requests wait, the limit is %d", e->opts.max_waiting, e->opts.max_waiting);
}

void mtx_engine_cancel(mtx_engine *e, int64_t id) {
  pthread_mutex_lock(&e->lock);
  if (!mtx_grow(&e->cancels, &e->cap_cancels, e->n_cancels + 1, sizeof *e->cancels, NULL)) e->cancels[e->n_cancels++] = id;
  pthread_cond_signal(&e->work_cond);
  pthread_mutex_unlock(&e->lock);
}

bool mtx_engine_wait(mtx_engine *e, int64_t ms) {
  double until = mtx_now_ms() + (double)ms;
  struct timespec at = mtx_at_ms(until);
  pthread_mutex_lock(&e->lock);
  while (!e->woken) {
    if (ms < 0) pthread_cond_wait(&e->done_cond, &e->lock);
    else if (pthread_cond_timedwait(&e->done_cond, &e->lock, &at) == ETIMEDOUT) break;
  }
  bool woken = e->woken;
  pthread_mutex_unlock(&e->lock);
  return woken;
}

mtx_code mtx_engine_set_policy(mtx_engine *e, const mtx_policy *p, mtx_err *err) {
  if (p->step_tokens < 0 || p->prefill_tokens < 0 || !(p->prefill_ratio >= 0) || p->n_order < 0 || p->n_preempt < 0)
    return mtx_fail(err, MTX_EINVAL, "a policy's numbers must not be negative");
  mtx_policy copy = *p;
  int64_t *order = malloc((size_t)p->n_order * sizeof *order + 1), *preempt = malloc((size_t)p->n_preempt * sizeof *preempt + 1);
  if (!order || !preempt) {
    free(order);
    free(preempt);
    return mtx_fail(err, MTX_ENOMEM, "no memory for a policy");
  }
  if (p->n_order) memcpy(order, p->order, (size_t)p->n_order * sizeof *order);
  if (p->n_preempt) memcpy(preempt, p->preempt, (size_t)p->n_preempt * sizeof *preempt);
  copy.order = order;
  copy.preempt = preempt;
  pthread_mutex_lock(&e->lock);
  free((void *)e->new_policy.order);
  free((void *)e->new_policy.preempt);
  e->new_policy = copy;
  e->has_new_policy = true;
  pthread_cond_signal(&e->work_cond);
  pthread_mutex_unlock(&e->lock);
  return MTX_OK;
}

void mtx_engine_set_threads(mtx_engine *e, int n) {
  pthread_mutex_lock(&e->lock);
  e->new_threads = n < 1 ? 1 : n;
  pthread_cond_signal(&e->work_cond);
  pthread_mutex_unlock(&e->lock);
}

void mtx_engine_get_stats(mtx_engine *e, mtx_engine_stats *out, bool check) {
  bool ok = check ? mtx_engine_check(e) : true;
  pthread_mutex_lock(&e->lock);
  *out = e->stats;
  out->n_waiting = e->n_waiting;
  out->n_sessions = e->n_sessions;
  out->kv_ok = ok;
  pthread_mutex_unlock(&e->lock);
}
