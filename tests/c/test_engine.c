// SPDX-License-Identifier: MIT
// The engine with a model that follows a script: text, ends, stop strings,
// limits, cancelling, the queue, prefixes, preemption, errors.
#include "check.h"

#include <math.h>
#include <time.h>

#include "chain_fixture.h"
#include "engine_run.h"
#include "kern/kern.h"

static void test_text(const fixture *f, int hello, int emoji, int cut, int loop, int control) {
  mtx_engine *e;
  mtx_err err = {0};
  mtx_engine_opts o = {.n_ctx = 512, .n_parallel = 4, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, &err) == MTX_OK, "%s", err.msg);
  int32_t p = hello;
  mtx_request r = ask(&p, 1, 100);
  result x = run_one(e, &r);
  CHECK(!strcmp(x.text, "lo, world. END of it"), "'%s'", x.text);
  CHECK(x.reason == MTX_DONE_STOP && x.n_prompt == 1 && x.n_cached == 0 && x.n_generated == x.n_ids && x.n_start == 1);

  const char *stop = "END";  // across the borders of three-byte tokens
  size_t stop_len = 3;
  r.stops = &stop, r.stop_lens = &stop_len, r.n_stops = 1;
  x = run_one(e, &r);
  CHECK(!strcmp(x.text, "lo, world. ") && x.reason == MTX_DONE_STOP_STRING && !strcmp(x.stop, "END"), "'%s' %d", x.text, x.reason);
  stop = "it and more";  // held back, then given out at the end
  stop_len = strlen(stop);
  x = run_one(e, &r);
  CHECK(!strcmp(x.text, "lo, world. END of it") && x.reason == MTX_DONE_STOP);
  r.n_stops = 0;
  r.max_tokens = 3;
  x = run_one(e, &r);
  CHECK(!strcmp(x.text, "lo, world") && x.reason == MTX_DONE_LENGTH && x.n_generated == 3, "'%s'", x.text);
  r.max_tokens = 0;
  x = run_one(e, &r);
  CHECK(x.n_text == 0 && x.reason == MTX_DONE_LENGTH && x.n_generated == 0 && x.n_start == 1);

  p = emoji;  // one byte a token: text only in whole characters
  r = ask(&p, 1, 100);
  x = run_one(e, &r);
  CHECK(!strcmp(x.text, "\xf0\x9f\x98\x80!"), "'%s'", x.text);
  r.max_tokens = 2;  // cut in the middle of a character: once replaced
  x = run_one(e, &r);
  CHECK(!strcmp(x.text, "\xef\xbf\xbd") && x.reason == MTX_DONE_LENGTH, "'%s'", x.text);
  p = cut;
  r = ask(&p, 1, 100);
  x = run_one(e, &r);
  CHECK(!strcmp(x.text, "\xef\xbf\xbd" "ok"), "'%s'", x.text);

  p = control;  // a stop string may name a control token, which shows no text
  r = ask(&p, 1, 20);
  x = run_one(e, &r);
  CHECK(!strcmp(x.text, "ab") && x.reason == MTX_DONE_STOP, "'%s'", x.text);
  stop = "<|ctl|>";
  stop_len = 7;
  r.stops = &stop, r.stop_lens = &stop_len, r.n_stops = 1;
  x = run_one(e, &r);
  CHECK(!strcmp(x.text, "a") && x.reason == MTX_DONE_STOP_STRING && !strcmp(x.stop, "<|ctl|>"), "'%s'", x.text);

  p = hello;
  r = ask(&p, 1, 30);
  r.ignore_eos = true;
  x = run_one(e, &r);
  CHECK(x.reason == MTX_DONE_LENGTH && x.n_generated == 30);
  p = loop;  // until the context is full
  r = ask(&p, 1, 100000);
  x = run_one(e, &r);
  CHECK(x.reason == MTX_DONE_LENGTH && x.n_generated == 511, "%d", (int)x.n_generated);
  check_idle(e);
  mtx_engine_close(e);
}

