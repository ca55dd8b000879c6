// SPDX-License-Identifier: MIT
// The same promise through the engine (test_interleave.c has the steps below it):
// a thousand random scenarios of submit, cancel, eval, fork and rewind from two
// threads, over batch sizes, chunk sizes, policies, page pressure and prefix reuse,
// give logits bit-identical to each sequence evaluated alone, the tokens that its
// seed gives alone (with guidance or drafts too), and no page is lost.
#include "check.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

#include "engine/engine.h"
#include "golden_open.h"
#include "kern/kern.h"

enum { N_CTX = 160, MAX_SESSIONS = 4, N_REQUESTS = 4, MAX_NEW = 12 };

typedef struct { uint64_t s; } rng;
static uint32_t rnd(rng *r, uint32_t n) {
  r->s = r->s * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(r->s >> 33) % n;
}

typedef struct {
  const char *name;
  mtx_model *model;
  mtx_tok *tok;
  mtx_context *alone;       // one thread, one sequence at a time, whole histories
  mtx_sample_work *work;
  pthread_mutex_t lock;     // of the two above
  int n_vocab;
  int64_t n_compared, n_drafted, n_accepted;
} world;

static _Atomic int n_bad;

// Rows [from, n) of the logits of tokens[0..n), evaluated alone; the caller frees them.
static float *reference(world *w, const int32_t *tokens, int n, int from) {
  mtx_kv *kv = mtx_context_kv(w->alone);
  mtx_row rows[N_CTX];
  const float *out = NULL;
  int seq;
  mtx_err err = {0};
  size_t bytes = (size_t)(n - from) * (size_t)w->n_vocab * sizeof(float);
  float *copy = malloc(bytes);
  pthread_mutex_lock(&w->lock);
  if (!mtx_kv_seq_new(kv, &seq, &err)) {
    for (int i = 0; i < n; i++) rows[i] = (mtx_row){.token = tokens[i], .seq = seq, .want = i >= from};
    if (!mtx_context_step(w->alone, rows, n, &out, &err)) memcpy(copy, out, bytes);
    mtx_kv_seq_free(kv, seq);
  }
  w->n_compared += n - from;
  pthread_mutex_unlock(&w->lock);
  if (!out) fprintf(stderr, "%s: reference: %s\n", w->name, err.msg), n_bad++;
  return copy;
}

// ---- sessions, steered by a thread of their own --------------------------------------

typedef struct { mtx_session *s; int n; int32_t tokens[N_CTX]; } branch;
typedef struct { world *w; mtx_engine *e; rng r; int n_ops; bool guided; } driver;

static void eval(driver *d, branch *b) {
  int n = 1 + (int)rnd(&d->r, rnd(&d->r, 3) ? 6 : 40);
  if (b->n + n > N_CTX) return;
  for (int i = 0; i < n; i++) b->tokens[b->n + i] = (int32_t)rnd(&d->r, (uint32_t)d->w->n_vocab);
  bool all = rnd(&d->r, 2);
  const float *got;
  mtx_err err;
  mtx_code rc = mtx_session_eval(b->s, b->tokens + b->n, n, all, &got, &err);
  if (rc) {  // pages are short; the session is as it was
    if (rc != MTX_ELIMIT || mtx_session_n_tokens(b->s) != b->n) fprintf(stderr, "%s: %s\n", d->w->name, err.msg), n_bad++;
    return;
  }
  int from = all ? b->n : b->n + n - 1;
  b->n += n;
  float *want = reference(d->w, b->tokens, b->n, from);
  if (memcmp(want, got, (size_t)(b->n - from) * (size_t)d->w->n_vocab * sizeof *want)) {
    n_bad++;
    fprintf(stderr, "%s: session of %d tokens, the last %d differ\n", d->w->name, b->n, b->n - from);
  }
  free(want);
}

