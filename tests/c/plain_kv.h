// SPDX-License-Identifier: MIT
// Sequences as plain arrays of tokens: what a row of the KV cache could see must be
// exactly these. Layer y of a token's value rows begins with token + y; the
// recurrent state is a hash of all tokens.
#ifndef MTX_TESTS_PLAIN_KV_H
#define MTX_TESTS_PLAIN_KV_H

#include "kv/kv.h"

enum { P = MTX_PAGE_TOKENS, MAX_LEN = 4096 };

typedef struct {
  bool used;
  int64_t len;
  uint32_t token[MAX_LEN];
} plain;

static uint64_t rng_state;
static inline uint32_t rnd(uint32_t n) {
  rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(rng_state >> 33) % n;
}

static inline mtx_kv_layout layout_make(int n_groups, int window, size_t state_bytes) {
  mtx_kv_layout l = {.type = MTX_KV_F32, .n_groups = n_groups, .state_bytes = state_bytes, .n_layers = n_groups * 2};
  if (n_groups > 1) l.window[1] = window;
  for (int i = 0; i < l.n_layers; i++) l.layer[i] = (mtx_kv_layer){.group = i % n_groups, .n_head_kv = 2, .dk = 4, .dv = 3};
  return l;
}

static inline uint32_t *slot(mtx_kv *kv, int seq, int layer, int64_t t) {
  const mtx_kv_layer *y = &mtx_kv_get_layout(kv)->layer[layer];
  uint8_t *page = mtx_kv_seq_pages(kv, seq, y->group)[t / P];
  return page ? (uint32_t *)(page + y->v_off + y->v_head_bytes) + (t % P) * y->dv : NULL;
}

static inline uint64_t mix(uint64_t h, uint32_t token) { return (h ^ token) * 1099511628211u + 1; }

// Appends tokens[0..n) the way a step does.
static inline mtx_code append_tokens(mtx_kv *kv, int seq, plain *s, const uint32_t *tokens, int64_t n) {
  const mtx_kv_layout *l = mtx_kv_get_layout(kv);
  mtx_code rc = mtx_kv_seq_reserve(kv, seq, n, NULL);
  if (rc) return rc;
  for (int64_t i = 0; i < n; i++) {
    uint32_t token = tokens[i];
    s->token[s->len + i] = token;
    for (int y = 0; y < l->n_layers; y++) *slot(kv, seq, y, s->len + i) = token + (uint32_t)y;
    if (l->state_bytes) {
      uint64_t *h = mtx_kv_seq_state(kv, seq);
      *h = mix(*h, token);
    }
  }
  s->len += n;
  mtx_kv_seq_advance(kv, seq, n);
  return MTX_OK;
}

static inline mtx_code append(mtx_kv *kv, int seq, plain *s, int64_t n) {
  static uint32_t tokens[MAX_LEN];
  for (int64_t i = 0; i < n; i++) tokens[i] = rnd(1u << 30);
  return append_tokens(kv, seq, s, tokens, n);
}

// Does the cache hold for seq exactly what s says?
static inline bool same(mtx_kv *kv, int seq, const plain *s) {
  const mtx_kv_layout *l = mtx_kv_get_layout(kv);
  if (!mtx_kv_seq_valid(kv, seq) || mtx_kv_seq_len(kv, seq) != s->len) return false;
  for (int y = 0; y < l->n_layers; y++) {
    int64_t w = l->window[l->layer[y].group];
    for (int64_t t = w && s->len - w + 1 > 0 ? s->len - w + 1 : 0; t < s->len; t++) {
      uint32_t *p = slot(kv, seq, y, t);
      if (!p || *p != s->token[t] + (uint32_t)y) return false;
    }
  }
  if (l->state_bytes) {
    uint64_t h = 0;
    for (int64_t t = 0; t < s->len; t++) h = mix(h, s->token[t]);
    if (h != *(uint64_t *)mtx_kv_seq_state(kv, seq)) return false;
  }
  return true;
}

#endif
