// SPDX-License-Identifier: MIT
// Events from the engine's thread to whoever takes them.
//
// Text and tokens of one request merge into its last event until somebody takes
// it, so a slow reader costs memory per request, not per token. An event that
// has grown past the limit ends its request (run.c asks mtx_emit_token's caller).
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/state.h"

const char *mtx_done_reason_name(mtx_done_reason r) {
  static const char *const names[] = {"stop", "length", "stop_string", "cancelled", "error"};
  return r >= 0 && r <= MTX_DONE_ERROR ? names[r] : "unknown";
}

mtx_event *mtx_event_new(const mtx_run *r, mtx_event_kind kind) {
  mtx_event *ev = calloc(1, sizeof *ev);
  if (!ev) return NULL;
  ev->id = r->id;
  ev->kind = kind;
  ev->n_prompt = r->n_prompt;
  ev->n_cached = r->n_cached;
  return ev;
}

void mtx_event_free(mtx_event *ev) {
  while (ev) {
    mtx_event *next = ev->next;
    mtx_buf_fini(&ev->text);
    mtx_ids_fini(&ev->tokens);
    free(ev->logprobs);
    free(ev->top);
    free(ev->vectors);
    free(ev);
    ev = next;
  }
}

mtx_code mtx_event_add_logprob(mtx_event *ev, const mtx_token_logprob *lp, const mtx_logprob *top) {
  size_t n = (size_t)lp->n_top;
  mtx_code rc = mtx_grow(&ev->logprobs, &ev->cap_logprobs, ev->n_logprobs + 1, sizeof *ev->logprobs, NULL);
  if (!rc && n) rc = mtx_grow(&ev->top, &ev->cap_top, ev->n_top + n, sizeof *ev->top, NULL);
  if (rc) return rc;
  ev->logprobs[ev->n_logprobs] = *lp;
  ev->logprobs[ev->n_logprobs++].top = ev->n_top;
  if (n) memcpy(ev->top + ev->n_top, top, n * sizeof *top);
  ev->n_top += n;
  return MTX_OK;
}

// With the lock held.
static void push(mtx_engine *e, mtx_event *ev) {
  *e->events_tail = ev;
  e->events_tail = &ev->next;
}

void mtx_emit(mtx_engine *e, mtx_event *ev) {
  pthread_mutex_lock(&e->lock);
  push(e, ev);
  pthread_mutex_unlock(&e->lock);
}

void mtx_emit_start(mtx_engine *e, mtx_run *r) {
  mtx_event *ev = r->start ? r->start : mtx_event_new(r, MTX_EVENT_START);
  r->start = NULL;
  r->started = true;
  if (!ev) return;
  ev->n_cached = r->n_cached;
  ev->t_queue_ms = r->t_start - r->t_submit;
  mtx_emit(e, ev);
}

// The event of r that is still being merged into, if nobody has taken it and it is of this kind; else a new one.
// With the lock held.
static mtx_event *open_event(mtx_engine *e, mtx_run *r, mtx_event_kind kind) {
  mtx_event *ev = r->open_event && r->open_epoch == e->epoch && r->open_event->kind == kind ? r->open_event : NULL;
  if (!ev && (ev = mtx_event_new(r, kind))) {
    push(e, ev);
    r->open_event = ev;
    r->open_epoch = e->epoch;
  }
  return ev;
}

void mtx_emit_progress(mtx_engine *e, mtx_run *r, int64_t n_processed) {
  pthread_mutex_lock(&e->lock);
  mtx_event *ev = open_event(e, r, MTX_EVENT_PROGRESS);  // without memory the next report tells more
  if (ev) {
    ev->n_processed = n_processed;
    ev->t_prefill_ms = mtx_now_ms() - r->t_start;
  }
  pthread_mutex_unlock(&e->lock);
}

