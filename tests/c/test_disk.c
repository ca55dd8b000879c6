// SPDX-License-Identifier: MIT
// Prompts on disk: an engine that ends leaves them, the next one says the same from
// them as a cold one; other models, KV types and keys see nothing; a bad file is a
// miss and goes; the folder stays within its budget.
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "engine_run.h"
#include "golden_open.h"
#include "kern/kern.h"

enum { N_CTX = 1400, LEN = 1000, NEW = 12 };

static char dir[TEMP_PATH];
static int32_t prompt[3][N_CTX];

// Files there and their bytes; with `each`, called for each path.
static int files(uint64_t *bytes, void (*each)(const char *path)) {
  int n = 0;
  DIR *d = opendir(dir);
  *bytes = 0;
  for (struct dirent *f; (f = readdir(d));) {
    char path[512];
    struct stat st;
    if (f->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
    CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0600);
    *bytes += (uint64_t)st.st_size;
    n++;
    if (each) each(path);
  }
  closedir(d);
  return n;
}

static int n_files(void) {
  uint64_t bytes;
  return files(&bytes, NULL);
}

static void damage(const char *path) {
  FILE *f = fopen(path, "r+b");
  fseek(f, 3000, SEEK_SET);
  int c = fgetc(f);
  fseek(f, 3000, SEEK_SET);
  fputc(c ^ 1, f);
  fclose(f);
}

static void make_old(const char *path) {
  struct timespec t[2] = {{1000000, 0}, {1000000, 0}};
  utimensat(AT_FDCWD, path, t, 0);
}

static mtx_engine *engine(const mtx_model *m, const mtx_tok *tok, mtx_kv_type type, bool disk, uint64_t budget) {
  mtx_engine *e;
  mtx_err err = {0};
  mtx_engine_opts o = {.n_ctx = N_CTX, .n_threads = 1, .n_parallel = 2, .kv_type = type, .cache_bytes = 64 << 20};
  CHECK(mtx_engine_open(&e, m, tok, &o, &err) == MTX_OK, "%s", err.msg);
  if (disk) CHECK(mtx_engine_set_disk(e, dir, budget, 3600, NULL) == MTX_OK);
  return e;
}

static result run(mtx_engine *e, const char *key, int i, int n) {
  mtx_request r = ask(prompt[i], n, NEW);
  r.ignore_eos = true;
  r.logprobs = 0;
  r.cache_key = key;
  return run_one(e, &r);
}

static bool equal(const result *a, const result *b) {
  return a->n_lp == NEW && b->n_lp == NEW && !memcmp(a->ids, b->ids, NEW * sizeof *a->ids) && !memcmp(a->lp, b->lp, NEW * sizeof *a->lp);
}

