// SPDX-License-Identifier: MIT
// Adapter files that are wrong: each is refused with one error that names the place, and none crashes.
#include <math.h>
#include <unistd.h>

#include "check.h"
#include "gguf/write.h"
#include "golden_open.h"
#include "model/adapter.h"
#include "kern/kern.h"

static char path[TEMP_PATH];
static golden_model *models;
static int n_models;

// A file's change: one pair of tensors, or one key.
typedef struct {
  const char *what;
  const char *a, *b;            // names to add, NULL = none
  int64_t ka, ra, kb, rb, mats; // shapes [ka, ra], [kb, rb]; mats > 1: [.., .., mats]
  uint32_t type;                // of the tensors, in ggml's ids
  const char *key, *text;       // key to set; text NULL = removed
  float number;                 // with text ""
  mtx_code code;
  const char *at, *says;        // what the error names and says
  const char *own;              // a further tensor of 64 floats
} variant;

static float zeros[1 << 20];

static bool write_variant(const char *arch, const variant *v) {
  mtx_gguf_writer *w;
  mtx_err err = {0};
  int32_t tokens[] = {1, 2};
  bool ok = !mtx_gguf_writer_new(&w, &err) && !mtx_gguf_put_str(w, "general.type", (mtx_str){"adapter", 7}, &err) &&
            !mtx_gguf_put_str(w, "general.architecture", (mtx_str){arch, strlen(arch)}, &err) && !mtx_gguf_put_str(w, "adapter.type", (mtx_str){"lora", 4}, &err) &&
            !mtx_gguf_put_f32(w, "adapter.lora.alpha", 8, &err);
  if (ok && v->key && !v->text) ok = mtx_gguf_remove(w, v->key);
  else if (ok && v->key && !strcmp(v->text, "tokens")) ok = !mtx_gguf_put_array(w, v->key, MTX_GGUF_U32, tokens, 2, &err);
  else if (ok && v->key && !*v->text) ok = !mtx_gguf_put_f32(w, v->key, v->number, &err);
  else if (ok && v->key) ok = !mtx_gguf_put_str(w, v->key, (mtx_str){v->text, strlen(v->text)}, &err);
  const char *name[] = {v->a, v->b};
  const uint64_t ne[2][3] = {{(uint64_t)v->ka, (uint64_t)v->ra, (uint64_t)v->mats}, {(uint64_t)v->kb, (uint64_t)v->rb, (uint64_t)v->mats}};
  for (int i = 0; i < 2 && ok; i++) {
    if (!name[i]) continue;
    const mtx_qtype *t = mtx_qtype_get(v->type);
    uint64_t n = ne[i][0] * ne[i][1] * (v->mats > 1 ? ne[i][2] : 1) / t->block * t->block_bytes;
    ok = n <= sizeof zeros && !mtx_gguf_add(w, (mtx_str){name[i], strlen(name[i])}, v->type, v->mats > 1 ? 3 : 2, ne[i], zeros, n, &err);
  }
  if (ok && v->own) ok = !mtx_gguf_add(w, (mtx_str){v->own, strlen(v->own)}, 0, 1, (uint64_t[]){64}, zeros, 256, &err);
  ok = ok && !mtx_gguf_write(w, path, &err);
  CHECK(ok, "%s: %s: %s", v->what, err.key, err.msg);
  mtx_gguf_writer_free(w);
  return ok;
}

static void check_variant(const mtx_model *m, const char *arch, const variant *v) {
  mtx_adapter *a = NULL;
  mtx_err err = {0};
  if (!write_variant(arch, v)) return;
  mtx_code code = mtx_adapter_open(&a, m, path, NULL, &err);
  CHECK(code == v->code, "%s: code %d: %s: %s", v->what, (int)code, err.key, err.msg);
  if (!v->code) CHECK(mtx_adapter_get_info(a)->n_unused == (v->own != NULL), "%s", v->what);
  if (v->code) CHECK(!a && strstr(err.key, v->at) && strstr(err.msg, v->says) && !strcmp(err.file, path), "%s: %s: %s: %s", v->what, err.file, err.key, err.msg);
  mtx_adapter_unref(a);
}

