// SPDX-License-Identifier: MIT
// Reading and checking hyperparameters: see hparams.h.
#include "model/hparams.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void full_key(const mtx_hparams *h, const char *key, char dst[192]) { snprintf(dst, 192, "%s.%s", h->arch, key); }

void mtx_h_fail(mtx_hparams *h, mtx_code code, const char *key, const char *fmt, ...) {
  if (h->err.code) return;
  char full[192], msg[400];
  full_key(h, key, full);
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(msg, sizeof msg, fmt, ap);
  va_end(ap);
  mtx_fail_at(&h->err, code, mtx_gguf_path(h->file), full, 0, "%s", msg);
}

bool mtx_h_has(const mtx_hparams *h, const char *key) {
  char full[192];
  full_key(h, key, full);
  return mtx_gguf_find(h->file, full) != NULL;
}

// Sticky: only the first error is kept.
static mtx_err *sink(mtx_hparams *h, mtx_err *spare) { return h->err.code ? spare : &h->err; }

uint32_t mtx_h_u32(mtx_hparams *h, const char *key, uint32_t def) {
  char full[192];
  mtx_err spare;
  full_key(h, key, full);
  mtx_gguf_get_u32(h->file, full, false, &def, sink(h, &spare));
  return def;
}

float mtx_h_f32(mtx_hparams *h, const char *key, float def) {
  char full[192];
  mtx_err spare;
  float v = def;
  full_key(h, key, full);
  mtx_gguf_get_f32(h->file, full, false, &v, sink(h, &spare));
  if (!isfinite(v)) mtx_h_fail(h, MTX_EFORMAT, key, "value is not a finite number");
  return v;
}

bool mtx_h_bool(mtx_hparams *h, const char *key, bool def) {
  char full[192];
  mtx_err spare;
  full_key(h, key, full);
  mtx_gguf_get_bool(h->file, full, false, &def, sink(h, &spare));
  return def;
}

uint32_t mtx_h_need(mtx_hparams *h, const char *key, uint32_t lo, uint32_t hi) {
  if (!mtx_h_has(h, key)) {
    mtx_h_fail(h, MTX_EFORMAT, key, "the file lacks this setting, which its architecture needs");
    return lo;
  }
  uint32_t v = mtx_h_u32(h, key, lo);
  if (v < lo || v > hi) {
    mtx_h_fail(h, MTX_EFORMAT, key, "value %u is outside %u to %u", v, lo, hi);
    return lo;
  }
  return v;
}

int64_t mtx_h_layer(mtx_hparams *h, const char *key, int il, int64_t def) {
  char full[192];
  full_key(h, key, full);
  const mtx_gguf_kv *kv = mtx_gguf_find(h->file, full);
  if (!kv) return def;
  if (kv->type != MTX_GGUF_ARRAY) {
    if (kv->type == MTX_GGUF_STRING || kv->type == MTX_GGUF_F32 || kv->type == MTX_GGUF_F64) {
      mtx_h_fail(h, MTX_EFORMAT, key, "should be a whole number or a list of them");
      return def;
    }
    return mtx_gguf_item_i64(kv, 0);
  }
  if (kv->n < (uint64_t)h->n_layer || kv->item_type == MTX_GGUF_STRING) {
    mtx_h_fail(h, MTX_EFORMAT, key, "list has %llu entries for %d layers", (unsigned long long)kv->n, h->n_layer);
    return def;
  }
  return mtx_gguf_item_i64(kv, (uint64_t)il);
}

bool mtx_h_local(mtx_hparams *h, int il, uint32_t period) {
  char full[192];
  full_key(h, "attention.sliding_window_pattern", full);
  const mtx_gguf_kv *kv = mtx_gguf_find(h->file, full);
  int64_t v = mtx_h_layer(h, "attention.sliding_window_pattern", il, period);
  if (h->window <= 0) return false;
  if (kv && kv->type == MTX_GGUF_ARRAY) return v != 0;
  return v > 0 && il % v < v - 1;
}