// A request that goes on in another: stop strings and characters are whole across the seam, wherever it is.
static void test_resumed(const fixture *f, int hello, int emoji) {
  mtx_engine *e;
  mtx_engine_opts o = {.n_ctx = 512, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  const char *stop = "world. END";
  size_t stop_len = strlen(stop);
  for (int cut = 0; cut < 8; cut++) {
    int32_t ids[64] = {hello};
    mtx_request r = ask(ids, 1, cut);
    r.stops = &stop, r.stop_lens = &stop_len, r.n_stops = 1, r.resumable = true;
    result a = run_one(e, &r), b = {0};
    CHECK(a.n_ids == a.n_generated);
    if (a.reason == MTX_DONE_LENGTH) {
      memcpy(ids + 1, a.ids, (size_t)a.n_ids * sizeof *ids);
      r.n_tokens = 1 + a.n_ids, r.max_tokens = 100, r.rest = a.stop, r.n_rest = strlen(a.stop);
      b = run_one(e, &r);
      CHECK(b.reason == MTX_DONE_STOP_STRING && !strcmp(b.stop, stop), "cut %d: %d '%s'", cut, b.reason, b.text);
    } else {
      CHECK(a.reason == MTX_DONE_STOP_STRING && cut > 4);
    }
    strcat(a.text, b.text);
    CHECK(!strcmp(a.text, "lo, "), "cut %d: '%s' + '%s'", cut, a.text, b.text);
  }
  for (int cut = 1; cut < 5; cut++) {  // one byte a token
    int32_t ids[64] = {emoji};
    mtx_request r = ask(ids, 1, cut);
    r.resumable = true;
    result a = run_one(e, &r);
    memcpy(ids + 1, a.ids, (size_t)a.n_ids * sizeof *ids);
    CHECK(a.reason == MTX_DONE_LENGTH && strlen(a.stop) == (size_t)(cut < 4 ? cut : 0), "cut %d: '%s'", cut, a.stop);
    r.n_tokens = 1 + a.n_ids, r.max_tokens = 100, r.rest = a.stop, r.n_rest = strlen(a.stop);
    result b = run_one(e, &r);
    strcat(a.text, b.text);
    CHECK(!strcmp(a.text, "\xf0\x9f\x98\x80!"), "cut %d: '%s'", cut, a.text);
  }
  check_idle(e);
  mtx_engine_close(e);
}

static void test_banned(const fixture *f, int hello) {
  mtx_engine *e;
  mtx_engine_opts o = {.n_ctx = 512, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  int32_t p = hello;
  mtx_request r = ask(&p, 1, 20);
  const char *ban = "world";
  size_t len = 5;
  r.bans = &ban, r.ban_lens = &len, r.n_bans = 1;
  result x = run_one(e, &r);
  CHECK(!strstr(x.text, "world") && !strncmp(x.text, "lo,", 3), "'%s'", x.text);
  char joined[4096] = "";
  for (int i = 0; i < x.n_ids; i++) {
    const char *s;
    size_t n;
    if (mtx_tok_piece(f->tok, x.ids[i], false, &s, &n)) strncat(joined, s, n);
  }
  CHECK(!strcmp(joined, x.text) && x.n_ids == x.n_generated, "ids say '%s', text '%s'", joined, x.text);
  r.logprobs = 1;
  int64_t id;
  mtx_err err;
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_EUNSUPPORTED && !strcmp(err.key, "banned_strings"));
  check_idle(e);
  mtx_engine_close(e);
}

static void test_logprobs_and_grammar(const fixture *f, int hello) {
  mtx_engine *e;
  mtx_err err = {0};
  mtx_engine_opts o = {.n_ctx = 512, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  int32_t p = hello;
  mtx_request r = ask(&p, 1, 4);
  r.logprobs = 2;
  result x = run_one(e, &r);
  double want = -log(1 + (CHAIN_DIM - 1) * exp(-20.0));
  CHECK(x.n_lp == 4 && fabs(x.lp[0] - want) < 1e-6 && x.lp_id[0] == x.ids[0] && x.top_id[0] == x.ids[0], "%g", x.lp[0]);
  int32_t prompt[3] = {hello, hello + 1, hello + 3};
  r = ask(prompt, 3, 1);
  r.prompt_logprobs = 0;
  x = run_one(e, &r);
  CHECK(x.n_prompt_lp == 2);

  mtx_vocab_trie *trie = fixture_trie(f);
  mtx_grammar *g;
  static const char gbnf[] = "root ::= \"x\" \"ok\"+ \"!\"";
  CHECK(mtx_grammar_compile_gbnf(gbnf, strlen(gbnf), &g, &err) == MTX_OK, "%s", err.msg);
  r = ask(&p, 1, 40);
  CHECK(mtx_matcher_new(g, trie, NULL, &r.matcher, &err) == MTX_OK, "%s", err.msg);
  x = run_one(e, &r);
  CHECK(!strcmp(x.text, "xok!") && x.reason == MTX_DONE_STOP, "'%s' %s", x.text, x.message);

  // A grammar that allows only what logit_bias bans: this request ends with an error, others go on.
  static const char only[] = "root ::= \"ok\"";
  mtx_grammar_unref(g);
  CHECK(mtx_grammar_compile_gbnf(only, strlen(only), &g, &err) == MTX_OK, "%s", err.msg);
  mtx_sampler_opts so;
  mtx_sampler_opts_init(&so);
  mtx_logit_bias bias[CHAIN_DIM];
  for (int i = 0; i < CHAIN_DIM; i++) bias[i] = (mtx_logit_bias){i, -INFINITY, 0};
  so.logit_bias = bias;
  so.n_logit_bias = CHAIN_DIM;
  r = ask(&p, 1, 40);
  mtx_request good = r;
  CHECK(mtx_matcher_new(g, trie, NULL, &r.matcher, &err) == MTX_OK);
  r.sampler = &so;
  int64_t id, id2;
  static result two[2];
  memset(two, 0, sizeof two);
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_OK && mtx_engine_submit(e, &good, &id2, &err) == MTX_OK);
  finish(e, two, id, 2);
  CHECK(two[0].reason == MTX_DONE_ERROR && !strcmp(two[0].code, "numeric") && two[0].message[0]);
  CHECK(two[1].reason == MTX_DONE_STOP && !strcmp(two[1].text, "lo, world. END of it"));
  mtx_grammar_unref(g);
  mtx_vocab_trie_unref(trie);
  check_idle(e);
  mtx_engine_close(e);
}

// Guidance: scale 1 is off, byte for byte; scale 0 follows the other prompt alone; a
// banned string takes tokens back from both; cancelling and errors end both.
static void test_guidance(const fixture *f, int hello, int loop) {
  mtx_engine *e;
  mtx_err err = {0};
  mtx_engine_opts o = {.n_ctx = 64, .n_parallel = 1, .kv_tokens = 256, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  int32_t p = hello, negative[3] = {loop, loop, loop};
  mtx_sampler_opts so;
  mtx_sampler_opts_init(&so);
  so.temperature = 5;
  so.seed = 3;
  mtx_request r = ask(&p, 1, 40);
  r.sampler = &so;
  r.logprobs = 2;
  static result off, on;
  off = run_one(e, &r);
  r.negative = negative, r.n_negative = 3, r.cfg_scale = 1;
  on = run_one(e, &r);
  CHECK(off.n_ids == on.n_ids && !memcmp(off.ids, on.ids, sizeof off.ids) && !memcmp(off.lp, on.lp, sizeof off.lp) && !strcmp(off.text, on.text));

  r = ask(&p, 1, 12);
  r.negative = negative, r.n_negative = 3, r.cfg_scale = 0;
  r.logprobs = 0;
  on = run_one(e, &r);
  CHECK(!strcmp(on.text, "xxxxxxxxxxxx") && on.n_prompt == 1 && on.n_start == 1, "'%s' %s", on.text, on.message);
  CHECK(on.lp[0] < -15, "logprobs are the model's own: %g", on.lp[0]);
  const char *ban = "xxxx";
  size_t len = 4;
  r.logprobs = -1;
  r.bans = &ban, r.ban_lens = &len, r.n_bans = 1;
  r.ignore_eos = true;
  on = run_one(e, &r);
  CHECK(!strstr(on.text, "xxxx") && on.n_ids == 12 && on.n_generated == 12, "'%s' %d", on.text, on.n_ids);

  r = ask(&p, 1, 1000);  // until the longer of the two fills the context
  r.negative = negative, r.n_negative = 3, r.cfg_scale = -0.5;
  r.ignore_eos = true;
  on = run_one(e, &r);
  CHECK(on.reason == MTX_DONE_LENGTH && on.n_generated == 61, "%d", (int)on.n_generated);
  int64_t id;
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_OK);
  mtx_engine_cancel(e, id);
  memset(&on, 0, sizeof on);
  finish(e, &on, id, 1);
  CHECK(on.reason == MTX_DONE_CANCELLED || on.reason == MTX_DONE_LENGTH);
  r.n_negative = 0;
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_EINVAL && !strcmp(err.key, "negative"));
  r.n_negative = 1;
  r.cfg_scale = NAN;
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_EINVAL && !strcmp(err.key, "cfg_scale"));
  check_idle(e);
  mtx_engine_close(e);

  // Pages for one pair only: the second request waits, or ends where it must; none waits for ever.
  o = (mtx_engine_opts){.n_ctx = 256, .n_parallel = 4, .kv_tokens = 256, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  static result x[4];
  memset(x, 0, sizeof x);
  int64_t first = 0;
  r = ask(&p, 1, 70);
  r.negative = negative, r.n_negative = 3, r.cfg_scale = 1.5;
  r.ignore_eos = true;
  for (int i = 0; i < 4; i++) {
    CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_OK);
    first = first ? first : id;
  }
  finish(e, x, first, 4);
  for (int i = 0; i < 4; i++)
    CHECK(x[i].reason == MTX_DONE_LENGTH && x[i].n_generated == 70 && !memcmp(x[i].ids, x[0].ids, 70 * sizeof *x->ids), "%d: %d tokens, %s", i,
          (int)x[i].n_generated, x[i].message);
  check_idle(e);
  mtx_engine_close(e);
}