static void test_model(const char *name, const mtx_model *m, const mtx_tok *tok, const mtx_model *other, const mtx_tok *other_tok) {
  static result cold[3];
  uint64_t bytes;
  mtx_engine *e = engine(m, tok, MTX_KV_F16, false, 0);
  for (int i = 0; i < 3; i++) cold[i] = run(e, NULL, i, LEN);
  mtx_engine_close(e);
  CHECK(n_files() == 0, "off writes nothing");

  e = engine(m, tok, MTX_KV_F16, true, 1 << 30);
  result x = run(e, "k", 0, LEN);
  CHECK(equal(&x, &cold[0]) && x.n_cached == 0);
  x = run(e, "k", 1, LEN);
  mtx_engine_close(e);
  CHECK(n_files() == 2, "%s: %d files", name, n_files());

  e = engine(m, tok, MTX_KV_F16, true, 1 << 30);  // after a restart
  x = run(e, "other", 0, LEN);
  CHECK(x.n_cached == 0, "another key's");
  for (int i = 0; i < 2; i++) {
    x = run(e, "k", i, LEN);
    CHECK(equal(&x, &cold[i]) && x.n_cached >= 9 * LEN / 10, "%s: prompt %d: %d from disk", name, i, (int)x.n_cached);
  }
  memcpy(prompt[0] + LEN, cold[0].ids, NEW * sizeof *x.ids);  // the chat goes on
  x = run(e, "k", 0, LEN + NEW + 100);
  CHECK(x.n_cached >= LEN - 1);
  check_idle(e);
  mtx_engine_close(e);
  CHECK(n_files() == 3, "%s: the longer one stands for the shorter: %d files", name, n_files());

  e = engine(m, tok, MTX_KV_Q8_0, true, 1 << 30);
  x = run(e, "k", 1, LEN);
  CHECK(x.n_cached == 0, "another KV type");
  mtx_engine_set_disk(e, NULL, 0, 0, NULL);  // and it leaves nothing
  mtx_engine_close(e);
  e = engine(other, other_tok, MTX_KV_F16, true, 1 << 30);
  x = run(e, "k", 1, LEN);
  CHECK(x.n_cached == 0, "another model");
  mtx_engine_set_disk(e, NULL, 0, 0, NULL);
  mtx_engine_close(e);
  CHECK(n_files() == 3);

  files(&bytes, damage);
  e = engine(m, tok, MTX_KV_F16, true, 1 << 30);
  x = run(e, "k", 1, LEN);
  CHECK(equal(&x, &cold[1]) && x.n_cached == 0 && n_files() < 3, "%s: a damaged file is a miss and goes: %d cached, %d files", name, (int)x.n_cached, n_files());
  mtx_engine_set_disk(e, NULL, 0, 0, NULL);
  mtx_engine_close(e);
  files(&bytes, make_old);
  e = engine(m, tok, MTX_KV_F16, true, 1 << 30);
  run(e, "k", 1, LEN);
  mtx_engine_close(e);
  int n = files(&bytes, NULL);
  CHECK(n == 1, "%s: files too old go: %d are left", name, n);
  uint64_t one = bytes;

  e = engine(m, tok, MTX_KV_F16, true, 2 * one + one / 4);
  for (int i = 0; i < 3; i++) run(e, i ? "k" : "j", i, LEN);
  mtx_engine_close(e);
  n = files(&bytes, NULL);
  CHECK(n >= 1 && n <= 2 && bytes <= 2 * one + one / 4, "%s: %d files of %d bytes, one has %d", name, n, (int)bytes, (int)one);
  e = engine(m, tok, MTX_KV_F16, true, 1 << 30);
  x = run(e, "k", 2, LEN);
  CHECK(equal(&x, &cold[2]) && x.n_cached >= 9 * LEN / 10, "%s: the last used one stays: %d", name, (int)x.n_cached);
  CHECK(!mtx_engine_forget_prefix(e, NULL, NULL, 0, &(int64_t){0}, NULL));
  check_idle(e);
  CHECK(n_files() == 0, "what is forgotten goes from the disk, too: %d files", n_files());
  mtx_engine_close(e);
  CHECK(n_files() == 0, "what was forgotten is not written");
}