void mtx_h_drop_nextn(mtx_hparams *h) {
  uint32_t n = mtx_h_u32(h, "nextn_predict_layers", 0);
  if (n >= (uint32_t)h->n_layer) mtx_h_fail(h, MTX_EFORMAT, "nextn_predict_layers", "%u of %d layers predict further tokens; none would be left", n, h->n_layer);
  else h->n_layer -= (int)n;
}

static int layer_count(mtx_hparams *h, const char *key, int il, int64_t def, int64_t max) {
  int64_t v = mtx_h_layer(h, key, il, def);
  if (v < 0 || v > max) {
    mtx_h_fail(h, MTX_EFORMAT, key, "value %lld in layer %d is outside 0 to %lld", (long long)v, il, (long long)max);
    return 0;
  }
  return (int)v;
}

// Settings of YaRN and linear scaling; the attention factor follows llama.cpp: with YaRN the
// total magnitude is (1 + 0.1 ln f), or its ratio to that of yarn_log_multiplier (DeepSeek).
static void read_rope(mtx_hparams *h) {
  mtx_rope *r = &h->rope;
  r->n_rot = (int)mtx_h_u32(h, "rope.dimension_count", (uint32_t)h->dk);
  r->base = mtx_h_f32(h, "rope.freq_base", 10000.0f);
  float factor = mtx_h_f32(h, "rope.scaling.factor", 0.0f);
  if (factor == 0.0f) factor = mtx_h_f32(h, "rope.scale_linear", 1.0f);
  if (factor == 0.0f) factor = 1.0f;
  mtx_str type = {"linear", 6};
  char full[192];
  full_key(h, "rope.scaling.type", full);
  mtx_gguf_get_str(h->file, full, false, &type, NULL);
  bool none = type.len == 4 && memcmp(type.ptr, "none", 4) == 0, yarn = type.len == 4 && memcmp(type.ptr, "yarn", 4) == 0;
  r->scale = none ? 1.0f : 1.0f / factor;
  r->ext = yarn ? mtx_h_f32(h, "rope.scaling.yarn_ext_factor", 1.0f) : 0.0f;
  r->beta_fast = mtx_h_f32(h, "rope.scaling.yarn_beta_fast", 32.0f);
  r->beta_slow = mtx_h_f32(h, "rope.scaling.yarn_beta_slow", 1.0f);
  r->n_ctx_orig = (int)mtx_h_u32(h, "rope.scaling.original_context_length", (uint32_t)h->n_ctx_train);
  r->attn = mtx_h_f32(h, "rope.scaling.attn_factor", 1.0f);
  float log_mul = mtx_h_f32(h, "rope.scaling.yarn_log_multiplier", 0.0f);
  if (yarn && log_mul != 0.0f && factor > 1.0f)
    r->attn *= 1.0f / (0.1f * log_mul * logf(factor) + 1.0f);
  if (r->n_rot < 0 || r->n_rot > 4096 || r->n_rot % 2) mtx_h_fail(h, MTX_EFORMAT, "rope.dimension_count", "value %d is not an even number up to 4096", r->n_rot);
  if (r->base <= 0.0f || factor <= 0.0f) mtx_h_fail(h, MTX_EFORMAT, "rope.freq_base", "rotary base and factor must be above 0");
  if (r->n_ctx_orig <= 0) r->n_ctx_orig = h->n_ctx_train;
}

