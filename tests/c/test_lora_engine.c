// SPDX-License-Identifier: MIT
// Requests and sessions with adapters: cached, batched, cut, parked, restored and read from disk they give the bits of a
// plain run, and nothing that one set of adapters made is ever reused for another set, another scale or the base model.
#include "check.h"

#include <dirent.h>
#include <unistd.h>

#include "engine_run.h"
#include "golden_open.h"
#include "kern/kern.h"

enum { N_CTX = 700, LEN = 300, NEW = 12 };

typedef struct { const char *name, *adapter, *second; } subject;

static char dir[TEMP_PATH];
static int32_t prompt[N_CTX];

static mtx_engine *engine(const mtx_model *m, const mtx_tok *tok, int64_t kv_tokens, uint64_t cache_bytes) {
  mtx_engine *e;
  mtx_err err = {0};
  mtx_engine_opts o = {.n_ctx = N_CTX, .n_threads = 2, .n_parallel = 6, .kv_type = MTX_KV_F16, .kv_tokens = kv_tokens, .cache_bytes = cache_bytes};
  CHECK(mtx_engine_open(&e, m, tok, &o, &err) == MTX_OK, "%s", err.msg);
  return e;
}

static mtx_request request(mtx_lora *lora, const char *key) {
  mtx_request r = ask(prompt, LEN, NEW);
  r.ignore_eos = true;
  r.logprobs = 0;
  r.lora = lora;
  r.cache_key = key;
  return r;
}

static result run(mtx_engine *e, mtx_lora *lora, const char *key) {
  mtx_request r = request(lora, key);
  return run_one(e, &r);
}

static bool equal(const result *a, const result *b) {
  return a->n_lp == NEW && b->n_lp == NEW && !memcmp(a->ids, b->ids, NEW * sizeof *a->ids) && !memcmp(a->lp, b->lp, NEW * sizeof *a->lp);
}

static mtx_adapter *open_adapter(const mtx_model *m, const char *name) {
  char path[128];
  mtx_adapter *a = NULL;
  mtx_err err = {0};
  snprintf(path, sizeof path, "tests/golden/lora/%s.gguf", name);
  CHECK(mtx_adapter_open(&a, m, path, NULL, &err) == MTX_OK, "%s: %s: %s", path, err.key, err.msg);
  return a;
}

static mtx_lora *set_of(const mtx_model *m, mtx_adapter *a, float sa, mtx_adapter *b, float sb) {
  mtx_lora *l = NULL;
  CHECK(mtx_lora_new(&l, m, (mtx_adapter *[]){a, b}, (float[]){sa, sb}, b ? 2 : 1, NULL) == MTX_OK);
  return l;
}

enum { BASE, ONE, HALF, STACK, TURNED, N_SETS };

static void make_sets(const subject *s, const mtx_model *m, mtx_lora **set) {
  mtx_adapter *a = open_adapter(m, s->adapter), *b = open_adapter(m, s->second), *again = open_adapter(m, s->adapter);
  set[BASE] = set_of(m, a, 0, b, 0);
  set[ONE] = set_of(m, a, 1, NULL, 0);
  set[HALF] = set_of(m, again, 0.5f, NULL, 0);
  set[STACK] = set_of(m, a, 1, b == a ? NULL : b, 2);
  set[TURNED] = set_of(m, b, 2, again, 1);  // the same in another order, from a file opened twice
  CHECK(!set[BASE] && set[ONE]->n == 1 && set[STACK]->n == 2 && !strcmp(set[STACK]->label, set[TURNED]->label));
  mtx_adapter_unref(a);
  mtx_adapter_unref(b);
  mtx_adapter_unref(again);
}

// ---- what a prompt is remembered for -----------------------------------------------------

static void test_cache(const subject *s, const mtx_model *m, const mtx_tok *tok, mtx_lora **set, const result *cold) {
  mtx_engine *e = engine(m, tok, 0, 64 << 20);
  for (int k = BASE; k <= STACK; k++) {
    result x = run(e, set[k], "k");
    CHECK(x.n_cached == 0 && equal(&x, &cold[k]), "%s: set %d took %d tokens of another's", s->name, k, (int)x.n_cached);
  }
  for (int k = BASE; k < N_SETS; k++) {
    result x = run(e, set[k], "k");
    CHECK(x.n_cached >= 9 * LEN / 10 && equal(&x, &cold[k]), "%s: set %d: %d tokens cached", s->name, k, (int)x.n_cached);
  }
  check_idle(e);
  mtx_engine_close(e);
}