static void *drive(void *arg) {
  driver *d = arg;
  branch b[MAX_SESSIONS] = {0};
  for (int op = 0; op < d->n_ops; op++) {
    branch *x = &b[rnd(&d->r, MAX_SESSIONS)], *y = &b[rnd(&d->r, MAX_SESSIONS)];
    int what = (int)rnd(&d->r, 10);
    if (!x->s) {
      x->n = 0;
      if (mtx_session_open(d->e, NULL, &x->s, NULL)) n_bad++;
    } else if (what == 0) {
      mtx_session_close(x->s);
      x->s = NULL;
      continue;
    } else if (what <= 2 && !y->s) {
      mtx_code rc = mtx_session_fork(x->s, &y->s, NULL);
      if (rc && rc != MTX_ELIMIT) n_bad++;
      y->n = x->n;
      memcpy(y->tokens, x->tokens, sizeof x->tokens);
      x = y;
    } else if (what <= 4) {
      x->n = (int)rnd(&d->r, (uint32_t)x->n + 1);
      if (mtx_session_rewind(x->s, x->n, NULL)) n_bad++;
    }
    if (x->s) eval(d, x);
  }
  for (int i = 0; i < MAX_SESSIONS; i++) mtx_session_close(b[i].s);
  return NULL;
}

// ---- requests -------------------------------------------------------------------------

typedef struct {
  int64_t id;
  int32_t tokens[N_CTX];  // prompt and what came
  double lp[MAX_NEW + 1];
  int n_prompt, n, n_lp;
  mtx_sampler_opts sampler;
  double cfg_scale;
  int32_t negative[N_CTX];
  int n_negative;
  bool done, cancelled;
} asked;

// The prompt and what the request will say, here and there another token: a text whose drafts hold, and end everywhere.
static int foresee(driver *d, const asked *a, int32_t *out) {
  mtx_sampler *s;
  CHECK(mtx_sampler_open(&s, &a->sampler, d->w->n_vocab, NULL) == MTX_OK);
  memcpy(out, a->tokens, (size_t)a->n_prompt * sizeof *out);
  int n = a->n_prompt;
  for (bool ok = true; ok && n < a->n_prompt + MAX_NEW; n++) {
    float *row = reference(d->w, out, n, n - 1);
    pthread_mutex_lock(&d->w->lock);
    mtx_sample_load(d->w->work, row);
    for (int32_t t = 0; t < d->w->n_vocab; t++)
      if (mtx_tok_is_eog(d->w->tok, t)) mtx_sample_row(d->w->work)[t] = -INFINITY;
    ok = !mtx_sampler_pick(s, d->w->work, out, n, &out[n], NULL);
    pthread_mutex_unlock(&d->w->lock);
    free(row);
  }
  mtx_sampler_close(s);
  for (int i = a->n_prompt; i < n; i++)
    if (!rnd(&d->r, 6)) out[i] = (int32_t)rnd(&d->r, (uint32_t)d->w->n_vocab);
  return n;
}

