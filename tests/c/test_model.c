// SPDX-License-Identifier: MIT
// Opening models that cannot run: each is refused with a sentence that names file
// and key, and nothing leaks. Made from the golden llama model by editing its header.
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "engine/step.h"
#include "golden_arch.h"
#include "kern/kern.h"

typedef struct {
  uint8_t *bytes;
  size_t n;
} file;

static size_t find(const file *f, const char *what) {
  size_t len = strlen(what);
  for (size_t i = 0; i + len <= f->n; i++)
    if (memcmp(f->bytes + i, what, len) == 0) return i;
  fprintf(stderr, "the golden model lacks %s\n", what);
  exit(2);
}

// Overwrites the u32 value of a metadata key.
static void set_u32(file *f, const char *key, uint32_t v) { memcpy(f->bytes + find(f, key) + strlen(key) + 4, &v, 4); }

static mtx_code open_bytes(const file *f, size_t n, mtx_err *err) {
  char path[TEMP_PATH];
  temp_write(path, f->bytes, n);
  mtx_model *m;
  mtx_code code = mtx_model_open(&m, path, NULL, err);
  mtx_context *c = NULL;
  if (code == MTX_OK) code = mtx_context_open(&c, m, NULL, err);
  mtx_context_close(c);
  mtx_model_close(m);
  unlink(path);
  return code;
}

static file fresh(const golden_model *m) { return (file){golden_arch_make(m), m->n_bytes}; }

static void refused(const golden_model *m, const char *name, const char *key, uint32_t v, mtx_code want, const char *says) {
  file f = fresh(m);
  mtx_err err = {0};
  set_u32(&f, key, v);
  mtx_code code = open_bytes(&f, f.n, &err);
  CHECK(code == want && strstr(err.msg, says) && err.file[0] && err.key[0], "%s: code %s, %s: %s: %s", name, mtx_code_name(code), err.file, err.key, err.msg);
  free(f.bytes);
}

int main(void) {
  mtx_kern_init(MTX_TIER_AMX);
  int n;
  golden_model *all = golden_arch_models(&n);
  const golden_model *m = golden_arch_find(all, n, "llama");
  if (!m) return fprintf(stderr, "the golden model llama is missing\n"), 2;
  file f = fresh(m);
  mtx_err err = {0};
  CHECK(open_bytes(&f, f.n, &err) == MTX_OK, "%s", err.msg);
  CHECK(open_bytes(&f, f.n - 100, &err) == MTX_EFORMAT && err.key[0], "truncated: %s %s", err.key, err.msg);
  size_t at = find(&f, "general.architecture") + 20 + 4 + 8;
  memcpy(f.bytes + at, "lxyma", 5);
  CHECK(open_bytes(&f, f.n, &err) == MTX_EUNSUPPORTED && strstr(err.msg, "lxyma"), "architecture: %s", err.msg);
  free(f.bytes);

  f = fresh(m);
  memcpy(f.bytes + find(&f, "blk.1.attn_q.weight"), "blk.1.attn_Z", 12);
  CHECK(open_bytes(&f, f.n, &err) == MTX_EFORMAT && strstr(err.key, "blk.1.attn_q.weight"), "missing tensor: %s: %s", err.key, err.msg);
  free(f.bytes);

  refused(m, "no heads", "llama.attention.head_count", 0, MTX_EFORMAT, "");
  refused(m, "kv heads", "llama.attention.head_count_kv", 3, MTX_EFORMAT, "divide");
  refused(m, "many heads", "llama.attention.head_count", 1u << 30, MTX_EFORMAT, "outside");
  refused(m, "no layers", "llama.block_count", 0, MTX_EFORMAT, "outside");
  refused(m, "many layers", "llama.block_count", 1u << 31, MTX_EFORMAT, "outside");
  refused(m, "one layer more", "llama.block_count", 3, MTX_EFORMAT, "lacks");
  refused(m, "wrong width", "llama.embedding_length", 65, MTX_EFORMAT, "");
  refused(m, "no context", "llama.context_length", 0, MTX_EFORMAT, "outside");
  refused(m, "wrong ff", "llama.feed_forward_length", 97, MTX_EFORMAT, "shape");
  golden_arch_free(all, n);
  return check_report();
}