static void test_disk(const subject *s, const mtx_model *m, const mtx_tok *tok, mtx_lora **set, const result *cold) {
  for (int round = 0; round < 2; round++) {
    mtx_engine *e = engine(m, tok, 0, 64 << 20);
    CHECK(mtx_engine_set_disk(e, dir, 1 << 30, 3600, NULL) == MTX_OK);
    static const int order[2][3] = {{ONE, STACK, ONE}, {BASE, HALF, TURNED}};  // only the last is known: from memory, from disk
    for (int k = 0; k < 3; k++) {
      result x = run(e, set[order[round][k]], "k");
      CHECK(equal(&x, &cold[order[round][k]]) && (x.n_cached > 0) == (k == 2), "%s: round %d, %d: %d tokens cached", s->name, round, k, (int)x.n_cached);
    }
    mtx_engine_close(e);
  }
  mtx_engine *e = engine(m, tok, 0, 64 << 20);
  CHECK(mtx_engine_set_disk(e, dir, 1 << 30, 3600, NULL) == MTX_OK && !mtx_engine_forget_prefix(e, NULL, NULL, 0, &(int64_t){0}, NULL));
  mtx_engine_close(e);
}

static void test_saved_prefix(const subject *s, const mtx_model *m, const mtx_tok *tok, mtx_lora **set, const result *cold) {
  char path[TEMP_PATH + 16];
  mtx_engine *e = engine(m, tok, 0, 64 << 20), *f = engine(m, tok, 0, 64 << 20);
  mtx_buf key = {0}, owner = {0};
  int64_t n_saved;
  uint64_t n_bytes;
  mtx_err err = {0};
  snprintf(path, sizeof path, "%s/prefix", dir);
  run(e, set[ONE], "k");
  CHECK(!mtx_engine_save_prefix(e, "k", prompt, LEN, path, &n_saved, &n_bytes, &err) && n_saved == 0, "the base model's knows nothing");
  CHECK(!mtx_engine_cache_key("k", set[ONE], &key, &err) && !mtx_engine_save_prefix(e, key.ptr, prompt, LEN, path, &n_saved, &n_bytes, &err) && n_saved > 0, "%s", err.msg);
  CHECK(!mtx_engine_load_prefix(f, "mine", path, NULL, &owner, &err) && !strcmp(owner.ptr, key.ptr), "%s", err.msg);
  static const int order[] = {BASE, HALF, ONE};
  for (int k = 0; k < 3; k++) {
    result x = run(f, set[order[k]], "mine");
    CHECK((x.n_cached > 0) == (order[k] == ONE) && equal(&x, &cold[order[k]]), "%s: set %d from a file: %d tokens", s->name, order[k], (int)x.n_cached);
  }
  mtx_request r = request(NULL, key.ptr);  // nobody names another's adapters in a key
  CHECK(mtx_engine_submit(f, &r, &(int64_t){0}, &err) == MTX_EINVAL && !strcmp(err.key, "cache_key"), "%s", err.msg);
  mtx_buf_fini(&key);
  mtx_buf_fini(&owner);
  unlink(path);
  mtx_engine_close(e);
  mtx_engine_close(f);
}

// ---- company ------------------------------------------------------------------------------