// The pages end while one of a pair has a row in the step that is being built: the pair
// ends a step later, and whoever gets its pages is not touched by that row.
static void test_guidance_out_of_pages(const fixture *f, int hello, int loop) {
  mtx_engine *e;
  mtx_err err = {0};
  int n_cut = 0;
  for (int n_negative = 1; n_negative <= 40; n_negative += 3) {
    mtx_engine_opts o = {.n_ctx = 96, .n_parallel = 1, .kv_tokens = 96, .kv_type = MTX_KV_F16};
    CHECK(mtx_engine_open(&e, f->model, f->tok, &o, &err) == MTX_OK);
    int32_t p = hello, negative[40];
    for (int i = 0; i < 40; i++) negative[i] = loop;
    mtx_request pair = ask(&p, 1, 90), plain = ask(&p, 1, 40);
    pair.negative = negative, pair.n_negative = n_negative, pair.cfg_scale = 1.5;
    pair.ignore_eos = true;
    static result x[2];
    memset(x, 0, sizeof x);
    int64_t first, id;
    CHECK(mtx_engine_submit(e, &pair, &first, &err) == MTX_OK && mtx_engine_submit(e, &plain, &id, &err) == MTX_OK);
    finish(e, x, first, 2);
    CHECK(x[0].reason == MTX_DONE_LENGTH, "%d: %s", n_negative, x[0].message);
    n_cut += x[0].n_generated < 90;
    CHECK(x[1].reason == MTX_DONE_STOP && !strcmp(x[1].text, "lo, world. END of it"), "%d: '%s' %s", n_negative, x[1].text, x[1].message);
    check_idle(e);
    mtx_engine_close(e);
  }
  CHECK(n_cut == 14, "%d", n_cut);
}

