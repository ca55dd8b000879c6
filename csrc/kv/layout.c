// SPDX-License-Identifier: MIT
// Where keys and values lie in a page: see mtx_kv_layout.
#include "kv/kv.h"

static const char *const type_names[MTX_KV_N_TYPES] = {"f32", "f16", "bf16", "q8_0"};

const char *mtx_kv_type_name(mtx_kv_type t) {
  return t >= 0 && t < MTX_KV_N_TYPES ? type_names[t] : "unknown";
}

bool mtx_kv_type_parse(const char *name, mtx_kv_type *out) {
  for (int i = 0; i < MTX_KV_N_TYPES; i++) {
    const char *a = name, *b = type_names[i];
    while (*a && *b && (*a >= 'A' && *a <= 'Z' ? *a + 32 : *a) == *b) a++, b++;
    if (!*a && !*b) {
      *out = (mtx_kv_type)i;
      return true;
    }
  }
  return false;
}

// Bytes of one head's tile of a page's tokens: `width` floats each, scales behind the data for Q8_0.
static bool head_bytes(mtx_kv_type t, int width, size_t *out) {
  static const size_t item[] = {4, 2, 2, 1};
  size_t n, scales = 0;
  if (__builtin_mul_overflow((size_t)width, item[t] * MTX_PAGE_TOKENS, &n)) return false;
  if (t == MTX_KV_Q8_0) scales = ((size_t)width + 31) / 32 * MTX_PAGE_TOKENS * sizeof(float);
  if (__builtin_add_overflow(n, scales + 63, &n)) return false;
  *out = n & ~(size_t)63;
  return true;
}

mtx_code mtx_kv_layout_fill(mtx_kv_layout *l, mtx_err *err) {
  if (l->type < 0 || l->type >= MTX_KV_N_TYPES || l->n_groups < 0 || l->n_groups > MTX_KV_MAX_GROUPS ||
      l->n_layers < 0 || l->n_layers > MTX_KV_MAX_LAYERS)
    return mtx_fail(err, MTX_EINVAL, "KV layout with %d groups and %d layers is out of range", l->n_groups, l->n_layers);
  for (int g = 0; g < l->n_groups; g++) {
    if (l->window[g] < 0) return mtx_fail(err, MTX_EINVAL, "attention window %d is negative", l->window[g]);
    l->page_bytes[g] = 0;
  }
  for (int i = 0; i < l->n_layers; i++) {
    mtx_kv_layer *y = &l->layer[i];
    if (y->group < 0 || y->group >= l->n_groups || y->n_head_kv < 0 || y->dk < 0 || y->dv < 0)
      return mtx_fail(err, MTX_EINVAL, "KV layer %d has impossible sizes", i);
    size_t *end = &l->page_bytes[y->group], k, v;
    if (!head_bytes(l->type, y->dk, &y->k_head_bytes) || !head_bytes(l->type, y->dv, &y->v_head_bytes) ||
        __builtin_mul_overflow(y->k_head_bytes, (size_t)y->n_head_kv, &k) ||
        __builtin_mul_overflow(y->v_head_bytes, (size_t)y->n_head_kv, &v))
      return mtx_fail(err, MTX_ELIMIT, "KV layer %d is too large", i);
    y->k_off = *end;
    y->v_off = *end + k;
    if (__builtin_add_overflow(k, v, &k) || __builtin_add_overflow(*end, k, end))
      return mtx_fail(err, MTX_ELIMIT, "KV layer %d is too large", i);
  }
  for (int g = 0; g < l->n_groups; g++)
    if (!l->page_bytes[g]) l->page_bytes[g] = 64;  // a group whose layers store nothing still counts tokens
  return MTX_OK;
}

uint64_t mtx_kv_seq_bytes(const mtx_kv_layout *l, int64_t n_tokens) {
  uint64_t sum = l->state_bytes, bytes;
  for (int g = 0; g < l->n_groups; g++) {
    int64_t n_pages = (n_tokens + MTX_PAGE_TOKENS - 1) / MTX_PAGE_TOKENS, w = l->window[g];
    if (w && w / MTX_PAGE_TOKENS + 2 < n_pages) n_pages = w / MTX_PAGE_TOKENS + 2;  // at both ends a page in part
    if (__builtin_mul_overflow((uint64_t)n_pages, l->page_bytes[g], &bytes) || __builtin_add_overflow(sum, bytes, &sum)) return UINT64_MAX;
  }
  return sum;
}

int64_t mtx_kv_window_start(const mtx_kv_layout *l, int group, int64_t n) {
  int64_t w = l->window[group];
  return w && n - w + 1 > 0 ? n - w + 1 : 0;
}