static void submit(driver *d, asked *a, const int32_t *shared) {
  a->n = a->n_prompt = 1 + (int)rnd(&d->r, 60);
  int same = (int)rnd(&d->r, (uint32_t)a->n);
  for (int i = 0; i < a->n; i++) a->tokens[i] = i < same ? shared[i] : (int32_t)rnd(&d->r, (uint32_t)d->w->n_vocab);
  mtx_sampler_opts_init(&a->sampler);
  a->sampler.temperature = rnd(&d->r, 2) ? 0 : 0.9;
  a->sampler.seed = d->r.s;
  a->cfg_scale = rnd(&d->r, 3) && !d->guided ? 1 : 1.7;
  a->n_negative = 1 + (int)rnd(&d->r, 60);
  for (int i = 0; i < a->n_negative; i++) a->negative[i] = (int32_t)rnd(&d->r, (uint32_t)d->w->n_vocab);
  mtx_request r;
  mtx_request_init(&r);
  r.tokens = a->tokens;
  r.n_tokens = a->n;
  r.max_tokens = 1 + rnd(&d->r, MAX_NEW);
  r.sampler = &a->sampler;
  r.cfg_scale = a->cfg_scale;
  r.negative = a->negative;
  r.n_negative = a->n_negative;
  r.logprobs = 0;
  r.priority = (int)rnd(&d->r, 3);
  r.ignore_eos = true;
  r.cache_key = rnd(&d->r, 4) ? "k" : NULL;
  int32_t likely[N_CTX];
  if (rnd(&d->r, 2) && a->cfg_scale == 1 && !mtx_model_get_info(d->w->model)->recurrent) {
    r.draft = (mtx_draft_opts){.max = 1 + (int)rnd(&d->r, 9), .min_match = 1 + (int)rnd(&d->r, 2), .fixed = rnd(&d->r, 3)};
    if (rnd(&d->r, 3)) r.reference = likely, r.n_reference = foresee(d, a, likely);
  }
  mtx_err err;
  if (mtx_engine_submit(d->e, &r, &a->id, &err)) {
    fprintf(stderr, "%s: %s\n", d->w->name, err.msg);
    n_bad++;
    a->done = true;
  }
}

static void collect(driver *d, asked *a, int n) {
  mtx_event *list = mtx_engine_take(d->e);
  for (mtx_event *ev = list; ev; ev = ev->next)
    for (int k = 0; k < n; k++) {
      if (a[k].id != ev->id) continue;
      for (size_t i = 0; i < ev->tokens.len; i++) a[k].tokens[a[k].n++] = ev->tokens.ptr[i];
      for (size_t i = 0; i < ev->n_logprobs; i++) a[k].lp[a[k].n_lp++] = ev->logprobs[i].logprob;
      if (ev->kind != MTX_EVENT_DONE) continue;
      a[k].done = true;
      d->w->n_drafted += ev->n_drafted;
      d->w->n_accepted += ev->n_draft_accepted;
      CHECK(ev->n_draft_accepted <= ev->n_drafted && ev->n_draft_accepted <= ev->n_generated + 1);
      bool fine = ev->reason == MTX_DONE_LENGTH || (ev->reason == MTX_DONE_CANCELLED && a[k].cancelled) ||
                  (ev->reason == MTX_DONE_ERROR && !strcmp(ev->code, "limit"));  // sessions may hold all pages
      if (!fine) fprintf(stderr, "%s: request ended with %s: %s\n", d->w->name, mtx_done_reason_name(ev->reason), ev->message), n_bad++;
    }
  mtx_event_free(list);
}

static void compare(driver *d, const asked *a) {
  int from = a->n_prompt - 1, n = a->n - 1;  // the last token was never evaluated
  if (n <= from) return;
  int32_t other[N_CTX];
  int other_from = a->n_negative - 1, other_n = other_from + n - from;
  memcpy(other, a->negative, (size_t)a->n_negative * sizeof *other);
  memcpy(other + a->n_negative, a->tokens + a->n_prompt, (size_t)(a->n - a->n_prompt) * sizeof *other);
  float *want = reference(d->w, a->tokens, n, from);
  float *guide = a->cfg_scale == 1 ? NULL : reference(d->w, other, other_n, other_from);
  mtx_sampler *s;
  CHECK(mtx_sampler_open(&s, &a->sampler, d->w->n_vocab, NULL) == MTX_OK);
  pthread_mutex_lock(&d->w->lock);
  for (int i = from; i < n; i++) {
    double lp;
    const float *logits = want + (size_t)(i - from) * (size_t)d->w->n_vocab;
    int32_t token = -1;
    mtx_sample_load(d->w->work, logits);
    if (guide) mtx_sample_guide(d->w->work, guide + (size_t)(i - from) * (size_t)d->w->n_vocab, a->cfg_scale);
    for (int32_t t = 0; t < d->w->n_vocab; t++)
      if (mtx_tok_is_eog(d->w->tok, t)) mtx_sample_row(d->w->work)[t] = -INFINITY;
    if (mtx_sampler_pick(s, d->w->work, a->tokens, i + 1, &token, NULL) || token != a->tokens[i + 1]) {
      n_bad++;
      fprintf(stderr, "%s: request with a prompt of %d, guidance %g: token %d is %d, alone %d\n", d->w->name, a->n_prompt, a->cfg_scale, i - from,
              a->tokens[i + 1], token);
      break;
    }
    mtx_sample_logprobs(d->w->work, logits, a->tokens[i + 1], &lp, NULL, 0);
    if (lp != a->lp[i - from]) {
      n_bad++;
      fprintf(stderr, "%s: request with a prompt of %d: token %d has logprob %.17g, alone %.17g\n", d->w->name, a->n_prompt, i - from, a->lp[i - from], lp);
      break;
    }
  }
  pthread_mutex_unlock(&d->w->lock);
  mtx_sampler_close(s);
  free(want);
  free(guide);
}

