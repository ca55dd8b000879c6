// SPDX-License-Identifier: MIT
// Guidance (a second, negative prompt beside the request's own) in an engine whose model follows a script.
#include "chain_fixture.h"
#include "engine_run.h"
#include "kern/kern.h"

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

int main(void) {
  mtx_kern_init(MTX_TIER_AMX);
  fixture f;
  int hello, loop;
  if (fixture_open_hello(&f, &hello, &loop)) {
    test_guidance(&f, hello, loop);
    test_guidance_out_of_pages(&f, hello, loop);
  }
  fixture_close(&f);
  return check_report();
}
