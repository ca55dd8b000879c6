// SPDX-License-Identifier: MIT
// The cache's pages in the engine: prefixes of earlier prompts are not read again; where pages are short, requests wait or
// give way.
#include "chain_fixture.h"
#include "engine_run.h"
#include "kern/kern.h"

static void test_prefix(const fixture *f, int hello, int loop) {
  mtx_engine *e;
  mtx_engine_opts o = {.n_ctx = 1024, .n_parallel = 2, .cache_bytes = 64 << 20, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  int32_t prompt[400];
  for (int i = 0; i < 400; i++) prompt[i] = i % 3 ? loop : hello;
  mtx_request r = ask(prompt, 300, 10);
  r.cache_key = "a";
  result x = run_one(e, &r);
  CHECK(x.n_cached == 0);
  char cold[4096];
  strcpy(cold, x.text);
  x = run_one(e, &r);
  CHECK(x.n_cached == 299 && !strcmp(x.text, cold), "%d from cache", (int)x.n_cached);
  r.n_tokens = 400;
  x = run_one(e, &r);
  CHECK(x.n_cached == 300, "%d from cache", (int)x.n_cached);
  prompt[200] = 5;
  x = run_one(e, &r);
  CHECK(x.n_cached == 200, "%d from cache", (int)x.n_cached);
  r.cache_key = "b";  // another key's prefixes are not seen
  x = run_one(e, &r);
  CHECK(x.n_cached == 0);
  r.cache_key = NULL;
  x = run_one(e, &r);
  CHECK(x.n_cached == 0);
  mtx_engine_stats s;
  mtx_engine_get_stats(e, &s, true);
  CHECK(s.kv_ok && s.n_cache_entries >= 2 && s.n_cached_tokens == 299 + 300 + 200);
  mtx_engine_close(e);
}

// More requests than the cache has pages for: some wait or give way, all end as alone.
static void test_pressure(const fixture *f, int loop) {
  enum { N = 10, NEW = 130 };
  mtx_engine *e;
  mtx_engine_opts o = {.n_ctx = 512, .n_parallel = 6, .kv_tokens = 1024, .cache_bytes = 1 << 20, .kv_type = MTX_KV_F16, .max_rows = 64};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  static result x[N];
  memset(x, 0, sizeof x);
  int32_t prompt[300];
  for (int i = 0; i < 300; i++) prompt[i] = loop;
  // Held until all have come: on a busy machine the first would otherwise end before the last is there.
  int64_t ids[N];
  for (int i = 0; i < N; i++) ids[i] = i + 1;
  CHECK(mtx_engine_set_policy(e, &(mtx_policy){.preempt = ids, .n_preempt = N}, NULL) == MTX_OK);
  for (int i = 0; i < N; i++) {
    mtx_request r = ask(prompt, 100 + i * 12, NEW);
    r.cache_key = i % 2 ? "k" : NULL;
    r.priority = i % 3;
    int64_t id;
    CHECK(mtx_engine_submit(e, &r, &id, NULL) == MTX_OK && id == ids[i]);
  }
  CHECK(mtx_engine_set_policy(e, &(mtx_policy){.prefill_tokens = 64}, NULL) == MTX_OK);  // by count, not by measured times
  finish(e, x, ids[0], N);
  for (int i = 0; i < N; i++) {
    CHECK(x[i].reason == MTX_DONE_LENGTH && x[i].n_generated == NEW && x[i].n_ids == NEW, "%d: %s %s %d", i, mtx_done_reason_name(x[i].reason), x[i].message, (int)x[i].n_generated);
    CHECK(x[i].n_text == NEW && x[i].n_start == 1);
  }
  mtx_engine_stats st;
  mtx_engine_get_stats(e, &st, false);
  CHECK(st.n_preempted > 0, "nobody had to give way");
  check_idle(e);

  mtx_session *s;
  const float *logits;
  mtx_err err;
  CHECK(mtx_session_open(e, NULL, &s, NULL) == MTX_OK);
  static int32_t many[512];
  for (int i = 0; i < 512; i++) many[i] = loop;
  CHECK(mtx_session_eval(s, many, 512, false, &logits, &err) == MTX_OK, "%s", err.msg);
  CHECK(mtx_session_eval(s, many, 1, false, &logits, &err) == MTX_ELIMIT && strstr(err.msg, "512"));
  mtx_session *t, *u;
  CHECK(mtx_session_fork(s, &t, NULL) == MTX_OK);
  CHECK(mtx_session_rewind(t, 0, NULL) == MTX_OK && mtx_session_eval(t, many, 500, false, &logits, &err) == MTX_OK, "%s", err.msg);
  CHECK(mtx_session_open(e, NULL, &u, NULL) == MTX_OK);
  CHECK(mtx_session_eval(u, many, 100, false, &logits, &err) == MTX_ELIMIT, "sessions hold all pages");
  mtx_request r = ask(prompt, 100, 10);
  result one = run_one(e, &r);
  CHECK(one.reason == MTX_DONE_ERROR && !strcmp(one.code, "limit"), "%s", one.message);
  mtx_session_close(s);
  mtx_session_close(t);
  CHECK(mtx_session_eval(u, many, 100, false, &logits, &err) == MTX_OK, "%s", err.msg);
  mtx_session_close(u);
  check_idle(e);
  mtx_engine_close(e);
}

int main(void) {
  mtx_kern_init(MTX_TIER_AMX);
  fixture f;
  int hello, loop;
  if (fixture_open_hello(&f, &hello, &loop)) {
    test_prefix(&f, hello, loop);
    test_pressure(&f, loop);
  }
  fixture_close(&f);
  return check_report();
}