static void test_batch(const subject *s, const mtx_model *m, const mtx_tok *tok, mtx_lora **set, const result *cold) {
  static const int order[] = {ONE, BASE, STACK, HALF, BASE, TURNED};
  for (int mode = 0; mode < 3; mode++) {  // together; in small steps; with too few pages for all
    mtx_engine *e = engine(m, tok, mode == 2 ? 2 * N_CTX : 0, mode == 2 ? 0 : 64 << 20);
    mtx_policy p = {.step_tokens = mode == 1 ? 7 : 0};
    CHECK(mtx_engine_set_policy(e, &p, NULL) == MTX_OK);
    static result x[6];
    int64_t first = 0, id;
    memset(x, 0, sizeof x);
    for (int k = 0; k < 6; k++) {
      mtx_request r = request(set[order[k]], k & 1 ? "k" : NULL);
      CHECK(mtx_engine_submit(e, &r, &id, NULL) == MTX_OK);
      if (!k) first = id;
    }
    finish(e, x, first, 6);
    for (int k = 0; k < 6; k++) CHECK(equal(&x[k], &cold[order[k]]), "%s: request %d of a mixed batch (mode %d) says something else", s->name, k, mode);
    check_idle(e);
    mtx_engine_close(e);
  }
  // Guidance: both sequences have the adapters.
  mtx_engine *e = engine(m, tok, 0, 0);
  result g[2];
  for (int k = 0; k < 2; k++) {
    mtx_request r = request(set[ONE], NULL);
    r.cfg_scale = 1.5;
    r.negative = k ? prompt + 5 : prompt;
    r.n_negative = k ? 40 : LEN;
    g[k] = run_one(e, &r);
  }
  CHECK(!memcmp(g[0].ids, cold[ONE].ids, NEW * sizeof *g[0].ids), "%s: guided away from itself an answer changes", s->name);
  CHECK(g[1].n_ids == NEW);
  mtx_engine_close(e);
}

// ---- sessions -----------------------------------------------------------------------------

static mtx_session *session(mtx_engine *e, mtx_lora *lora) {
  mtx_session *x = NULL;
  mtx_err err = {0};
  CHECK(mtx_session_open(e, lora, &x, &err) == MTX_OK, "%s", err.msg);
  return x;
}

static const float *eval(mtx_session *s, int64_t at, int64_t n) {
  const float *out = NULL;
  mtx_err err = {0};
  CHECK(mtx_session_eval(s, prompt + at, n, false, &out, &err) == MTX_OK, "%s", err.msg);
  return out;
}

static void test_sessions(const subject *s, const mtx_model *m, const mtx_tok *tok, mtx_lora **set) {
  char path[TEMP_PATH + 16];
  size_t size = (size_t)mtx_model_get_info(m)->n_out * sizeof(float);
  mtx_engine *e = engine(m, tok, 0, 0);
  mtx_session *base = session(e, NULL), *one = session(e, set[ONE]), *half = session(e, set[HALF]), *fork, *back = session(e, set[ONE]);
  float *want = malloc(size), *plain = malloc(size);
  mtx_err err = {0};
  uint64_t n_bytes;
  snprintf(path, sizeof path, "%s/session", dir);
  memcpy(want, eval(one, 0, LEN + 30), size);
  memcpy(plain, eval(base, 0, LEN + 30), size);
  CHECK(memcmp(want, plain, size) && memcmp(want, eval(half, 0, LEN + 30), size), "%s: adapters without effect", s->name);
  CHECK(!mtx_session_rewind(one, LEN, NULL));
  CHECK(!mtx_session_fork(one, &fork, NULL));
  CHECK(!memcmp(eval(fork, LEN, 30), want, size) && !memcmp(eval(one, LEN, 30), want, size), "%s: a fork", s->name);
  CHECK(!mtx_session_rewind(one, LEN, NULL));
  CHECK(!mtx_session_save(one, path, &n_bytes, &err), "%s", err.msg);
  CHECK(!mtx_session_load(back, path, &err) && !memcmp(eval(back, LEN, 30), want, size), "%s: restored: %s", s->name, err.msg);
  CHECK(mtx_session_load(base, path, &err) == MTX_EUNSUPPORTED && strstr(err.msg, "adapters"), "%s", err.msg);
  CHECK(mtx_session_load(half, path, &err) == MTX_EUNSUPPORTED && strstr(err.msg, "other adapters"), "%s", err.msg);
  CHECK(!mtx_session_rewind(base, LEN, NULL) && !memcmp(eval(base, LEN, 30), plain, size), "a refused file changes nothing");
  CHECK(!mtx_session_save(base, path, &n_bytes, NULL) && mtx_session_load(one, path, &err) == MTX_EUNSUPPORTED && strstr(err.msg, "without adapters"), "%s", err.msg);
  unlink(path);
  mtx_session *all[] = {base, one, half, fork, back};
  for (int i = 0; i < 5; i++) mtx_session_close(all[i]);
  // Embeddings of the hidden state.
  int64_t k = mtx_model_get_info(m)->n_embed, n = LEN;
  const int32_t *tokens[] = {prompt};
  float *v[3];
  for (int i = 0; i < 3; i++) {
    v[i] = malloc((size_t)k * sizeof *v[i]);
    CHECK(!mtx_engine_embed(e, tokens, &n, 1, MTX_POOL_LAST, true, set[i ? ONE : BASE], v[i], &err), "%s", err.msg);
  }
  CHECK(memcmp(v[0], v[1], (size_t)k * sizeof *v[0]) && !memcmp(v[1], v[2], (size_t)k * sizeof *v[0]), "%s: embeddings", s->name);
  for (int i = 0; i < 3; i++) free(v[i]);
  free(want);
  free(plain);
  check_idle(e);
  mtx_engine_close(e);
}

