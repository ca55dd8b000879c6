// SPDX-License-Identifier: MIT
// Turns of a chat through the prefix index: the next turn, an edited turn and a
// rewritten reply take nearly all of their prompt from the cache whatever kind of
// memory the model has, and say bit for bit what a cold engine says, alone and in a
// full batch.
#include "check.h"

#include <time.h>

#include "engine_run.h"
#include "golden_open.h"
#include "kern/kern.h"

enum { OPEN = 1, CLOSE = 2, MAX = 3000, NEW = 12, N_CHATS = 5 };  // <s> and </s> frame a turn; both are control tokens

typedef struct { int32_t t[MAX]; int n; } chat;

static uint64_t rng_state;
static void say(chat *c, int32_t role, int n) {
  c->t[c->n++] = OPEN;
  c->t[c->n++] = role;
  for (int i = 0; i < n; i++) {
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    c->t[c->n++] = (int32_t)(4 + (rng_state >> 33) % 120);
  }
  c->t[c->n++] = CLOSE;
}

static void open_reply(chat *c, int32_t role) {
  c->t[c->n++] = OPEN;
  c->t[c->n++] = role;
  c->t[c->n++] = 3;
}

static mtx_request ask_chat(const chat *c, const char *key) {
  mtx_request r = ask(c->t, c->n, NEW);
  r.ignore_eos = true;
  r.logprobs = 0;
  r.cache_key = key;
  return r;
}

static bool equal(const result *a, const result *b) {
  return a->reason == MTX_DONE_LENGTH && b->reason == a->reason && a->n_ids == b->n_ids && a->n_lp == b->n_lp && a->n_lp == NEW &&
         !memcmp(a->ids, b->ids, (size_t)a->n_ids * sizeof *a->ids) && !memcmp(a->lp, b->lp, (size_t)a->n_lp * sizeof *a->lp);
}

static mtx_engine *cold, *warm;

// Asks both engines; the warm one has to take `share` of the prompt from its cache.
static result compare(const char *what, const chat *c, double share) {
  mtx_request r = ask_chat(c, NULL);
  result want = run_one(cold, &r);
  r.cache_key = "k";
  result got = run_one(warm, &r);
  CHECK(equal(&got, &want), "%s: not what a cold engine says", what);
  CHECK((double)got.n_cached >= share * c->n, "%s: %d of %d tokens from the cache", what, (int)got.n_cached, c->n);
  return got;
}

static void turns(const char *name) {
  static chat base, first, next, edited, rewritten, batch[N_CHATS];
  char what[64];
#define NAMED(x) (snprintf(what, sizeof what, "%s, %s", name, x), what)
  memset(&base, 0, sizeof base);
  while (base.n < 1750) say(&base, base.n % 2 ? 5 : 6, 90);
  first = edited = base;
  say(&first, 5, 150);
  rewritten = first;
  open_reply(&first, 6);
  result x = compare(NAMED("first turn"), &first, 0);
  CHECK(x.n_cached == 0);

  next = first;
  for (int i = 0; i < x.n_ids; i++) next.t[next.n++] = x.ids[i];
  next.t[next.n++] = CLOSE;
  say(&next, 5, 60);
  open_reply(&next, 6);
  compare(NAMED("next turn"), &next, 0.9);
  compare(NAMED("the same again"), &next, 0.9);

  say(&edited, 5, 120);
  open_reply(&edited, 6);
  compare(NAMED("last turn edited"), &edited, 0.9);

  say(&rewritten, 6, 30);  // the reply comes back without what its prompt began with
  say(&rewritten, 5, 20);
  open_reply(&rewritten, 6);
  compare(NAMED("reply rewritten"), &rewritten, 0.9);

  // All at once, with their answers known from the cold engine.
  static result want[N_CHATS], got[N_CHATS];
  memset(got, 0, sizeof got);
  int64_t first_id = 0, id;
  for (int i = 0; i < N_CHATS; i++) {
    batch[i] = i % 2 ? edited : next;
    say(&batch[i], 5, 10 + 7 * i);
    open_reply(&batch[i], 6);
    mtx_request r = ask_chat(&batch[i], NULL);
    want[i] = run_one(cold, &r);
  }
  for (int i = 0; i < N_CHATS; i++) {
    mtx_request r = ask_chat(&batch[i], "k");
    CHECK(mtx_engine_submit(warm, &r, &id, NULL) == MTX_OK);
    if (!i) first_id = id;
  }
  finish(warm, got, first_id, N_CHATS);
  for (int i = 0; i < N_CHATS; i++) {
    CHECK(equal(&got[i], &want[i]), "%s, chat %d of a batch", name, i);
    CHECK((double)got[i].n_cached >= 0.9 * batch[i].n, "%s, chat %d of a batch: %d of %d", name, i, (int)got[i].n_cached, batch[i].n);
  }
}

int main(void) {
  static const char *const names[] = {"llama", "gemma3", "mamba2", "qwen35"};  // plain, windows, recurrent, hybrid
  int n_models;
  golden_model *models = golden_arch_models(&n_models);
  mtx_kern_init(MTX_TIER_AMX);
  for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
    mtx_model *model = NULL;
    mtx_tok *tok = NULL;
    mtx_err err;
    bool ok = golden_open(models, n_models, names[k], &model, &tok, &err);
    mtx_engine_opts o = {.n_ctx = MAX, .n_parallel = N_CHATS, .n_threads = 1, .kv_type = MTX_KV_F16};
    ok = ok && !mtx_engine_open(&cold, model, tok, &o, &err);
    o.cache_bytes = 64 << 20;
    ok = ok && !mtx_engine_open(&warm, model, tok, &o, &err);
    CHECK(ok, "%s: %s %s", names[k], err.key, err.msg);
    if (!ok) continue;
    rng_state = k + 1;
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    turns(names[k]);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    printf("# %s: %.1f s\n", names[k], (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec));
    check_idle(cold);
    check_idle(warm);
    mtx_engine_close(cold);
    mtx_engine_close(warm);
    mtx_tok_close(tok);
    mtx_model_close(model);
  }
  golden_arch_free(models, n_models);
  return check_report();
}
