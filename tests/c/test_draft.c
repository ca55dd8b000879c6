// SPDX-License-Identifier: MIT
// Drafts: the index finds what a search of everything finds, whatever is added and taken back; and a request
// with drafts gives what it gives without them, byte for byte, whatever the sampler, alone and in a batch,
// and leaves the same in the prefix cache.
#include "check.h"

#include <math.h>

#include "engine_run.h"
#include "engine/draft.h"
#include "golden_open.h"
#include "kern/kern.h"

static uint64_t rng = 0x9E3779B97F4A7C15u;
static int below(int n) {
  rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
  return (int)((rng >> 20) % (uint64_t)n);
}

// ---- the index --------------------------------------------------------------------------

enum { TEXT = 400 };

// How long the text up to before[end] and the whole text agree at their ends.
static int agree(const int32_t *text, int n, int end) {
  int k = 0;
  while (k < 64 && k <= end && text[end - k] == text[n - 1 - k] && text[end - k] >= 0) k++;
  return k;
}

static void check_guess(mtx_draft *d, const int32_t *text, int n, int min_match) {
  int32_t ids[MTX_DRAFT_MOST];
  double p[MTX_DRAFT_MOST];
  int got = mtx_draft_guess(d, ids, p, MTX_DRAFT_MOST), longest = 0;
  for (int end = 0; end < n - 1; end++)
    if (text[end + 1] >= 0 && agree(text, n, end) > longest) longest = agree(text, n, end);
  CHECK((got > 0) == (longest >= min_match), "%d tokens: a draft of %d, the longest match is %d", n, got, longest);
  if (!got) return;
  bool found = false;  // it goes on from one of the longest
  for (int end = 0; end < n - 1 && !found; end++) {
    if (text[end + 1] < 0 || agree(text, n, end) < longest) continue;
    found = true;
    for (int j = 0; j < got; j++) found &= ids[j] == (end + 1 + j < n ? text[end + 1 + j] : ids[end + 1 + j - n]);
  }
  CHECK(found, "%d tokens, longest match %d", n, longest);
  for (int j = 0; j < got; j++) CHECK(p[j] > 0 && p[j] <= (j ? p[j - 1] : 1));
}

static void test_index(void) {
  for (int round = 0; round < 60; round++) {
    // Many symbols: few places to look at, so that the index, which looks at the latest ones, finds what there is.
    int min_match = 1 + below(3), n_symbols = min_match == 1 ? 200 : min_match == 2 ? 14 : 7, n = 0, n_ref = below(2) ? below(40) : 0;
    int32_t text[TEXT];
    for (; n < n_ref; n++) text[n] = below(n_symbols);
    mtx_draft *d;
    mtx_draft_opts o = {.max = MTX_DRAFT_MOST, .min_match = min_match};
    CHECK(!mtx_draft_open(&d, &o, TEXT, text, n_ref, NULL));
    if (n_ref) text[n++] = -1;
    int base = n;
    for (int op = 0; op < 300 && n < TEXT - 1; op++) {
      int what = below(12);
      if (what == 0) {
        int keep = n - base - below((n - base < 12 ? n - base : 12) + 1);
        mtx_draft_cut(d, keep);
        n = base + keep;
      } else if (what == 1) {
        int more = below(TEXT - n < 9 ? TEXT - n : 9);
        for (int i = 0; i < more; i++) text[n + i] = below(n_symbols);
        CHECK(!mtx_draft_read(d, text + n, more, NULL));
        n += more;
      } else {
        text[n] = below(3) && n > 20 && text[n - 17] >= 0 ? text[n - 17] : below(n_symbols);
        CHECK(!mtx_draft_add(d, text[n++], NULL));
      }
      check_guess(d, text, n, min_match);
    }
    mtx_draft_close(d);
  }
}