#define Q "blk.0.attn_q.weight"
#define PAIR(base) base ".lora_a", base ".lora_b"
#define GOOD PAIR(Q), 64, 4, 4, 64, 1, 0

// n_embd 64, 128 tokens, attn_q 64 x 64, attn_k 64 x 32, ffn 96.
static const variant on_llama[] = {
    {"good", GOOD, NULL, NULL, 0, MTX_OK, "", "", NULL},
    {"a model", GOOD, "general.type", "model", 0, MTX_EUNSUPPORTED, "general.type", "no adapter", NULL},
    {"no type", GOOD, "general.type", NULL, 0, MTX_ENOTFOUND, "general.type", "", NULL},
    {"a control vector", GOOD, "adapter.type", "control_vector", 0, MTX_EUNSUPPORTED, "adapter.type", "control_vector", NULL},
    {"another architecture", GOOD, "general.architecture", "qwen2", 0, MTX_EUNSUPPORTED, "general.architecture", "qwen2", NULL},
    {"activated", GOOD, "adapter.alora.invocation_tokens", "tokens", 0, MTX_EUNSUPPORTED, "adapter.alora.invocation_tokens", "invocation", NULL},
    {"alpha is a word", GOOD, "adapter.lora.alpha", "many", 0, MTX_EFORMAT, "adapter.lora.alpha", "", NULL},
    {"alpha is NaN", GOOD, "adapter.lora.alpha", "", NAN, MTX_EFORMAT, "adapter.lora.alpha", "finite", NULL},
    {"no alpha", GOOD, "adapter.lora.alpha", NULL, 0, MTX_OK, "", "", NULL},
    {"a name that is a number", GOOD, "general.name", "", 3, MTX_EFORMAT, "general.name", "", NULL},
    {"no tensors", NULL, NULL, 0, 0, 0, 0, 1, 0, NULL, NULL, 0, MTX_EFORMAT, "", "no pair", NULL},
    {"half a pair", Q ".lora_a", NULL, 64, 4, 0, 0, 1, 0, NULL, NULL, 0, MTX_EFORMAT, Q, "lora_b", NULL},
    {"the other half", NULL, Q ".lora_b", 0, 0, 4, 64, 1, 0, NULL, NULL, 0, MTX_EFORMAT, Q, "lora_a", NULL},
    {"no suffix", Q, NULL, 64, 64, 0, 0, 1, 0, NULL, NULL, 0, MTX_EFORMAT, Q, "lora_a", NULL},
    {"suffix only", ".lora_a", ".lora_b", 64, 4, 4, 64, 1, 0, NULL, NULL, 0, MTX_EFORMAT, "", "another model", NULL},
    {"a layer that is not there", PAIR("blk.9.attn_q.weight"), 64, 4, 4, 64, 1, 0, NULL, NULL, 0, MTX_EFORMAT, "blk.9.attn_q.weight", "another model", NULL},
    {"rows too long", PAIR(Q), 65, 4, 4, 64, 1, 0, NULL, NULL, 0, MTX_EFORMAT, Q, "64 x rank", NULL},
    {"too few outputs", PAIR(Q), 64, 4, 4, 63, 1, 0, NULL, NULL, 0, MTX_EFORMAT, Q, "rank x 64", NULL},
    {"two ranks", PAIR(Q), 64, 4, 5, 64, 1, 0, NULL, NULL, 0, MTX_EFORMAT, Q, "64 x 4 and 5 x 64", NULL},
    {"halves changed", PAIR(Q), 4, 64, 64, 4, 1, 0, NULL, NULL, 0, MTX_EFORMAT, Q, "64 x rank", NULL},
    {"a stack", PAIR(Q), 64, 4, 4, 64, 2, 0, NULL, NULL, 0, MTX_EFORMAT, Q, "64 x rank", NULL},
    {"a large rank", PAIR(Q), 64, 1024, 1024, 64, 1, 0, NULL, NULL, 0, MTX_OK, "", "", NULL},
    {"a huge rank", PAIR(Q), 64, 1025, 1025, 64, 1, 0, NULL, NULL, 0, MTX_EFORMAT, Q, "1025", NULL},
    {"a vector", PAIR("blk.0.attn_norm.weight"), 64, 1, 1, 1, 1, 0, NULL, NULL, 0, MTX_EUNSUPPORTED, "attn_norm", "vectors", NULL},
    {"a norm of its own", "blk.0.attn_norm.weight", NULL, 64, 1, 0, 0, 1, 0, NULL, NULL, 0, MTX_EFORMAT, "", "no pair", NULL},
    {"a norm of its own beside a pair", GOOD, NULL, NULL, 0, MTX_OK, "", "", "blk.0.attn_norm.weight"},
    {"a bias of its own", GOOD, NULL, NULL, 0, MTX_EFORMAT, "attn_q.bias", "lora_a", "blk.0.attn_q.bias"},
    {"quantised", PAIR(Q), 64, 32, 32, 64, 1, 2, NULL, NULL, 0, MTX_EUNSUPPORTED, Q, "Q8_0", NULL},
    {"Q8_0", PAIR(Q), 64, 32, 32, 64, 1, 8, NULL, NULL, 0, MTX_OK, "", "", NULL},
    {"the table", PAIR("token_embd.weight"), 4, 128, 4, 64, 1, 0, NULL, NULL, 0, MTX_OK, "", "", NULL},
    {"the table, not transposed", PAIR("token_embd.weight"), 128, 4, 4, 64, 1, 0, NULL, NULL, 0, MTX_EFORMAT, "token_embd", "rank x 128", NULL},
};
static const variant on_gemma3[] = {
    {"a tied table", PAIR("token_embd.weight"), 4, 128, 4, 64, 1, 0, NULL, NULL, 0, MTX_EUNSUPPORTED, "token_embd", "tied", NULL}};
