// SPDX-License-Identifier: MIT
// Saved state: what is restored goes on bit for bit as the plain run, whatever kind of
// memory the model has; a file that is damaged, hostile or another model's is refused
// with one error, changes nothing and costs no page.
#include "check.h"

#include <sys/stat.h>

#include "base/checksum.h"
#include "engine_run.h"
#include "golden_open.h"
#include "kern/kern.h"

enum { N_CTX = 1200, LEN = 700, MORE = 24 };

static char state[TEMP_PATH], copy[TEMP_PATH];
static int32_t tokens[N_CTX];
static uint64_t rng_state = 1;
static uint32_t rnd(uint32_t n) {
  rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(rng_state >> 33) % n;
}

static uint8_t *read_file(const char *path, size_t *n) {
  struct stat st;
  FILE *f = fopen(path, "rb");
  if (!f || fstat(fileno(f), &st)) exit(2);
  uint8_t *bytes = malloc((size_t)st.st_size + 1);
  *n = fread(bytes, 1, (size_t)st.st_size, f);
  fclose(f);
  return bytes;
}

static void write_file(const char *path, const uint8_t *bytes, size_t n) {
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(bytes, 1, n, f) != n) exit(2);
  fclose(f);
}

// Logits of tokens[from, from + n), evaluated behind what s holds; the caller frees them.
static float *eval(mtx_session *s, int from, int n, int width) {
  const float *row = NULL;
  mtx_err err = {0};
  mtx_code rc = mtx_session_eval(s, tokens + from, n, true, &row, &err);
  CHECK(rc == MTX_OK, "%s", err.msg);
  float *rows = calloc((size_t)n * (size_t)width, sizeof *rows);
  if (!rc) memcpy(rows, row, (size_t)n * (size_t)width * sizeof *rows);
  return rows;
}

static bool same_rows(const float *a, const float *b, int n, int width) { return !memcmp(a, b, (size_t)n * (size_t)width * sizeof *a); }

static mtx_engine *engine(const mtx_model *m, const mtx_tok *tok, mtx_kv_type type, int64_t n_ctx) {
  mtx_engine *e;
  mtx_err err = {0};
  mtx_engine_opts o = {.n_ctx = n_ctx, .n_threads = 1, .n_parallel = 2, .kv_type = type, .cache_bytes = 64 << 20};
  CHECK(mtx_engine_open(&e, m, tok, &o, &err) == MTX_OK, "%s", err.msg);
  return e;
}

static void test_restore(const char *name, const mtx_model *m, const mtx_tok *tok, mtx_kv_type type) {
  int width = mtx_model_get_info(m)->n_out;
  mtx_engine *a = engine(m, tok, type, N_CTX), *b = engine(m, tok, type, N_CTX);
  mtx_session *s, *t, *u;
  mtx_err err = {0};
  uint64_t n_bytes;
  CHECK(!mtx_session_open(a, NULL, &s, NULL) && !mtx_session_open(a, NULL, &t, NULL) && !mtx_session_open(b, NULL, &u, NULL));
  free(eval(s, 0, LEN - 100, width));
  free(eval(s, LEN - 100, 100, width));
  CHECK(mtx_session_save(s, state, &n_bytes, &err) == MTX_OK, "%s", err.msg);
  struct stat st;
  CHECK(!stat(state, &st) && (uint64_t)st.st_size == n_bytes && (st.st_mode & 0777) == 0600, "its owner's alone: %o", (unsigned)st.st_mode);
  float *want = eval(s, LEN, MORE, width);
  free(eval(t, 5, 50, width));  // what was there goes
  mtx_session *into[2] = {t, u};
  for (int i = 0; i < 2; i++) {
    CHECK(mtx_session_load(into[i], state, &err) == MTX_OK, "%s", err.msg);
    CHECK(mtx_session_n_tokens(into[i]) == LEN);
    float *got = eval(into[i], LEN, MORE, width);
    CHECK(same_rows(got, want, MORE, width), "%s %s: restored state goes on differently", name, mtx_kv_type_name(type));
    free(got);
  }
  // Back before the saved end, in the restored session and in one that never was saved.
  CHECK(!mtx_session_rewind(s, LEN - 37, NULL) && !mtx_session_rewind(u, LEN - 37, NULL));
  float *x = eval(s, 100, MORE, width), *y = eval(u, 100, MORE, width);
  CHECK(same_rows(x, y, MORE, width), "%s: rewound behind a restore", name);
  free(x), free(y);
  // A session whose end is not evaluated, and one without tokens.
  CHECK(!mtx_session_rewind(s, 3, NULL) && !mtx_session_save(s, copy, &n_bytes, NULL) && !mtx_session_load(u, copy, &err), "%s", err.msg);
  CHECK(mtx_session_n_tokens(u) == 3);
  x = eval(s, 50, 9, width), y = eval(u, 50, 9, width);
  CHECK(same_rows(x, y, 9, width), "%s: a short one", name);
  free(x), free(y);
  CHECK(!mtx_session_rewind(s, 0, NULL) && !mtx_session_save(s, copy, &n_bytes, NULL) && !mtx_session_load(u, copy, NULL) && mtx_session_n_tokens(u) == 0);
  free(want);
  mtx_session_close(s);
  mtx_session_close(t);
  mtx_session_close(u);
  check_idle(a);
  check_idle(b);
  mtx_engine_close(a);
  mtx_engine_close(b);
}