typedef struct { int n_picks, n_closed; int32_t give; bool ban; } hooked;

static mtx_code hook_pick(void *self, float *logits, int32_t n_vocab, const int32_t *history, int64_t n, int32_t *token, mtx_err *err) {
  hooked *h = self;
  h->n_picks++;
  if (h->give == -2) return mtx_fail(err, MTX_EINVAL, "the hook is cross");
  if (h->ban) logits[history[n - 1] + 1] = -INFINITY;  // never the chain's next token
  *token = h->give;
  return MTX_OK;
}

static void hook_close(void *self) { ((hooked *)self)->n_closed++; }

static void test_hook(const fixture *f, int hello, int loop) {
  mtx_engine *e;
  mtx_err err = {0};
  mtx_engine_opts o = {.n_ctx = 64, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  int32_t p = hello;
  hooked h = {.give = loop};
  mtx_request r = ask(&p, 1, 5);
  r.hook = (mtx_token_hook){hook_pick, hook_close, &h};
  result x = run_one(e, &r);
  CHECK(!strcmp(x.text, "xxxxx") && h.n_picks == 5, "'%s'", x.text);
  h.give = -1;
  x = run_one(e, &r);
  CHECK(!strcmp(x.text, "lo, world. END "), "left to the sampler: '%s'", x.text);
  h.ban = true;
  x = run_one(e, &r);
  CHECK(strncmp(x.text, "lo", 2) != 0 && x.reason != MTX_DONE_ERROR, "a changed row counts: '%s'", x.text);
  h.ban = false;
  static result two[2];
  const int32_t bad[] = {-2, 100000, 0};  // fails, no token, the end although ignore_eos
  for (int i = 0; i < 3; i++) {
    h.give = bad[i];
    r.ignore_eos = true;
    memset(two, 0, sizeof two);
    int64_t id, id2;
    mtx_request good = ask(&p, 1, 40);
    CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_OK && mtx_engine_submit(e, &good, &id2, &err) == MTX_OK);
    finish(e, two, id, 2);
    CHECK(two[0].reason == MTX_DONE_ERROR && two[0].message[0] && !strcmp(two[1].text, "lo, world. END of it"), "%d: %s", bad[i], two[0].message);
  }
  int before = h.n_closed;
  int64_t id;
  r.n_tokens = 0;
  CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_EINVAL && h.n_closed == before + 1);
  check_idle(e);
  mtx_engine_close(e);
  CHECK(h.n_closed == 7, "%d", h.n_closed);
}

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

