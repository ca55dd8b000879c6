// SPDX-License-Identifier: MIT
// Files that say something else than they hold: in a golden model of every architecture each setting takes values that make
// no sense, and each tensor goes missing in turn. The model is refused with a sentence that names file and key, or it opens
// and reads tokens; nothing crashes, hangs or leaks.
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "engine/step.h"
#include "golden_arch.h"
#include "kern/kern.h"

enum { MAX_PLACES = 512, STRING = 8, ARRAY = 9 };

typedef struct {
  size_t at, len;     // of a value, or of a tensor's name
  uint32_t type;      // GGUF's, of a value
  char name[96];
} place;

typedef struct {
  const uint8_t *p;
  size_t at;
} reader;

static uint64_t take(reader *r, int bytes) {
  uint64_t v = 0;
  memcpy(&v, r->p + r->at, (size_t)bytes);
  r->at += (size_t)bytes;
  return v;
}

static size_t size_of(uint32_t type) {
  static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return sizes[type];
}

static void skip(reader *r, uint32_t type) {
  if (type == STRING) {
    r->at += take(r, 8);
  } else if (type == ARRAY) {
    uint32_t item = (uint32_t)take(r, 4);
    for (uint64_t n = take(r, 8); n > 0; n--) skip(r, item);
  } else {
    r->at += size_of(type);
  }
}

static void keep_name(place *x, const reader *r, uint64_t len) {
  snprintf(x->name, sizeof x->name, "%.*s", (int)(len < 90 ? len : 90), (const char *)r->p + r->at);
}

// Scalar settings "<arch>.*", then the tensors' names.
static int places_of(const uint8_t *bytes, const char *arch, place *out, int *n_settings) {
  reader r = {bytes, 8};
  uint64_t n_tensors = take(&r, 8), n_kv = take(&r, 8);
  int n = 0;
  for (uint64_t i = 0; i < n_kv; i++) {
    uint64_t len = take(&r, 8);
    place x = {0};
    keep_name(&x, &r, len);
    r.at += len;
    x.type = (uint32_t)take(&r, 4);
    x.at = r.at;
    x.len = size_of(x.type);
    skip(&r, x.type);
    bool ours = strncmp(x.name, arch, strlen(arch)) == 0 && x.name[strlen(arch)] == '.';
    if (ours && x.len >= 1 && x.len <= 4 && n < MAX_PLACES) out[n++] = x;
  }
  *n_settings = n;
  for (uint64_t i = 0; i < n_tensors; i++) {
    uint64_t len = take(&r, 8);
    place x = {.at = r.at, .len = len};
    keep_name(&x, &r, len);
    r.at += len;
    r.at += 8 * take(&r, 4) + 12;
    if (strncmp(x.name, "blk.0.", 6) != 0 && n < MAX_PLACES) out[n++] = x;
  }
  return n;
}

// Opens the file and, where that works, reads five tokens.
static mtx_code try(const uint8_t *bytes, size_t n, mtx_err *err) {
  char path[TEMP_PATH];
  temp_write(path, bytes, n);
  mtx_model *m = NULL;
  mtx_context *c = NULL;
  int seq;
  mtx_model_opts o = {.n_threads = 1};
  mtx_context_opts co = {.n_ctx = 16, .kv_type = MTX_KV_F32, .n_threads = 1, .max_rows = 16, .max_seqs = 1};
  mtx_code code = mtx_model_open(&m, path, &o, err);
  if (!code) code = mtx_context_open(&c, m, &co, err);
  if (!code) code = mtx_kv_seq_new(mtx_context_kv(c), &seq, err);
  if (!code) {
    mtx_row row[5];
    const float *out;
    for (int i = 0; i < 5; i++) row[i] = (mtx_row){.token = i + 3, .seq = seq, .want = true};
    code = mtx_context_step(c, row, 5, &out, err);
  }
  mtx_context_close(c);
  mtx_model_close(m);
  unlink(path);
  return code;
}

static void check_refusal(const char *model, const place *x, mtx_code code, const mtx_err *err) {
  CHECK(code != MTX_EINTERNAL && (code == MTX_OK || err->msg[0]), "%s with another %s: %s: %s %s", model, x->name, mtx_code_name(code), err->key, err->msg);
}

static int abuse(const golden_model *m, const char *arch) {
  static const uint32_t values[] = {0, 1, 3, 0x7fffffff, 0xffffffff, 0x7fc00000 /* NaN as a float */};
  static place x[MAX_PLACES];
  uint8_t *bytes = golden_arch_make(m);
  int n_settings, n = places_of(bytes, arch, x, &n_settings), refused = 0;
  mtx_err err = {0};
  CHECK(try(bytes, m->n_bytes, &err) == MTX_OK, "%s: %s %s", m->name, err.key, err.msg);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < (i < n_settings ? (int)(sizeof values / sizeof *values) : 1); k++) {
      uint8_t old[4];
      err = (mtx_err){0};
      memcpy(old, bytes + x[i].at, i < n_settings ? x[i].len : 1);
      if (i < n_settings) memcpy(bytes + x[i].at, &values[k], x[i].len);
      else bytes[x[i].at] = '~';  // under this name nobody looks for it
      mtx_code code = try(bytes, m->n_bytes, &err);
      check_refusal(m->name, &x[i], code, &err);
      refused += code != MTX_OK;
      memcpy(bytes + x[i].at, old, i < n_settings ? x[i].len : 1);
    }
  free(bytes);
  return refused;
}

int main(int argc, char **argv) {
  int n, n_models = 0;
  mtx_kern_init(MTX_TIER_AMX);
  golden_model *all = golden_arch_models(&n);
  for (const char *const *arch = mtx_model_architectures(); *arch; arch++) {
    if (argc > 1 && strcmp(argv[1], *arch) != 0) continue;
    for (int i = 0; i < n; i++) {
      if (strcmp(all[i].name, *arch) != 0) continue;
      int refused = abuse(&all[i], *arch);
      CHECK(refused > 10, "%s: only %d of the changed files were refused", *arch, refused);
      n_models++;
    }
  }
  CHECK(n_models > (argc > 1 ? 0 : 80), "%d models", n_models);
  golden_arch_free(all, n);
  return check_report();
}