// The session must be as it was after a refusal.
static mtx_code refused(mtx_session *s, const char *path, mtx_err *err) {
  *err = (mtx_err){0};
  int64_t n = mtx_session_n_tokens(s);
  mtx_code rc = mtx_session_load(s, path, err);
  if (rc) CHECK(mtx_session_n_tokens(s) == n && err->code == rc && err->msg[0]);
  return rc;
}

static void seal(uint8_t *bytes, size_t n) {
  mtx_checksum c;
  mtx_checksum_init(&c);
  mtx_checksum_update(&c, bytes, n - 8);
  uint64_t sum = mtx_checksum_get(&c);
  memcpy(bytes + n - 8, &sum, 8);
}

static void test_hostile(const mtx_model *m, const mtx_tok *tok, const mtx_model *other, const mtx_tok *other_tok) {
  int width = mtx_model_get_info(m)->n_out;
  mtx_engine *e = engine(m, tok, MTX_KV_F16, N_CTX), *q = engine(m, tok, MTX_KV_Q8_0, N_CTX), *small = engine(m, tok, MTX_KV_F16, 64),
             *o = engine(other, other_tok, MTX_KV_F16, N_CTX);
  mtx_session *s, *x;
  mtx_err err;
  uint64_t n_bytes;
  CHECK(!mtx_session_open(e, NULL, &s, NULL));
  free(eval(s, 0, 300, width));
  CHECK(!mtx_session_save(s, state, &n_bytes, NULL));
  const struct { mtx_engine *e; mtx_code code; const char *says; } wrong[] = {
      {q, MTX_EUNSUPPORTED, "f16"}, {small, MTX_ELIMIT, "300 tokens"}, {o, MTX_EUNSUPPORTED, "another model"}};
  for (int i = 0; i < 3; i++) {
    CHECK(!mtx_session_open(wrong[i].e, NULL, &x, NULL));
    mtx_code rc = refused(x, state, &err);
    CHECK(rc == wrong[i].code && strstr(err.msg, wrong[i].says) && !strcmp(err.file, state), "%d: %s", i, err.msg);
    mtx_session_close(x);
    check_idle(wrong[i].e);
  }
  CHECK(refused(s, "/tmp/mtx-saved-none", &err) == MTX_ENOTFOUND && refused(s, "/tmp", &err) != MTX_OK);
  CHECK(mtx_session_save(s, "/tmp/no-such-folder/x", &n_bytes, &err) == MTX_EIO && strstr(err.file, "no-such-folder"));

  size_t n;
  uint8_t *good = read_file(state, &n), *bad = malloc(n + 8);
  int n_taken = 0;
  for (int i = 0; i < 250; i++) {  // one byte, anywhere, mostly where the sizes are
    size_t at = i < 150 ? (size_t)i : rnd(2) ? rnd(2000) : rnd((uint32_t)n);
    memcpy(bad, good, n);
    bad[at] ^= (uint8_t)(1u << rnd(8));
    write_file(copy, bad, n);
    n_taken += refused(s, copy, &err) == MTX_OK;
  }
  for (int i = 0; i < 60; i++) {  // cut short or too long
    size_t len = i < 30 ? rnd((uint32_t)n) : i < 50 ? (size_t)(i - 30) * 8 + 1 : n + (size_t)(i - 49);
    memcpy(bad, good, len < n ? len : n);
    if (len > n) memset(bad + n, 0, len - n < 8 ? len - n : 8);
    if (len > n + 8) len = n + 8;
    write_file(copy, bad, len);
    n_taken += refused(s, copy, &err) == MTX_OK;
  }
  CHECK(n_taken == 0, "%d damaged files were taken", n_taken);
  // With a checksum that is right: sizes, counts and tokens of a forger.
  int n_refused = 0;
  for (int i = 0; i < 500; i++) {
    memcpy(bad, good, n);
    size_t at = rnd(4) ? 8 * (size_t)rnd(40) : 8 * (size_t)rnd(400);
    static const uint64_t odd[] = {0, 1, 2, 255, 1u << 31, UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63, 300, 301, 299};
    uint64_t v = odd[rnd(11)];
    memcpy(bad + at, &v, rnd(2) ? 8 : 4);
    size_t len = rnd(8) ? n : n - 8 * (size_t)rnd(400);
    seal(bad, len);
    write_file(copy, bad, len);
    n_refused += refused(s, copy, &err) != MTX_OK;
  }
  CHECK(n_refused > 100, "%d", n_refused);
  CHECK(refused(s, state, &err) == MTX_OK);
  mtx_session_close(s);
  check_idle(e);
  free(good);
  free(bad);
  mtx_engine_close(e);
  mtx_engine_close(q);
  mtx_engine_close(small);
  mtx_engine_close(o);
}