void mtx_emit_token(mtx_engine *e, mtx_run *r, int32_t token, const char *text, size_t len,
                    const mtx_token_logprob *lp, const mtx_logprob *top) {
  pthread_mutex_lock(&e->lock);
  mtx_event *ev = open_event(e, r, MTX_EVENT_TOKEN);
  mtx_code rc = ev ? mtx_buf_append(&ev->text, text, len, NULL) : MTX_ENOMEM;
  if (!rc && token >= 0) rc = mtx_ids_push(&ev->tokens, token, NULL);
  if (!rc && lp) rc = mtx_event_add_logprob(ev, lp, top);
  size_t unread = ev ? ev->text.len + ev->tokens.len * sizeof(int32_t) + ev->n_logprobs * sizeof *ev->logprobs + ev->n_top * sizeof *ev->top : 0;
  pthread_mutex_unlock(&e->lock);
  mtx_err err;
  if (rc) {
    mtx_fail(&err, rc, "no memory for the events of a request");
    mtx_run_finish(e, r, MTX_DONE_ERROR, NULL, &err, NULL);
  } else if (unread > e->opts.max_unread_bytes) {
    mtx_fail(&err, MTX_ELIMIT, "nobody has read the last %zu bytes of this request", unread);
    mtx_run_finish(e, r, MTX_DONE_ERROR, NULL, &err, NULL);
  }
}

void mtx_emit_done(mtx_engine *e, mtx_run *r, mtx_done_reason reason, const mtx_text_rule *stop, const mtx_err *err, const char *code) {
  mtx_event *ev = mtx_event_new(r, MTX_EVENT_DONE);
  if (!ev) return;
  double now = mtx_now_ms();
  ev->reason = reason;
  ev->n_generated = r->n_generated;
  if (r->draft) ev->n_drafted = r->draft->n_drafted, ev->n_draft_accepted = r->draft->n_accepted;
  ev->t_queue_ms = (r->t_start ? r->t_start : now) - r->t_submit;
  if (r->t_start) ev->t_prefill_ms = (r->t_first ? r->t_first : now) - r->t_start;
  if (r->t_first) ev->t_decode_ms = now - r->t_first;
  if (r->resumable && (reason == MTX_DONE_LENGTH || reason == MTX_DONE_CANCELLED)) {
    (void)mtx_buf_append(&ev->text, r->held.ptr, r->held.len, NULL);  // without memory it is lost
    (void)mtx_buf_append(&ev->text, r->detok.held, r->detok.n_held, NULL);
  }
  if (stop) (void)mtx_buf_append(&ev->text, stop->text, stop->len, NULL);  // without memory only the name of the string is lost
  if (err) {
    ev->code = code ? code : mtx_code_name(err->code);
    mtx_err_format(err, ev->message, (int)sizeof ev->message);
  }
  pthread_mutex_lock(&e->lock);
  push(e, ev);
  e->stats.n_finished++;
  e->stats.n_cancelled += reason == MTX_DONE_CANCELLED;
  e->stats.n_failed += reason == MTX_DONE_ERROR;
  pthread_mutex_unlock(&e->lock);
}

void mtx_events_wake(mtx_engine *e) {
  pthread_mutex_lock(&e->lock);
  if (e->events && !e->woken) {
    uint64_t one = 1;
    e->woken = write(e->wake_fd, &one, sizeof one) == (ssize_t)sizeof one;
    pthread_cond_broadcast(&e->done_cond);
  }
  pthread_mutex_unlock(&e->lock);
}

mtx_event *mtx_engine_take(mtx_engine *e) {
  pthread_mutex_lock(&e->lock);
  mtx_event *list = e->events;
  e->events = NULL;
  e->events_tail = &e->events;
  e->epoch++;
  if (e->woken) {
    uint64_t count;
    if (read(e->wake_fd, &count, sizeof count) == (ssize_t)sizeof count) e->woken = false;
  }
  pthread_mutex_unlock(&e->lock);
  return list;
}
