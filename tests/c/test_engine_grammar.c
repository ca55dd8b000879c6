// SPDX-License-Identifier: MIT
// Grammars in the engine, with a model that follows a script: the constraint begins
// after the thought, wherever the tokens cut its closing mark, and stop strings work
// before, across and inside it.
#include "check.h"

#include <math.h>

#include "chain_model.h"
#include "engine_run.h"
#include "kern/kern.h"

#define THOUGHT "Well {\"x\": maybe.</think>"
#define ANSWER "{\"a\":\"one two\"}"
static const char schema[] = "{\"const\":{\"a\":\"one two\"}}";

typedef struct {
  mtx_model *model;
  mtx_tok *tok;
  mtx_vocab_trie *trie;
  mtx_grammar *grammar;
  char path[40];
} fixture;

static bool fixture_open(fixture *f, const chain *c) {
  mtx_err err = {0};
  mtx_gguf *g;
  memset(f, 0, sizeof *f);
  if (!chain_write(c, f->path)) return false;
  mtx_code rc = mtx_model_open(&f->model, f->path, NULL, &err);
  if (!rc && !(rc = mtx_gguf_open(&g, f->path, 0, &err))) {
    rc = mtx_tok_open(&f->tok, g, &err);
    mtx_gguf_close(g);
  }
  const char *pieces[CHAIN_DIM];
  uint32_t lens[CHAIN_DIM];
  uint8_t flags[CHAIN_DIM] = {0};
  for (int i = 0; !rc && i < CHAIN_DIM; i++) {
    size_t n;
    if (!mtx_tok_piece(f->tok, i, false, &pieces[i], &n)) n = 0;
    lens[i] = (uint32_t)n;
    flags[i] = mtx_tok_is_eog(f->tok, i) ? MTX_TRIE_EOG : 0;
  }
  if (!rc) rc = mtx_vocab_trie_new(pieces, lens, flags, CHAIN_DIM, &f->trie, &err);
  if (!rc) rc = mtx_vocab_trie_warm(f->trie, &err);
  if (!rc) rc = mtx_grammar_compile_json_schema(schema, strlen(schema), NULL, &f->grammar, &err);
  CHECK(rc == MTX_OK, "%s %s", err.key, err.msg);
  return rc == MTX_OK;
}

static void fixture_close(fixture *f) {
  mtx_grammar_unref(f->grammar);
  mtx_vocab_trie_unref(f->trie);
  mtx_tok_close(f->tok);
  mtx_model_close(f->model);
  unlink(f->path);
}

// Asks from `prompt`, constrained at once or after the trigger, with a stop string or NULL.
static result answer(const fixture *f, mtx_engine *e, int prompt, const char *trigger, const char *stop) {
  int32_t p = prompt;
  mtx_err err;
  mtx_request r = ask(&p, 1, 100);
  size_t n_trigger = trigger ? strlen(trigger) : 0, n_stop = stop ? strlen(stop) : 0;
  const mtx_matcher_opts o = {.triggers = &trigger, .trigger_lens = &n_trigger, .n_triggers = trigger != NULL, .skip_ws = trigger != NULL};
  CHECK(mtx_matcher_new(f->grammar, f->trie, &o, &r.matcher, &err) == MTX_OK, "%s", err.msg);
  if (stop) r.stops = &stop, r.stop_lens = &n_stop, r.n_stops = 1;
  return run_one(e, &r);
}

static void check_answer(const fixture *f, mtx_engine *e, int prompt, const char *trigger, const char *stop, const char *want) {
  result x = answer(f, e, prompt, trigger, stop);
  const bool stopped = stop && x.reason == MTX_DONE_STOP_STRING && !strcmp(x.stop, stop);
  CHECK(!strcmp(x.text, want), "trigger %s, stop %s: '%s'", trigger ? trigger : "-", stop ? stop : "-", x.text);
  CHECK(stop ? stopped : x.reason == MTX_DONE_STOP, "trigger %s, stop %s: %d", trigger ? trigger : "-", stop ? stop : "-", x.reason);
}

int main(void) {
  mtx_kern_init(MTX_TIER_AMX);
  chain c;
  chain_init(&c);
  int prompt[3];
  for (int i = 0; i < 3; i++) {  // pieces of 2, 3 and 4 bytes cut the closing mark elsewhere each
    prompt[i] = chain_add(&c, "?", 1);
    c.succ[prompt[i]] = chain_say(&c, THOUGHT ANSWER, i + 2);
  }
  for (const char *s = ANSWER; *s; s++) chain_add(&c, s, 1);  // what a constrained start needs
  fixture f;
  if (fixture_open(&f, &c)) {
    mtx_engine *e;
    mtx_engine_opts o = {.n_ctx = 512, .kv_type = MTX_KV_F16};
    CHECK(mtx_engine_open(&e, f.model, f.tok, &o, NULL) == MTX_OK);
    for (int i = 0; i < 3; i++) {
      check_answer(&f, e, prompt[i], NULL, NULL, ANSWER);
      check_answer(&f, e, prompt[i], "</think>", NULL, THOUGHT ANSWER);
      check_answer(&f, e, prompt[i], "</think>", "two", THOUGHT "{\"a\":\"one ");
      check_answer(&f, e, prompt[i], "</think>", "maybe", "Well {\"x\": ");
      check_answer(&f, e, prompt[i], "</think>", "ink>{", "Well {\"x\": maybe.</th");
      check_answer(&f, e, prompt[i], NULL, "e t", "{\"a\":\"on");
      check_answer(&f, e, prompt[i], NULL, "\"}", "{\"a\":\"one two");
    }
    check_idle(e);
    mtx_engine_close(e);
  }
  fixture_close(&f);
  return check_report();
}