static void request_loop(driver *d) {
  asked a[N_REQUESTS] = {0};
  int32_t shared[N_CTX];
  for (int i = 0; i < N_CTX; i++) shared[i] = (int32_t)rnd(&d->r, (uint32_t)d->w->n_vocab);
  int n_sent = 0, n_done = 0;
  while (n_done < N_REQUESTS) {
    if (n_sent < N_REQUESTS && rnd(&d->r, 2)) submit(d, &a[n_sent++], shared);
    if (n_sent && rnd(&d->r, 12) == 0) {
      asked *x = &a[rnd(&d->r, (uint32_t)n_sent)];
      x->cancelled = true;
      mtx_engine_cancel(d->e, x->id);
    }
    if (rnd(&d->r, 6) == 0) {
      mtx_policy p = {.step_tokens = (int)rnd(&d->r, 20), .prefill_tokens = (int)rnd(&d->r, 30)};
      if (n_sent && rnd(&d->r, 2)) p.order = &a[rnd(&d->r, (uint32_t)n_sent)].id, p.n_order = 1;
      if (mtx_engine_set_policy(d->e, &p, NULL)) n_bad++;
    }
    mtx_engine_wait(d->e, n_sent < N_REQUESTS ? 1 : 20);
    collect(d, a, n_sent);
    n_done = 0;
    for (int i = 0; i < n_sent; i++) n_done += a[i].done;
  }
  for (int i = 0; i < N_REQUESTS; i++) compare(d, &a[i]);
}

static void scenario(world *w, uint64_t seed) {
  rng r = {seed};
  for (int i = 0; i < 4; i++) rnd(&r, 2);
  static const int rows[] = {1, 3, 8, 17, 64};
  mtx_engine_opts o = {.n_ctx = N_CTX, .n_parallel = 1 + (int)rnd(&r, 4), .max_sessions = 2 * MAX_SESSIONS, .max_rows = rows[rnd(&r, 5)],
                       .n_threads = 1 + (int)rnd(&r, 2), .kv_type = MTX_KV_F32,
                       .kv_tokens = rnd(&r, 3) ? 3000 : 320, .cache_bytes = rnd(&r, 2) ? 8 << 20 : 0};
  bool tight = rnd(&r, 4) == 0;  // requests in pairs and pages for one of them: somebody always has to go
  if (tight) o.kv_tokens = N_CTX;
  mtx_engine *e;
  mtx_err err = {0};
  if (mtx_engine_open(&e, w->model, w->tok, &o, &err)) {
    CHECK(false, "%s: %s", w->name, err.msg);
    return;
  }
  int before = n_bad;
  driver steer = {w, e, {seed * 31 + 7}, tight ? 0 : 8, false}, ask = {w, e, {seed * 17 + 3}, 0, tight};
  pthread_t t;
  CHECK(pthread_create(&t, NULL, drive, &steer) == 0);
  request_loop(&ask);
  pthread_join(t, NULL);
  mtx_engine_stats s;
  mtx_engine_get_stats(e, &s, true);
  bool idle = s.kv_ok && !s.n_sessions && !s.n_waiting && !s.n_prefill && !s.n_decode && (s.n_cache_entries || s.n_pages_free == s.n_pages);
  CHECK(n_bad == before && idle, "%s, scenario %llu: %d differences, pages %s", w->name, (unsigned long long)seed, n_bad - before, idle ? "fine" : "lost");
  mtx_engine_close(e);
}