static const variant on_qwen3moe[] = {
    {"experts", PAIR("blk.0.ffn_up_exps.weight"), 64, 4, 4, 48, 4, 0, NULL, NULL, 0, MTX_EUNSUPPORTED, "ffn_up_exps", "experts", NULL}};
static const variant on_mamba2[] = {
    {"a convolution", PAIR("blk.0.ssm_conv1d.weight"), 4, 1, 1, 1, 1, 0, NULL, NULL, 0, MTX_EUNSUPPORTED, "ssm_conv1d", "vectors", NULL}};

static void check_all(const char *name, const variant *v, int n) {
  mtx_model *m = NULL;
  char file[TEMP_PATH];
  mtx_err err = {0};
  CHECK(golden_arch_write(models, n_models, name, file) && mtx_model_open(&m, file, NULL, &err) == MTX_OK, "%s: %s", name, err.msg);
  unlink(file);
  for (int i = 0; m && i < n; i++) check_variant(m, name, &v[i]);
  mtx_model_close(m);
}

static uint32_t seed = 1;
static uint32_t rnd(uint32_t n) { return (seed = seed * 1664525u + 1013904223u) / 65536 % n; }

// A good file with bytes changed, or cut short: refused, or read as what it says.
static void test_damage(void) {
  mtx_model *m = NULL;
  mtx_adapter *a;
  char file[TEMP_PATH];
  mtx_err err = {0};
  static uint8_t good[1 << 17], bad[1 << 17];
  FILE *f = fopen("tests/golden/lora/llama-qv.gguf", "rb");
  size_t n = f ? fread(good, 1, sizeof good, f) : 0;
  if (f) fclose(f);
  CHECK(n > 1000 && golden_arch_write(models, n_models, "llama", file) && mtx_model_open(&m, file, NULL, &err) == MTX_OK, "%s", err.msg);
  CHECK(mtx_adapter_open(&a, m, file, NULL, &err) == MTX_ENOTFOUND && strstr(err.key, "general.type"), "a model as an adapter: %s", err.msg);
  CHECK(mtx_adapter_open(&a, m, "/tmp/mtx-none.gguf", NULL, &err) == MTX_ENOTFOUND, "%s", err.msg);
  unlink(file);
  int n_refused = 0;
  for (int i = 0; m && i < 600; i++) {
    size_t len = i % 3 ? n : rnd((uint32_t)n);
    memcpy(bad, good, n);
    for (int k = 0; i % 3 && k < 1 + (int)rnd(3); k++) bad[rnd(i % 2 ? 1400 : (uint32_t)n)] ^= (uint8_t)(1u << rnd(8));
    f = fopen(path, "wb");
    CHECK(f && fwrite(bad, 1, len, f) == len);
    if (f) fclose(f);
    mtx_code code = mtx_adapter_open(&a, m, path, NULL, &err);
    CHECK(i % 3 || code, "cut to %zu of %zu bytes", len, n);
    n_refused += code != MTX_OK;
    mtx_adapter_unref(a);
  }
  CHECK(n_refused > 300, "%d", n_refused);
  mtx_model_close(m);
}