static void test_shares(void) {
  mtx_draft *d;
  int32_t ids[4], text[64];
  double often[4], seldom[4];
  mtx_draft_opts o = {.max = 4, .min_match = 2};
  CHECK(!mtx_draft_open(&d, &o, 4096, NULL, 0, NULL));
  for (int i = 0; i < 200; i++) CHECK(!mtx_draft_add(d, i % 5, NULL));
  CHECK(mtx_draft_guess(d, ids, often, 4) == 4 && often[3] > 0.9 && ids[0] == 0 && ids[3] == 3);
  mtx_draft_close(d);
  CHECK(!mtx_draft_open(&d, &o, 4096, NULL, 0, NULL));
  for (int i = 0; i < 200; i++) CHECK(!mtx_draft_add(d, i % 3 == 2 ? 1000 + i : i % 3, NULL));  // what follows is always another
  CHECK(!mtx_draft_add(d, 0, NULL) && !mtx_draft_add(d, 1, NULL));
  CHECK(mtx_draft_guess(d, ids, seldom, 4) > 0 && seldom[0] < 0.05, "%g", seldom[0]);
  mtx_draft_close(d);
  for (int i = 0; i < 64; i++) text[i] = i;
  CHECK(!mtx_draft_open(&d, &o, 64, text, 64, NULL));  // nothing matches across the end of the reference
  CHECK(!mtx_draft_add(d, 62, NULL) && !mtx_draft_add(d, 63, NULL) && mtx_draft_guess(d, ids, often, 4) == 0);
  mtx_draft_close(d);
  mtx_err err;
  o.max = MTX_DRAFT_MOST + 1;
  CHECK(mtx_draft_open(&d, &o, 64, NULL, 0, &err) == MTX_EINVAL && !d && !strcmp(err.key, "draft.max"));
  o = (mtx_draft_opts){.max = 4};
  CHECK(mtx_draft_open(&d, &o, 64, NULL, 0, &err) == MTX_EINVAL && !d && !strcmp(err.key, "draft.min_match"));
}

// ---- requests ---------------------------------------------------------------------------

enum { N_PROMPT = 40, N_NEW = 48, N_KINDS = 14 };

typedef struct { mtx_model *model; mtx_tok *tok; int n_vocab; } world;

// A token function of somebody's own: changes the row, and sometimes chooses.
static mtx_code pick(void *self, float *logits, int32_t n_vocab, const int32_t *history, int64_t n, int32_t *token, mtx_err *err) {
  logits[(history[n - 1] * 7 + 3) % n_vocab] += 2;
  int32_t best = 0;
  if (n % 3) return MTX_OK;
  for (int32_t i = 1; i < n_vocab; i++)
    if (logits[i] > logits[best]) best = i;
  *token = best;
  return MTX_OK;
}
static void no_close(void *self) {}

// Request of a kind: each has a sampler whose state or text rules a draft could upset. prior: what the kind without
// its rule said, for strings that occur.
static mtx_request kind_of(const world *w, int kind, const int32_t *prompt, mtx_sampler_opts *s, const result *prior) {
  static const char *strings[2];
  static size_t lens[2];
  static const int32_t breakers[] = {3, 5};
  mtx_sampler_opts_init(s);
  s->seed = 4711 + (uint64_t)kind;
  mtx_request r;
  mtx_request_init(&r);
  r.tokens = prompt, r.n_tokens = N_PROMPT, r.max_tokens = N_NEW, r.sampler = s, r.ignore_eos = kind != 1, r.cache_key = "k";
  switch (kind) {
    case 0: s->temperature = 0; break;
    case 1: s->temperature = 0.5; break;
    case 2: s->repeat_penalty = 1.3, s->frequency_penalty = 0.4, s->temperature = 0.7; break;
    case 3: s->dry_multiplier = 0.8, s->dry_breakers = breakers, s->n_dry_breakers = 2; break;
    case 4: s->mirostat = 1; break;
    case 5: s->mirostat = 2; break;
    case 6: s->xtc_probability = 0.5, s->top_k = 20; break;
    case 7: s->adaptive_target = 0.4; break;
    case 8: s->dynatemp_range = 0.5, s->typical_p = 0.9, s->top_p = 0.95; break;
    case 9: r.logprobs = 3; break;
    case 10: r.hook = (mtx_token_hook){pick, no_close, NULL}; break;
    default: break;
  }
  if (kind < 11 || !prior) return r;
  // The middle of what was said, as a stop or banned string; the last kind bans more of it.
  for (int i = 0; i < 2; i++) {
    strings[i] = prior->text + prior->n_text / 2 + i * 3;
    lens[i] = (size_t)(2 + i);
  }
  if (kind == 11) r.stops = strings, r.stop_lens = lens, r.n_stops = 1;
  else r.bans = strings, r.ban_lens = lens, r.n_bans = kind - 11;
  return r;
}

