// SPDX-License-Identifier: MIT
// Requests through an engine in tests: asks, collects their events, checks that nothing is left.
#ifndef MTX_TESTS_ENGINE_RUN_H
#define MTX_TESTS_ENGINE_RUN_H

#include <string.h>

#include "check.h"
#include "engine/engine.h"

// What one request gave.
typedef struct {
  char text[4096];
  int32_t ids[512];
  int n_text, n_ids, n_start, n_done, n_events;
  mtx_done_reason reason;
  char stop[64], message[512], code[32];
  int64_t n_prompt, n_cached, n_generated, n_drafted, n_draft_accepted;
  double lp[64];
  int32_t lp_id[64], top_id[64];
  int n_lp, n_prompt_lp;
  int64_t progress[64];
  int n_progress;
} result;

static inline void take(mtx_engine *e, result *r, int64_t first_id, int n) {
  mtx_event *list = mtx_engine_take(e);
  for (mtx_event *ev = list; ev; ev = ev->next) {
    if (ev->id < first_id || ev->id >= first_id + n) continue;
    result *x = &r[ev->id - first_id];
    CHECK(x->n_done == 0, "an event after done");
    x->n_events++;
    if (ev->kind == MTX_EVENT_START) {
      x->n_start++;
      x->n_prompt_lp = (int)ev->n_logprobs;
    } else if (ev->kind == MTX_EVENT_PROGRESS) {
      CHECK(x->n_start == 1 && x->n_ids == 0 && ev->n_prompt > 0 && ev->t_prefill_ms >= 0);
      if (x->n_progress < 64) x->progress[x->n_progress++] = ev->n_processed;
    } else if (ev->kind == MTX_EVENT_TOKEN) {
      CHECK(x->n_start == 1);
      if (ev->text.len) memcpy(x->text + x->n_text, ev->text.ptr, ev->text.len);
      x->n_text += (int)ev->text.len;
      for (size_t i = 0; i < ev->tokens.len && x->n_ids < 512; i++) x->ids[x->n_ids++] = ev->tokens.ptr[i];
      for (size_t i = 0; i < ev->n_logprobs && x->n_lp < 64; i++) {
        x->lp[x->n_lp] = ev->logprobs[i].logprob;
        x->lp_id[x->n_lp] = ev->logprobs[i].id;
        x->top_id[x->n_lp++] = ev->logprobs[i].n_top ? ev->top[ev->logprobs[i].top].id : -1;
      }
    } else {
      x->n_done++;
      x->reason = ev->reason;
      if (ev->text.len) memcpy(x->stop, ev->text.ptr, ev->text.len);
      strcpy(x->message, ev->message);
      if (ev->code) strcpy(x->code, ev->code);
      x->n_prompt = ev->n_prompt;
      x->n_cached = ev->n_cached;
      x->n_generated = ev->n_generated;
      x->n_drafted = ev->n_drafted;
      x->n_draft_accepted = ev->n_draft_accepted;
      CHECK(ev->t_queue_ms >= 0 && ev->t_prefill_ms >= 0 && ev->t_decode_ms >= 0);
    }
  }
  mtx_event_free(list);
}

static inline void finish(mtx_engine *e, result *r, int64_t first_id, int n) {
  for (int tries = 0; tries < 20000; tries++) {
    int n_done = 0;
    take(e, r, first_id, n);
    for (int i = 0; i < n; i++) n_done += r[i].n_done;
    if (n_done == n) return;
    mtx_engine_wait(e, 100);
  }
  CHECK(false, "requests do not end");
}

static inline result run_one(mtx_engine *e, const mtx_request *r) {
  static result x;
  memset(&x, 0, sizeof x);
  int64_t id;
  mtx_err err = {0};
  mtx_code rc = mtx_engine_submit(e, r, &id, &err);
  CHECK(rc == MTX_OK, "%s %s", err.key, err.msg);
  if (rc == MTX_OK) finish(e, &x, id, 1);
  return x;
}

static inline mtx_request ask(const int32_t *prompt, int n, int max_tokens) {
  static mtx_sampler_opts greedy;
  mtx_sampler_opts_init(&greedy);
  greedy.temperature = 0;
  mtx_request r;
  mtx_request_init(&r);
  r.tokens = prompt;
  r.n_tokens = n;
  r.max_tokens = max_tokens;
  r.sampler = &greedy;
  return r;
}

static inline void check_idle(mtx_engine *e) {
  mtx_engine_stats s;
  mtx_engine_get_stats(e, &s, true);
  CHECK(s.kv_ok && s.n_waiting == 0 && s.n_prefill == 0 && s.n_decode == 0 && s.n_parked == 0);
  if (!s.n_cache_entries && !s.n_sessions) CHECK(s.n_pages_free == s.n_pages, "%lld of %lld pages free", (long long)s.n_pages_free, (long long)s.n_pages);
}

#endif