// Saved while the engine runs: what is new and only that, found by another engine, gone when it is forgotten.
static void test_live(const char *name, const mtx_model *m, const mtx_tok *tok) {
  static result cold[2];
  int n = 0;
  mtx_err err = {0};
  mtx_engine *e = engine(m, tok, MTX_KV_F16, true, 1 << 30), *other;
  for (int i = 0; i < 2; i++) cold[i] = run(e, "k", i, LEN);
  CHECK(!mtx_engine_store_disk(e, &n, &err) && n == 2 && n_files() == 2, "%s: %d written, %d files: %s", name, n, n_files(), err.msg);
  CHECK(!mtx_engine_store_disk(e, &n, &err) && n == 0, "%s: %d written anew", name, n);
  other = engine(m, tok, MTX_KV_F16, true, 1 << 30);
  result x = run(other, "k", 1, LEN);
  CHECK(equal(&x, &cold[1]) && x.n_cached >= 9 * LEN / 10, "%s: %d from disk", name, (int)x.n_cached);
  memcpy(prompt[0] + LEN, cold[0].ids, NEW * sizeof *x.ids);
  run(e, "k", 0, LEN + NEW + 100);
  CHECK(!mtx_engine_store_disk(e, &n, &err) && n == 1 && n_files() == 2, "%s: the longer one stands for the shorter: %d files", name, n_files());
  check_idle(e);
  int64_t known;
  CHECK(!mtx_engine_forget_prefix(e, "k", prompt[0], LEN + NEW, &known, &err) && n_files() == 1, "%s: %d files", name, n_files());
  CHECK(!mtx_engine_store_disk(e, &n, &err) && n == 0);
  CHECK(!mtx_engine_set_disk(e, NULL, 0, 0, NULL) && !mtx_engine_store_disk(e, &n, &err) && n == 0, "off writes nothing");
  mtx_engine_close(e);
  CHECK(!mtx_engine_forget_prefix(other, NULL, NULL, 0, &known, NULL));
  mtx_engine_close(other);
  CHECK(n_files() == 0);
}

// No room for a file: said with its name and the reason, no part of it is left, and the engine goes on.
static void test_full(const mtx_model *m, const mtx_tok *tok) {
  int n = 0;
  mtx_err err = {0};
  struct rlimit old, small;
  mtx_engine *e = engine(m, tok, MTX_KV_F16, true, 1 << 30);
  result x = run(e, "k", 0, LEN), again;
  CHECK(!getrlimit(RLIMIT_FSIZE, &old));
  small = (struct rlimit){4096, old.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  CHECK(!setrlimit(RLIMIT_FSIZE, &small));
  CHECK(mtx_engine_store_disk(e, &n, &err) == MTX_EIO && n == 0 && strstr(err.msg, strerror(EFBIG)) && strstr(err.file, dir), "%s: %s", err.file, err.msg);
  CHECK(n_files() == 0, "%d files", n_files());
  again = run(e, "k", 0, LEN);
  CHECK(equal(&x, &again));
  err = (mtx_err){0};
  CHECK(mtx_engine_stop(e, &err) == MTX_EIO && strstr(err.msg, strerror(EFBIG)) && n_files() == 0, "%s", err.msg);
  CHECK(!setrlimit(RLIMIT_FSIZE, &old));
  mtx_engine_close(e);
}

int main(void) {
  static const char *const names[] = {"llama", "gemma3", "mamba2", "qwen35"};
  enum { N = sizeof names / sizeof *names };
  mtx_model *model[N] = {0};
  mtx_tok *tok[N] = {0};
  int n_models;
  golden_model *models = golden_arch_models(&n_models);
  mtx_kern_init(MTX_TIER_AMX);
  uint64_t rng = 1;
  for (int i = 0; i < 3 * N_CTX; i++) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    prompt[i / N_CTX][i % N_CTX] = (int32_t)(4 + (rng >> 33) % 120);
  }
  temp_mkdir(dir);
  for (int k = 0; k < N; k++) {
    mtx_err err;
    bool ok = golden_open(models, n_models, names[k], &model[k], &tok[k], &err);
    CHECK(ok, "%s: %s %s", names[k], err.key, err.msg);
    if (!ok) return check_report();
  }
  for (int k = 0; k < N; k++) test_model(names[k], model[k], tok[k], model[(k + 1) % N], tok[(k + 1) % N]);
  for (int k = 0; k < N; k++) test_live(names[k], model[k], tok[k]);
  test_full(model[0], tok[0]);
  for (int k = 0; k < N; k++) {
    mtx_tok_close(tok[k]);
    mtx_model_close(model[k]);
  }
  golden_arch_free(models, n_models);
  return check_report();
}