static bool same(const result *a, const result *b) {
  return a->n_ids == b->n_ids && !memcmp(a->ids, b->ids, (size_t)a->n_ids * sizeof *a->ids) && a->n_text == b->n_text && !memcmp(a->text, b->text, (size_t)a->n_text) &&
         a->reason == b->reason && !strcmp(a->stop, b->stop) && a->n_generated == b->n_generated && a->n_lp == b->n_lp &&
         !memcmp(a->lp, b->lp, sizeof a->lp) && !memcmp(a->top_id, b->top_id, sizeof a->top_id) && a->n_start == 1 && b->n_start == 1;
}

static mtx_engine *engine(const world *w) {
  mtx_engine *e;
  mtx_err err = {0};
  mtx_engine_opts o = {.n_ctx = 256, .n_parallel = 4, .kv_type = MTX_KV_F16, .cache_bytes = 8 << 20, .n_threads = 1};
  CHECK(!mtx_engine_open(&e, w->model, w->tok, &o, &err), "%s", err.msg);
  return e;
}

// What the same prompt and the reply's first half find in the cache: how much of it, and that it is sound.
static result follow_up(mtx_engine *e, const int32_t *prompt, const result *x) {
  int32_t ids[N_PROMPT + N_NEW + 1];
  int n = N_PROMPT + x->n_ids;
  memcpy(ids, prompt, N_PROMPT * sizeof *ids);
  memcpy(ids + N_PROMPT, x->ids, (size_t)x->n_ids * sizeof *ids);
  ids[n] = 1;
  mtx_request r = ask(ids, n + 1, 6);
  r.cache_key = "k", r.ignore_eos = true;
  return run_one(e, &r);
}

static void test_requests(const char *name, const world *w) {
  int64_t n_accepted = 0;
  for (int kind = 0; kind < N_KINDS; kind++) {
    int32_t prompt[N_PROMPT], likely[N_PROMPT + N_NEW];
    mtx_sampler_opts s;
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = below(w->n_vocab);
    mtx_engine *e = engine(w);
    mtx_request r = kind_of(w, kind, prompt, &s, NULL);
    result prior = run_one(e, &r), plain = prior, plain_next;
    if (kind >= 11) {
      r = kind_of(w, kind, prompt, &s, &prior);
      plain = run_one(e, &r);
    }
    mtx_engine_close(e);
    e = engine(w);
    plain = run_one(e, &r);
    plain_next = follow_up(e, prompt, &plain);
    mtx_engine_close(e);
    for (int try = 0; try < 6; try++) {
      e = engine(w);
      memcpy(likely, prompt, sizeof prompt);
      memcpy(likely + N_PROMPT, plain.ids, (size_t)plain.n_ids * sizeof *likely);
      for (int i = 0; i < plain.n_ids && try; i++)
        if (!below(try < 4 ? 9 : 3)) likely[N_PROMPT + i] = below(w->n_vocab);
      r.draft = (mtx_draft_opts){.max = 1 + below(MTX_DRAFT_MOST), .min_match = 1 + below(2), .fixed = try != 5};
      r.reference = likely, r.n_reference = N_PROMPT + plain.n_ids;
      result x = run_one(e, &r), next = follow_up(e, prompt, &x);
      n_accepted += x.n_draft_accepted;
      CHECK(same(&x, &plain), "%s, kind %d, drafts of %d: '%.*s' (%d tokens), without '%.*s' (%d)", name, kind, r.draft.max, x.n_text, x.text, x.n_ids, plain.n_text,
            plain.text, plain.n_ids);
      CHECK(same(&next, &plain_next) && next.n_cached == plain_next.n_cached, "%s, kind %d: %d tokens cached afterwards, without drafts %d", name, kind,
            (int)next.n_cached, (int)plain_next.n_cached);
      check_idle(e);
      mtx_engine_close(e);
    }
  }
  CHECK(n_accepted > 500, "%s: %d drafted tokens accepted", name, (int)n_accepted);
}

