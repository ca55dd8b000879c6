// SPDX-License-Identifier: MIT
// Adapters of requests and sessions. What they make of a prompt is not what the base model makes of it, so
// they are part of the key under which it is remembered: in memory, on disk and in saved state.
#include <string.h>

#include "engine/state.h"

mtx_code mtx_check_lora(const mtx_engine *e, const mtx_lora *l, mtx_err *err) {
  if (!l || l->model_id == mtx_model_id(e->model)) return MTX_OK;
  return mtx_fail_at(err, MTX_EINVAL, NULL, "lora", 0, "the adapters are of another model");
}

mtx_code mtx_engine_cache_key(const char *cache_key, const mtx_lora *lora, mtx_buf *dst, mtx_err *err) {
  const char *label = lora ? lora->label : "";
  if (strchr(cache_key, MTX_LORA_MARK)) return mtx_fail_at(err, MTX_EINVAL, NULL, "cache_key", 0, "it holds the byte 0x1f");
  mtx_code rc = mtx_buf_append(dst, cache_key, strlen(cache_key), err);
  return rc ? rc : mtx_buf_append(dst, label, strlen(label) + 1, err);
}

const char *mtx_key_adapters(const char *key, size_t n, size_t *n_adapters) {
  const char *at = n ? memchr(key, MTX_LORA_MARK, n) : NULL;
  *n_adapters = at ? n - (size_t)(at - key) : 0;
  return at ? at : "";
}