static bool world_open(world *w, const golden_model *models, int n_models, const char *name) {
  mtx_err err;
  *w = (world){.name = name};
  pthread_mutex_init(&w->lock, NULL);
  bool ok = golden_open(models, n_models, name, &w->model, &w->tok, &err);
  mtx_context_opts o = {.n_ctx = N_CTX, .kv_type = MTX_KV_F32, .n_threads = 1, .max_rows = N_CTX, .max_seqs = 1};
  if (ok) w->n_vocab = mtx_model_get_info(w->model)->n_vocab;
  ok = ok && !mtx_context_open(&w->alone, w->model, &o, &err) && !mtx_sample_work_open(&w->work, w->n_vocab, &err);
  if (!ok) fprintf(stderr, "%s: %s %s\n", name, err.key, err.msg);
  return ok;
}

// Under sanitizers a scenario takes ten times as long, and what they look for shows early.
#if defined(__SANITIZE_ADDRESS__)
enum { SLOW_BUILD = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { SLOW_BUILD = 1 };
#else
enum { SLOW_BUILD = 0 };
#endif
#else
enum { SLOW_BUILD = 0 };
#endif

int main(int argc, char **argv) {
  // Plain, windows, experts, latent attention, recurrent, hybrid; the larger models get fewer turns.
  static const char *const kinds[] = {"llama", "gemma3", "qwen3moe", "deepseek2", "mamba2", "qwen35"};
  static const int turns[] = {250, 100, 150, 200, 250, 60};
  int n_models;
  golden_model *models = golden_arch_models(&n_models);
  mtx_kern_init(MTX_TIER_AMX);
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    if (argc > 1 && strcmp(argv[1], "all") && strcmp(argv[1], kinds[k])) continue;
    int n_scenarios = argc > 2 ? atoi(argv[2]) : SLOW_BUILD ? turns[k] / 8 : turns[k];
    world w;
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    bool ok = world_open(&w, models, n_models, kinds[k]);
    CHECK(ok, "%s does not open", kinds[k]);
    if (!ok) continue;
    for (int i = 0; i < n_scenarios && n_bad < 20; i++) scenario(&w, k * 100000 + (uint64_t)i + 1);
    CHECK(w.n_compared > n_scenarios * 20, "%d rows compared", (int)w.n_compared);
    CHECK(mtx_kv_check(mtx_context_kv(w.alone)) && mtx_kv_n_seqs(mtx_context_kv(w.alone)) == 0);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    CHECK(mtx_model_get_info(w.model)->recurrent || (w.n_accepted > n_scenarios / 8 && w.n_accepted < w.n_drafted), "%lld of %lld drafted tokens accepted",
          (long long)w.n_accepted, (long long)w.n_drafted);
    printf("# %s: %lld rows compared, %lld of %lld drafted tokens accepted, %.1f s\n", kinds[k], (long long)w.n_compared, (long long)w.n_accepted,
           (long long)w.n_drafted, (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec));
    mtx_sample_work_close(w.work);
    mtx_context_close(w.alone);
    mtx_tok_close(w.tok);
    mtx_model_close(w.model);
  }
  golden_arch_free(models, n_models);
  return check_report();
}