// All kinds at once, more than run together, with drafts and without; in the end the same, and fewer steps.
static void test_batch(const char *name, const world *w) {
  int32_t prompt[N_KINDS][N_PROMPT], likely[N_KINDS][N_PROMPT + N_NEW];
  mtx_sampler_opts s;
  static result plain[N_KINDS], drafted[N_KINDS];
  memset(plain, 0, sizeof plain);
  memset(drafted, 0, sizeof drafted);
  for (int round = 0; round < 2; round++) {
    mtx_engine *e = engine(w);
    int64_t first = 0, id;
    for (int k = 0; k < N_KINDS; k++) {
      for (int i = 0; i < N_PROMPT && !round; i++) prompt[k][i] = below(w->n_vocab);
      mtx_request r = kind_of(w, k, prompt[k], &s, NULL);
      if (round && k % 3) {
        memcpy(likely[k], prompt[k], sizeof prompt[k]);
        memcpy(likely[k] + N_PROMPT, plain[k].ids, (size_t)plain[k].n_ids * sizeof(int32_t));
        r.draft = (mtx_draft_opts){.max = 6, .min_match = 2, .fixed = true};
        r.reference = likely[k], r.n_reference = N_PROMPT + plain[k].n_ids;
      }
      CHECK(!mtx_engine_submit(e, &r, &id, NULL));
      if (!k) first = id;
    }
    finish(e, round ? drafted : plain, first, N_KINDS);
    mtx_engine_stats st;
    mtx_engine_get_stats(e, &st, true);
    CHECK(st.kv_ok && (round ? st.n_accepted_tokens > 50 && st.n_drafted_tokens >= st.n_accepted_tokens : !st.n_drafted_tokens), "%s: %lld of %lld drafted tokens accepted",
          name, (long long)st.n_accepted_tokens, (long long)st.n_drafted_tokens);
    mtx_engine_close(e);
  }
  for (int k = 0; k < N_KINDS; k++) CHECK(same(&plain[k], &drafted[k]), "%s: request %d of a batch differs", name, k);
}

static void test_refused(const world *w, bool recurrent) {
  mtx_engine *e = engine(w);
  int32_t prompt[2] = {1, 2};
  int64_t id;
  mtx_err err = {0};
  mtx_request r = ask(prompt, 2, 4);
  r.draft = (mtx_draft_opts){.max = 4, .min_match = 2};
  mtx_code rc = mtx_engine_submit(e, &r, &id, &err);
  CHECK(rc == (recurrent ? MTX_EUNSUPPORTED : MTX_OK), "%s", err.msg);
  if (!recurrent) {
    r.cfg_scale = 2, r.negative = prompt, r.n_negative = 1;
    CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_EUNSUPPORTED && !strcmp(err.key, "draft"));
    r.cfg_scale = 1;
    int32_t wild = w->n_vocab;
    r.reference = &wild, r.n_reference = 1;
    CHECK(mtx_engine_submit(e, &r, &id, &err) == MTX_EINVAL && !strcmp(err.key, "reference"));
  }
  mtx_engine_close(e);
}

int main(void) {
  static const char *const kinds[] = {"llama", "gemma3", "mamba2"};  // plain, windows, recurrent
  int n_models;
  golden_model *models = golden_arch_models(&n_models);
  mtx_kern_init(MTX_TIER_AMX);
  test_index();
  test_shares();
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    world w;
    mtx_err err;
    bool ok = golden_open(models, n_models, kinds[k], &w.model, &w.tok, &err);
    CHECK(ok, "%s: %s", kinds[k], err.msg);
    if (!ok) continue;
    w.n_vocab = mtx_model_get_info(w.model)->n_vocab;
    bool recurrent = mtx_model_get_info(w.model)->recurrent;
    test_refused(&w, recurrent);
    if (!recurrent) test_requests(kinds[k], &w), test_batch(kinds[k], &w);
    mtx_tok_close(w.tok);
    mtx_model_close(w.model);
  }
  golden_arch_free(models, n_models);
  return check_report();
}
