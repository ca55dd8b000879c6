// SPDX-License-Identifier: MIT
// What the engine refuses and what ends a request from outside: the queue's limit, cancelling, deadlines, a reader that is
// too slow.
#include <time.h>

#include "chain_fixture.h"
#include "engine_run.h"
#include "kern/kern.h"

static void test_limits(const fixture *f, int hello, int loop) {
  mtx_engine *e;
  mtx_err err = {0};
  mtx_engine_opts o = {.n_ctx = 64, .n_parallel = 2, .max_waiting = 5, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  int32_t prompt[100];
  for (int i = 0; i < 100; i++) prompt[i] = hello;
  int64_t id;
  mtx_request r = ask(prompt, 64, 1);
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_ELIMIT && strstr(err.msg, "64 tokens"), "%s", err.msg);
  r.n_tokens = 0;
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_EINVAL);
  prompt[0] = 4000;
  r.n_tokens = 1;
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_EINVAL && strstr(err.msg, "4000"));
  prompt[0] = -1;
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_EINVAL);
  prompt[0] = loop;
  mtx_sampler_opts so;
  mtx_sampler_opts_init(&so);
  so.top_p = 7;
  r.sampler = &so;
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_EINVAL && !strcmp(err.key, "top_p"));

  // The queue: parked requests fill both places, five wait, the next is refused.
  static result x[32];
  memset(x, 0, sizeof x);
  r = ask(prompt, 1, 50);
  mtx_policy hold = {.step_tokens = 1};
  CHECK(mtx_engine_set_policy(e, &hold, NULL) == MTX_OK);
  int n = 0, n_refused = 0;
  int64_t first = 0;
  for (int i = 0; i < 30; i++) {
    mtx_code rc = mtx_engine_submit(e, &r, &id, &err);
    if (rc == MTX_OK) n++, first = first ? first : id;
    else {
      n_refused++;
      CHECK(rc == MTX_ELIMIT && strstr(err.msg, "limit is 5"), "%s", err.msg);
    }
  }
  CHECK(n >= 5);
  finish(e, x, first, n);
  for (int i = 0; i < n; i++) CHECK(x[i].reason == MTX_DONE_LENGTH && x[i].n_generated == 50);
  check_idle(e);
  mtx_engine_close(e);
}

static void test_cancel(const fixture *f, int loop) {
  mtx_engine *e;
  mtx_err err = {0};
  mtx_engine_opts o = {.n_ctx = 2048, .n_parallel = 3, .max_rows = 8, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  static int32_t prompt[1500];
  for (int i = 0; i < 1500; i++) prompt[i] = loop;
  static result x[12];
  memset(x, 0, sizeof x);
  int64_t id, first = 0;
  for (int i = 0; i < 12; i++) {  // some decode, one has a long prefill, the rest wait
    mtx_request r = ask(prompt, i == 2 ? 1500 : 1, 100000);
    CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_OK, "%s", err.msg);
    first = first ? first : id;
  }
  struct timespec t = {0, 20000000};
  nanosleep(&t, NULL);
  mtx_engine_cancel(e, first + 2);
  mtx_engine_cancel(e, first + 9);
  mtx_engine_cancel(e, first);
  mtx_engine_cancel(e, 123456);
  mtx_engine_cancel(e, 0);
  for (int i = 0; i < 12; i++) mtx_engine_cancel(e, first + i);
  finish(e, x, first, 12);
  for (int i = 0; i < 12; i++) CHECK(x[i].reason == MTX_DONE_CANCELLED, "%d: %s", i, mtx_done_reason_name(x[i].reason));
  check_idle(e);

  mtx_request r = ask(prompt, 1, 100000);
  r.deadline_ms = 1;
  memset(x, 0, sizeof x);
  o.n_ctx = 2048;
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_OK);
  finish(e, x, id, 1);
  CHECK(x[0].reason == MTX_DONE_LENGTH || (x[0].reason == MTX_DONE_ERROR && !strcmp(x[0].code, "deadline")));

  // A waiting request passes its deadline while nothing else happens to it.
  memset(x, 0, sizeof x);
  r.deadline_ms = 0;
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_OK);
  mtx_policy stop = {.preempt = &id, .n_preempt = 1};
  CHECK(mtx_engine_set_policy(e, &stop, NULL) == MTX_OK);
  mtx_request late = ask(prompt, 1, 100000);
  late.deadline_ms = 30;
  int64_t id2;
  int64_t both[2];
  CHECK(mtx_engine_submit(e, &late, &id2, &err) == MTX_OK);
  both[0] = id;
  both[1] = id2;
  stop.preempt = both;
  stop.n_preempt = 2;
  CHECK(mtx_engine_set_policy(e, &stop, NULL) == MTX_OK);
  finish(e, x + 1, id2, 1);
  CHECK(x[1].reason == MTX_DONE_ERROR || x[1].reason == MTX_DONE_LENGTH);
  mtx_engine_cancel(e, id);
  finish(e, x, id, 1);
  check_idle(e);
  mtx_engine_close(e);
}