// The prefix index of one engine in another, under the key that the reader names.
static void test_prefix(const char *name, const mtx_model *m, const mtx_tok *tok) {
  mtx_engine *a = engine(m, tok, MTX_KV_F16, N_CTX), *b = engine(m, tok, MTX_KV_F16, N_CTX);
  mtx_err err = {0};
  mtx_request r = ask(tokens, 500, 20);
  r.ignore_eos = true;
  r.cache_key = "k";
  result want = run_one(a, &r);
  int32_t all[520];
  memcpy(all, tokens, sizeof all);
  memcpy(all + 500, want.ids, 20 * sizeof *all);
  int64_t n_saved, n_known;
  uint64_t n_bytes;
  mtx_ids back = {0};
  CHECK(!mtx_engine_save_prefix(a, "other", all, 520, copy, &n_saved, &n_bytes, &err) && n_saved == 0 && n_bytes == 0, "another key's");
  CHECK(!mtx_engine_save_prefix(a, "k", all, 520, state, &n_saved, &n_bytes, &err) && n_saved == 519 && n_bytes > 0, "%s: %d %s", name, (int)n_saved, err.msg);
  mtx_buf owner = {0};
  CHECK(!mtx_engine_load_prefix(b, "mine", state, &back, &owner, &err) && !strcmp(owner.ptr, "k") && back.len == 519 && !memcmp(back.ptr, all, 519 * sizeof *all), "%s", err.msg);
  result got = run_one(b, &r);
  CHECK(got.n_cached == 0, "the key that saved it sees nothing here");
  CHECK(!mtx_engine_forget_prefix(b, "k", all, 520, &n_known, NULL) && n_known == 519);
  r.cache_key = "mine";
  r.tokens = all;
  r.n_tokens = 520;
  result next = run_one(a, &r);  // cold: nothing under this key
  got = run_one(b, &r);
  CHECK(got.n_cached == 519 && next.n_cached == 0, "%s: %d", name, (int)got.n_cached);
  CHECK(got.n_ids == next.n_ids && !memcmp(got.ids, next.ids, (size_t)got.n_ids * sizeof *got.ids));
  CHECK(!mtx_engine_forget_prefix(b, "mine", all, 520, &n_known, NULL) && n_known == 520);
  got = run_one(b, &r);
  CHECK(got.n_cached == 0, "forgotten");
  r.cache_key = "k";
  CHECK(!mtx_engine_load_prefix(b, NULL, state, NULL, &owner, &err), "%s", err.msg);
  got = run_one(b, &r);
  CHECK(got.n_cached == 519, "under the key it was saved with");
  mtx_ids_fini(&back);
  mtx_buf_fini(&owner);
  check_idle(a);
  check_idle(b);
  mtx_engine_close(a);
  mtx_engine_close(b);
}

int main(void) {
  static const char *const names[] = {"llama", "gemma3", "mamba2", "qwen35", "deepseek2"};  // plain, windows, recurrent, hybrid, latent
  enum { N = sizeof names / sizeof *names };
  mtx_model *model[N] = {0};
  mtx_tok *tok[N] = {0};
  int n_models;
  temp_path(state);
  temp_path(copy);
  golden_model *models = golden_arch_models(&n_models);
  mtx_kern_init(MTX_TIER_AMX);
  for (int i = 0; i < N_CTX; i++) tokens[i] = (int32_t)(4 + rnd(120));
  for (int k = 0; k < N; k++) {
    mtx_err err;
    bool ok = golden_open(models, n_models, names[k], &model[k], &tok[k], &err);
    CHECK(ok, "%s: %s %s", names[k], err.key, err.msg);
    if (!ok) return check_report();
    test_restore(names[k], model[k], tok[k], MTX_KV_F16);
    if (k < 2) test_restore(names[k], model[k], tok[k], MTX_KV_Q8_0);
    test_prefix(names[k], model[k], tok[k]);
  }
  for (int k = 0; k < 4; k++) test_hostile(model[k], tok[k], model[(k + 1) % 4], tok[(k + 1) % 4]);
  for (int k = 0; k < N; k++) {
    mtx_tok_close(tok[k]);
    mtx_model_close(model[k]);
  }
  golden_arch_free(models, n_models);
  return check_report();
}