static void test_sets(void) {
  mtx_model *m = NULL, *other = NULL;
  mtx_adapter *a = NULL;
  mtx_lora *l = NULL;
  char file[TEMP_PATH];
  mtx_err err = {0};
  CHECK(golden_arch_write(models, n_models, "llama", file) && !mtx_model_open(&m, file, NULL, &err) && !mtx_model_open(&other, file, NULL, &err), "%s", err.msg);
  unlink(file);
  CHECK(!mtx_adapter_open(&a, m, "tests/golden/lora/llama-qv.gguf", NULL, &err), "%s", err.msg);
  const mtx_adapter_info *i = mtx_adapter_get_info(a);
  CHECK(i->max_rank == 3 && i->n_pairs == 4 && i->alpha == 0 && !strcmp(i->name, "llama-qv") && !strcmp(i->task_name, "task of llama-qv") && !*i->prompt_prefix && i->weight_bytes > 0);
  mtx_adapter *many[17];
  float scale[17];
  for (int k = 0; k < 17; k++) many[k] = a, scale[k] = 1;
  CHECK(mtx_lora_new(&l, m, many, scale, 17, &err) == MTX_EINVAL && strstr(err.msg, "17"), "%s", err.msg);
  CHECK(mtx_lora_new(&l, m, many, scale, 2, &err) == MTX_EINVAL && strstr(err.msg, "twice"), "%s", err.msg);
  CHECK(mtx_lora_new(&l, other, many, scale, 1, &err) == MTX_EINVAL && strstr(err.msg, "another model"), "%s", err.msg);
  scale[0] = NAN;
  CHECK(mtx_lora_new(&l, m, many, scale, 1, &err) == MTX_EINVAL && strstr(err.msg, "finite"), "%s", err.msg);
  scale[0] = 0;
  CHECK(mtx_lora_new(&l, m, many, scale, 1, &err) == MTX_OK && !l && mtx_lora_new(&l, m, many, scale, 0, &err) == MTX_OK && !l);
  mtx_adapter_unref(a);
  mtx_model_close(m);
  mtx_model_close(other);
}

int main(void) {
  mtx_kern_init(MTX_TIER_AMX);
  models = golden_arch_models(&n_models);
  temp_path(path);
  check_all("llama", on_llama, sizeof on_llama / sizeof *on_llama);
  check_all("gemma3", on_gemma3, 1);
  check_all("qwen3moe", on_qwen3moe, 1);
  check_all("mamba2", on_mamba2, 1);
  test_damage();
  test_sets();
  golden_arch_free(models, n_models);
  return check_report();
}