static void read_heads(mtx_hparams *h) {
  int n_head = 0;
  for (int il = 0; il < h->n_layer; il++) {
    h->n_head[il] = layer_count(h, "attention.head_count", il, 0, 65536);
    h->n_head_kv[il] = layer_count(h, "attention.head_count_kv", il, h->n_head[il], 65536);
    h->n_ff[il] = layer_count(h, "feed_forward_length", il, 0, 1 << 24);
    if (h->n_head[il] > 0 && h->n_head_kv[il] > 0 && h->n_head[il] % h->n_head_kv[il])
      mtx_h_fail(h, MTX_EFORMAT, "attention.head_count_kv", "%d key heads do not divide %d query heads", h->n_head_kv[il], h->n_head[il]);
    if (n_head == 0) n_head = h->n_head[il];
  }
  int dk = n_head > 0 ? h->n_embd / n_head : 0;
  h->dk = (int)mtx_h_u32(h, "attention.key_length", (uint32_t)dk);
  h->dv = (int)mtx_h_u32(h, "attention.value_length", (uint32_t)dk);
  if (h->dk < 0 || h->dk > 8192 || h->dv < 0 || h->dv > 8192) mtx_h_fail(h, MTX_EFORMAT, "attention.key_length", "head size is outside 0 to 8192");
}

// The embedding table tells how many tokens there are; a different token list is an error.
static void read_vocab(mtx_hparams *h) {
  const mtx_gguf_tensor *t = mtx_gguf_tensor_find(h->file, "token_embd.weight");
  if (!t) {
    if (!h->err.code) mtx_fail_at(&h->err, MTX_EFORMAT, mtx_gguf_path(h->file), "token_embd.weight", 0, "the file holds no token embeddings; is it a vocabulary-only or projector file?");
    return;
  }
  if (t->ne[1] == 0 || t->ne[1] > INT32_MAX) {
    mtx_h_fail(h, MTX_EFORMAT, "vocab_size", "token embedding table has %llu rows", (unsigned long long)t->ne[1]);
    return;
  }
  h->n_vocab = (int)t->ne[1];
}

mtx_code mtx_hparams_read(mtx_hparams *h, const mtx_gguf *file, mtx_err *err) {
  memset(h, 0, sizeof *h);
  h->file = file;
  h->causal = h->has_logits = true;
  mtx_str arch;
  mtx_code code = mtx_gguf_get_str(file, "general.architecture", true, &arch, err);
  if (code) return code;
  if (arch.len == 0 || arch.len >= sizeof h->arch)
    return mtx_fail_at(err, MTX_EFORMAT, mtx_gguf_path(file), "general.architecture", 0, "name of %zu bytes; 1 to 63 are possible", arch.len);
  memcpy(h->arch, arch.ptr, arch.len);
  h->n_layer = (int)mtx_h_need(h, "block_count", 1, MTX_MAX_LAYERS);
  h->n_embd = (int)mtx_h_need(h, "embedding_length", 1, 1 << 20);
  h->n_ctx_train = (int)mtx_h_need(h, "context_length", 1, 1 << 30);
  read_vocab(h);
  read_heads(h);
  h->rms_eps = mtx_h_f32(h, "attention.layer_norm_rms_epsilon", 0.0f);
  h->ln_eps = mtx_h_f32(h, "attention.layer_norm_epsilon", 0.0f);
  h->n_expert = (int)mtx_h_u32(h, "expert_count", 0);
  h->n_expert_used = (int)mtx_h_u32(h, "expert_used_count", 0);
  if (h->n_expert < 0 || h->n_expert > 1024 || h->n_expert_used < 0 || h->n_expert_used > h->n_expert)
    mtx_h_fail(h, MTX_EFORMAT, "expert_used_count", "%d of %d experts cannot be used (at most 1024 experts)", h->n_expert_used, h->n_expert);
  uint32_t window = mtx_h_has(h, "attention.sliding_window_pattern") || mtx_h_has(h, "attention.sliding_window") ? mtx_h_u32(h, "attention.sliding_window", 0) : 0;
  if (window > (1u << 30)) mtx_h_fail(h, MTX_EFORMAT, "attention.sliding_window", "window of %u tokens is not possible", window);
  h->window = (int)window;
  read_rope(h);
  if (h->err.code && err) *err = h->err;
  return h->err.code;
}
