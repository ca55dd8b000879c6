// SPDX-License-Identifier: MIT
// Any bytes as a GGUF file: open, then touch everything the accessors give.
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"

static volatile uint64_t sink;

static void touch_kv(const mtx_gguf *g, const mtx_gguf_kv *kv) {
  char key[256];
  uint64_t u;
  uint32_t v;
  float f;
  bool b;
  mtx_str s = {"", 0};
  for (uint64_t i = 0; i < kv->n; i++) {
    mtx_str item = mtx_gguf_item_str(kv, i);
    sink += (uint64_t)mtx_gguf_item_i64(kv, i) + (mtx_gguf_item_f64(kv, i) > 0) + (item.len ? (uint8_t)item.ptr[item.len - 1] : 0);
  }
  if (kv->key.len >= sizeof key) return;
  memcpy(key, kv->key.ptr, kv->key.len);
  key[kv->key.len] = 0;
  if (mtx_gguf_find(g, key) != kv) abort();
  mtx_gguf_get_u64(g, key, true, &u, NULL);
  mtx_gguf_get_u32(g, key, true, &v, NULL);
  mtx_gguf_get_f32(g, key, true, &f, NULL);
  mtx_gguf_get_bool(g, key, true, &b, NULL);
  if (mtx_gguf_get_str(g, key, true, &s, NULL) == MTX_OK && s.len) sink += (uint8_t)s.ptr[0] + (uint8_t)s.ptr[s.len - 1];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  for (int flags = 0; flags <= MTX_GGUF_VOCAB_ONLY; flags++) {
    mtx_gguf *g;
    mtx_err err;
    char text[256];
    mtx_code code = mtx_gguf_open_mem(&g, data, size, flags, &err);
    if (code != MTX_OK) {
      if (g || err.code != code) abort();
      mtx_err_format(&err, text, sizeof text);
      continue;
    }
    for (uint64_t i = 0; i < mtx_gguf_n_kv(g); i++) touch_kv(g, mtx_gguf_kv_at(g, i));
    for (uint64_t i = 0; i < mtx_gguf_n_tensors(g); i++) {
      const mtx_gguf_tensor *t = mtx_gguf_tensor_at(g, i);
      const uint8_t *p = t->data;
      if ((p != NULL) != !flags) abort();
      if (p) sink += p[0] + p[t->n_bytes - 1];
    }
    mtx_gguf_close(g);
  }
  return 0;
}