// A set of one model with an engine of another.
static void test_foreign(const mtx_model *m, const mtx_tok *tok, mtx_lora *foreign) {
  mtx_engine *e = engine(m, tok, 0, 0);
  mtx_err err = {0};
  mtx_session *s;
  mtx_request r = request(foreign, NULL);
  float out[64];
  int64_t n = 4;
  CHECK(mtx_engine_submit(e, &r, &(int64_t){0}, &err) == MTX_EINVAL && strstr(err.msg, "another model"), "%s", err.msg);
  CHECK(mtx_session_open(e, foreign, &s, &err) == MTX_EINVAL && strstr(err.msg, "another model"), "%s", err.msg);
  CHECK(mtx_engine_embed(e, (const int32_t *[]){prompt}, &n, 1, MTX_POOL_LAST, true, foreign, out, &err) == MTX_EINVAL && strstr(err.msg, "another model"), "%s", err.msg);
  check_idle(e);
  mtx_engine_close(e);
}

int main(void) {
  static const subject subjects[] = {{"llama", "llama-all", "llama-f16"}, {"gemma3", "gemma3", "gemma3-b"}, {"qwen35", "qwen35", "qwen35-b"}};
  enum { N = sizeof subjects / sizeof *subjects };
  int n_models;
  golden_model *models = golden_arch_models(&n_models);
  mtx_model *model[N] = {0};
  mtx_tok *tok[N] = {0};
  mtx_lora *set[N][N_SETS];
  mtx_kern_init(MTX_TIER_NEON > MTX_TIER_AMX ? MTX_TIER_NEON : MTX_TIER_AMX);
  temp_mkdir(dir);
  uint64_t rng = 1;
  for (int i = 0; i < N_CTX; i++) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    prompt[i] = (int32_t)(4 + (rng >> 33) % 120);
  }
  for (int i = 0; i < N; i++) {
    const subject *s = &subjects[i];
    static result cold[N_SETS];
    mtx_err err;
    bool ok = golden_open(models, n_models, s->name, &model[i], &tok[i], &err);
    CHECK(ok, "%s: %s %s", s->name, err.key, err.msg);
    if (!ok) return check_report();
    make_sets(s, model[i], set[i]);
    mtx_engine *e = engine(model[i], tok[i], 0, 0);
    for (int k = 0; k < N_SETS; k++) cold[k] = run(e, set[i][k], NULL);
    mtx_engine_close(e);
    for (int k = 1; k < TURNED; k++)
      for (int j = 0; j < k; j++) CHECK(memcmp(cold[k].lp, cold[j].lp, NEW * sizeof *cold[k].lp), "%s: sets %d and %d say the same", s->name, k, j);
    CHECK(equal(&cold[STACK], &cold[TURNED]), "%s: the order of adapters shows", s->name);
    test_cache(s, model[i], tok[i], set[i], cold);
    test_disk(s, model[i], tok[i], set[i], cold);
    test_saved_prefix(s, model[i], tok[i], set[i], cold);
    test_batch(s, model[i], tok[i], set[i], cold);
    test_sessions(s, model[i], tok[i], set[i]);
  }
  for (int i = 0; i < N; i++) test_foreign(model[i], tok[i], set[(i + 1) % N][ONE]);
  for (int i = 0; i < N; i++) {
    mtx_tok_close(tok[i]);
    mtx_model_close(model[i]);
  }
  for (int i = 0; i < N; i++)  // sets outlive their model
    for (int k = 0; k < N_SETS; k++) mtx_lora_unref(set[i][k]);
  CHECK(rmdir(dir) == 0, "files are left");
  golden_arch_free(models, n_models);
  return check_report();
}
