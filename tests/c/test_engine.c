// SPDX-License-Identifier: MIT
// The engine with a model that follows a script: text, ends, stop and banned strings, logprobs, hooks, progress, seeds.
#include <math.h>

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

int main(void) {
  mtx_kern_init(MTX_TIER_AMX);
  chain c;
  chain_init(&c);
  int hello = chain_say(&c, "Hello, world. END of it", 3);  // "Hel" is the prompt; its text does not come back
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
  fixture f;
  if (fixture_open(&f, &c)) {
    test_text(&f, hello, emoji, cut, loop, control);
    test_resumed(&f, hello, emoji);
    test_banned(&f, hello);
    test_logprobs_and_grammar(&f, hello);
    test_hook(&f, hello, loop);
    test_progress(&f, loop);
    test_seeds(&f, hello);
  }
  fixture_close(&f);
  return check_report();
}