// The prompt's progress: a report after each step that read some of it, up to all of it; those nobody has taken merge.
static void test_progress(const fixture *f, int loop) {
  enum { N = 200, CHUNK = 16 };
  mtx_engine *e;
  mtx_engine_opts o = {.n_ctx = 512, .max_rows = CHUNK, .cache_bytes = 1 << 20, .kv_type = MTX_KV_F16};
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  int32_t prompt[N];
  for (int i = 0; i < N; i++) prompt[i] = loop;
  mtx_request r = ask(prompt, N, 3);
  r.cache_key = "";
  result x = run_one(e, &r);
  CHECK(x.n_progress == 0, "nobody asked");
  prompt[100] = loop - 1;  // what is before is known from the first
  r.progress = true;
  x = run_one(e, &r);
  CHECK(x.n_cached == 100 && x.n_progress >= 1 && x.n_progress <= (N - 100 + CHUNK - 1) / CHUNK, "%d reports, %d cached", x.n_progress, (int)x.n_cached);
  for (int i = 0; i < x.n_progress; i++) CHECK(x.progress[i] > (i ? x.progress[i - 1] : x.n_cached) && x.progress[i] <= N, "report %d: %d", i, (int)x.progress[i]);
  CHECK(x.n_progress && x.progress[x.n_progress - 1] == N);
  CHECK(x.n_ids == 3 && x.n_generated == 3);

  // One row a step: at most a report for each, however fast the reader is.
  prompt[0] = loop - 1;
  r.n_tokens = 40;
  mtx_policy one = {.step_tokens = 1};
  CHECK(mtx_engine_set_policy(e, &one, NULL) == MTX_OK);
  mtx_engine_stats s0, s1;
  mtx_engine_get_stats(e, &s0, true);
  x = run_one(e, &r);
  mtx_engine_get_stats(e, &s1, true);
  CHECK(x.n_progress >= 1 && x.n_progress <= 40 && x.progress[x.n_progress - 1] == 40, "%d reports", x.n_progress);
  CHECK(s1.n_steps - s0.n_steps == 40 + 2, "%d steps", (int)(s1.n_steps - s0.n_steps));
  check_idle(e);
  mtx_engine_close(e);
}

