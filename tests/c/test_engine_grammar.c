// SPDX-License-Identifier: MIT
// Grammars in the engine, with a model that follows a script: the constraint begins
// after the thought, wherever the tokens cut its closing mark, and stop strings work
// before, across and inside it; with drafts too.
#include "check.h"

#include "chain_fixture.h"
#include "engine_run.h"
#include "kern/kern.h"

#define THOUGHT "Well {\"x\": maybe.</think>"
#define ANSWER "{\"a\":\"one two\"}"
static const char schema[] = "{\"const\":{\"a\":\"one two\"}}";

typedef struct {
  mtx_engine *e;
  mtx_vocab_trie *trie;
  mtx_grammar *g;
} parts;

// Asks from `prompt`, constrained at once or after the trigger, with a stop string or NULL; with drafts from `known` or NULL.
static result answer(const parts *x, int prompt, const char *trigger, const char *stop, const result *known) {
  int32_t p = prompt;
  mtx_err err;
  mtx_request r = ask(&p, 1, 100);
  size_t n_trigger = trigger ? strlen(trigger) : 0, n_stop = stop ? strlen(stop) : 0;
  const mtx_matcher_opts o = {.triggers = &trigger, .trigger_lens = &n_trigger, .n_triggers = trigger != NULL, .skip_ws = trigger != NULL};
  CHECK(mtx_matcher_new(x->g, x->trie, &o, &r.matcher, &err) == MTX_OK, "%s", err.msg);
  if (stop) r.stops = &stop, r.stop_lens = &n_stop, r.n_stops = 1;
  if (known) r.draft = (mtx_draft_opts){.max = 5, .min_match = 1, .fixed = true}, r.reference = known->ids, r.n_reference = known->n_ids;
  return run_one(x->e, &r);
}

static void check_answer(const parts *t, int prompt, const char *trigger, const char *stop, const char *want) {
  result x = answer(t, prompt, trigger, stop, NULL), again = answer(t, prompt, trigger, stop, &x);
  const bool stopped = stop && x.reason == MTX_DONE_STOP_STRING && !strcmp(x.stop, stop);
  CHECK(!strcmp(x.text, want), "trigger %s, stop %s: '%s'", trigger ? trigger : "-", stop ? stop : "-", x.text);
  CHECK(stop ? stopped : x.reason == MTX_DONE_STOP, "trigger %s, stop %s: %d", trigger ? trigger : "-", stop ? stop : "-", x.reason);
  CHECK(!strcmp(again.text, want) && again.reason == x.reason && again.n_draft_accepted > 1, "with drafts: '%s', %d accepted", again.text, (int)again.n_draft_accepted);
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
    parts t = {.trie = fixture_trie(&f)};
    mtx_err err = {0};
    mtx_engine_opts o = {.n_ctx = 512, .kv_type = MTX_KV_F16};
    CHECK(!mtx_vocab_trie_warm(t.trie, &err) && !mtx_grammar_compile_json_schema(schema, strlen(schema), NULL, &t.g, &err) &&
              !mtx_engine_open(&t.e, f.model, f.tok, &o, &err), "%s", err.msg);
    for (int i = 0; i < 3; i++) {
      check_answer(&t, prompt[i], NULL, NULL, ANSWER);
      check_answer(&t, prompt[i], "</think>", NULL, THOUGHT ANSWER);
      check_answer(&t, prompt[i], "</think>", "two", THOUGHT "{\"a\":\"one ");
      check_answer(&t, prompt[i], "</think>", "maybe", "Well {\"x\": ");
      check_answer(&t, prompt[i], "</think>", "ink>{", "Well {\"x\": maybe.</th");
      check_answer(&t, prompt[i], NULL, "e t", "{\"a\":\"on");
      check_answer(&t, prompt[i], NULL, "\"}", "{\"a\":\"one two");
    }
    check_idle(t.e);
    mtx_engine_close(t.e);
    mtx_grammar_unref(t.g);
    mtx_vocab_trie_unref(t.trie);
  }
  fixture_close(&f);
  return check_report();
}