// A prompt that cannot be read by its deadline is not let in beside another request; the next one is.
static void test_hopeless(const fixture *f, int loop) {
  enum { LONG = 16000 };
  mtx_engine *e;
  mtx_engine_opts o = {.n_ctx = 16384, .n_parallel = 2, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  static int32_t prompt[LONG];
  for (int i = 0; i < LONG; i++) prompt[i] = loop;
  static result x, late;
  memset(&x, 0, sizeof x);
  memset(&late, 0, sizeof late);
  int64_t id, id2;
  mtx_request r = ask(prompt, 100, 100000);
  CHECK(mtx_engine_submit(e, &r, &id, NULL) == MTX_OK);
  while (!x.n_ids && !x.n_done) {
    mtx_engine_wait(e, 100);
    take(e, &x, id, 1);
  }
  r = ask(prompt, LONG, 1);
  r.deadline_ms = 1;
  CHECK(mtx_engine_submit(e, &r, &id2, NULL) == MTX_OK);
  finish(e, &late, id2, 1);
  CHECK(late.reason == MTX_DONE_ERROR && !strcmp(late.code, "deadline") && late.n_start == 0, "%s %d", late.message, late.n_start);
  mtx_engine_stats s;
  mtx_engine_get_stats(e, &s, false);
  CHECK(s.n_prompt_tokens == 100, "%lld", (long long)s.n_prompt_tokens);
  mtx_engine_cancel(e, id);
  r = ask(prompt, 10, 3);
  r.deadline_ms = 1000000;
  CHECK(run_one(e, &r).n_generated == 3);
  check_idle(e);
  mtx_engine_close(e);
}

// Cancelled while it waits, reads its prompt, writes or is parked: at most the step that
// was under way goes on, and then no page is missing.
static void test_cancel_phases(const fixture *f, int loop) {
  enum { WAIT, READ, WRITE, PARKED, PHASES, LONG = 1900 };
  static const char *const names[] = {"waiting", "reading", "writing", "parked"};
  static int32_t prompt[LONG];
  for (int i = 0; i < LONG; i++) prompt[i] = loop;
  for (int phase = 0; phase < PHASES; phase++) {
    mtx_engine *e;
    mtx_engine_opts o = {.n_ctx = 2048, .n_parallel = 1, .max_rows = 4, .kv_type = MTX_KV_F16};
    CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
    mtx_request r = ask(prompt, phase == WRITE ? 1 : LONG, 2000);
    int64_t id, waiting = 0;
    CHECK(mtx_engine_submit(e, &r, &id, NULL) == MTX_OK);
    if (phase == WAIT) CHECK(mtx_engine_submit(e, &r, &waiting, NULL) == MTX_OK);
    mtx_policy hold = {.preempt = &id, .n_preempt = 1};
    mtx_engine_stats s;
    bool there = false;
    for (int tries = 0; tries < 100000 && !there; tries++) {
      mtx_engine_get_stats(e, &s, false);
      there = s.n_pages_free < s.n_pages && (phase == WRITE ? s.n_decode == 1 : s.n_prefill == 1);
      if (!there) nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    if (phase == PARKED) {
      CHECK(mtx_engine_set_policy(e, &hold, NULL) == MTX_OK);
      do mtx_engine_get_stats(e, &s, false);
      while (!s.n_parked);
      CHECK(s.n_pages_free < s.n_pages, "a parked request keeps its pages");
    }
    if (phase == WAIT) {
      CHECK(s.n_waiting == 1);
      mtx_engine_cancel(e, waiting);
      result x = {0};
      finish(e, &x, waiting, 1);
      CHECK(x.reason == MTX_DONE_CANCELLED && !x.n_start && !x.n_ids);
      mtx_engine_get_stats(e, &s, false);
      CHECK(s.n_prefill + s.n_decode == 1, "the other one goes on");
    }
    mtx_engine_cancel(e, id);
    mtx_engine_get_stats(e, &s, false);
    int64_t n_steps = s.n_steps, n_rows = s.n_rows;
    result x = {0};
    finish(e, &x, id, 1);
    check_idle(e);
    mtx_engine_get_stats(e, &s, true);
    CHECK(there && x.reason == MTX_DONE_CANCELLED, "%s: %s", names[phase], mtx_done_reason_name(x.reason));
    CHECK(s.n_steps <= n_steps + 1 && s.n_rows <= n_rows + 4 && s.n_pages_free == s.n_pages, "%s: %d steps more", names[phase], (int)(s.n_steps - n_steps));
    if (phase != WRITE) CHECK(s.n_rows < LONG, "%s: the prompt was read to its end", names[phase]);
    mtx_engine_close(e);
  }
}

static void test_slow_reader(const fixture *f, int loop) {
  mtx_engine *e;
  mtx_engine_opts o = {.n_ctx = 2048, .max_unread_bytes = 500, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  int32_t p = loop;
  mtx_request r = ask(&p, 1, 1000);
  int64_t id;
  CHECK(mtx_engine_submit(e, &r, &id, NULL) == MTX_OK);
  mtx_engine_stats s;
  do {
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
    mtx_engine_get_stats(e, &s, false);
  } while (!s.n_finished);
  static result x;
  memset(&x, 0, sizeof x);
  take(e, &x, id, 1);
  CHECK(x.n_events == 3, "events of one request merge: %d", x.n_events);
  CHECK(x.reason == MTX_DONE_ERROR && !strcmp(x.code, "limit") && x.n_ids < 200);
  check_idle(e);
  mtx_engine_close(e);
}

int main(void) {
  mtx_kern_init(MTX_TIER_AMX);
  fixture f;
  int hello, loop;
  if (fixture_open_hello(&f, &hello, &loop)) {
    test_limits(&f, hello, loop);
    test_cancel(&f, loop);
    test_hopeless(&f, loop);
    test_cancel_phases(&f, loop);
    test_slow_reader(&f, loop);
  }
  fixture_close(&f);
  return check_report();
}