// Seeds give the same tokens whatever runs beside; closing with work in flight is clean.
static void test_seeds(const fixture *f, int hello) {
  mtx_engine *e;
  mtx_engine_opts o = {.n_ctx = 512, .n_parallel = 6, .kv_type = MTX_KV_F16};
  mtx_sampler_opts so;
  mtx_sampler_opts_init(&so);
  so.temperature = 4;
  so.seed = 42;
  int32_t p = hello;
  mtx_request r = ask(&p, 1, 40);
  r.sampler = &so;
  r.ignore_eos = true;
  static result alone, crowd[6];
  CHECK(mtx_engine_open(&e, f->model, f->tok, &o, NULL) == MTX_OK);
  alone = run_one(e, &r);
  memset(crowd, 0, sizeof crowd);
  int64_t id, first = 0;
  for (int i = 0; i < 6; i++) {
    so.seed = i % 2 ? 42 : 100 + (uint64_t)i;
    CHECK(mtx_engine_submit(e, &r, &id, NULL) == MTX_OK);
    first = first ? first : id;
  }
  finish(e, crowd, first, 6);
  for (int i = 0; i < 6; i++) {
    bool same = crowd[i].n_ids == alone.n_ids && !memcmp(crowd[i].ids, alone.ids, (size_t)alone.n_ids * sizeof *alone.ids);
    CHECK(same == (i % 2 == 1), "seed of request %d", i);
  }
  for (int i = 0; i < 6; i++) {
    r.max_tokens = 400;
    CHECK(mtx_engine_submit(e, &r, &id, NULL) == MTX_OK);
  }
  mtx_engine_close(e);
}

#define TIMED(call)                                                     \
  do {                                                                  \
    struct timespec t0, t1;                                             \
    clock_gettime(CLOCK_MONOTONIC, &t0);                                \
    call;                                                               \
    clock_gettime(CLOCK_MONOTONIC, &t1);                                \
    printf("# %s %.2f s\n", #call, (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9); \
  } while (0)

int main(void) {
  mtx_kern_init(MTX_TIER_AMX);
  chain c;
  chain_init(&c);
  int hello = chain_say(&c, "Hello, world. END of it", 3);
  int emoji = chain_say(&c, "?\xf0\x9f\x98\x80!", 1);
  int cut = chain_say(&c, "?", 1);
  int half = chain_add(&c, "\xe2\x82", 2), ok = chain_add(&c, "ok", 2);
  c.succ[cut] = half;
  c.succ[half] = ok;
  int loop = chain_add(&c, "x", 1);
  c.succ[loop] = loop;
  int control = chain_add(&c, "a", 1), b = chain_add(&c, "a", 1);
  c.succ[control] = b;
  c.succ[b] = 1;
  c.succ[1] = chain_add(&c, "b", 1);
  // "Hel" is the prompt; its text does not come back.
  fixture f;
  if (fixture_open(&f, &c)) {
    TIMED(test_text(&f, hello, emoji, cut, loop, control));
    TIMED(test_resumed(&f, hello, emoji));
    TIMED(test_banned(&f, hello));
    TIMED(test_logprobs_and_grammar(&f, hello));
    TIMED(test_guidance(&f, hello, loop));
    TIMED(test_guidance_out_of_pages(&f, hello, loop));
    TIMED(test_hook(&f, hello, loop));
    TIMED(test_limits(&f, hello, loop));
    TIMED(test_cancel(&f, loop));
    TIMED(test_cancel_phases(&f, loop));
    TIMED(test_prefix(&f, hello, loop));
    TIMED(test_pressure(&f, loop));
    TIMED(test_slow_reader(&f, loop));
    TIMED(test_progress(&f, loop));
    TIMED(test_seeds(&f, hello));
  }
  fixture_close(&f);
  return check_report();
}
