// SPDX-License-Identifier: MIT
// Any bytes as saved state of four kinds of memory: refused, or restored into whole
// sequences whose pages all come back.
//
// First byte: the kind and how much of the head is put right (so that the checksum does
// not hide what lies behind it); the rest is the file.
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "kv/saved.h"

enum { N_CTX = 400, MODEL = 7, HEAD = 64 };

static mtx_kv_layout layout_of(int kind) {
  mtx_kv_layout l = {.type = MTX_KV_F16, .n_groups = kind == 3 ? 0 : kind == 1 ? 2 : 1, .state_bytes = kind >= 2 ? 24 : 0};
  l.n_layers = l.n_groups;
  if (kind == 1) l.window[1] = 40;
  for (int i = 0; i < l.n_layers; i++) l.layer[i] = (mtx_kv_layer){.group = i, .n_head_kv = 1, .dk = 1, .dv = 1};
  return l;
}

static void put_right(uint8_t *p, size_t n) {
  static const uint64_t begin[] = {UINT64_C(0x657461747378746d), 1, MODEL};
  if (n < HEAD + 8) return;
  memcpy(p, begin, sizeof begin);
  mtx_checksum c;
  mtx_checksum_init(&c);
  mtx_checksum_update(&c, p, n - 8);
  uint64_t sum = mtx_checksum_get(&c);
  memcpy(p + n - 8, &sum, 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  mtx_kv_layout l = layout_of(data[0] & 3);
  uint8_t *bytes = malloc(size);
  mtx_kv *kv;
  mtx_saved s;
  mtx_err err = {0};
  int seq;
  if (!bytes || mtx_kv_open(&kv, &l, N_CTX, 2, NULL)) abort();
  memcpy(bytes, data + 1, size - 1);
  if (data[0] & 4) put_right(bytes, size - 1);
  mtx_saved_for who = {mtx_kv_get_layout(kv), MODEL, N_CTX, 1000};
  mtx_code rc = mtx_saved_open(&s, bytes, size - 1, &who, &err);
  if (rc && (err.code != rc || !err.msg[0] || s.tokens)) abort();
  if (!rc && (s.n_tokens > N_CTX || s.n_stored > s.n_tokens)) abort();
  if (!rc && s.n_stored) {
    rc = mtx_kv_image_read(kv, s.image, s.n_stored, &seq, &err);
    if (rc && rc != MTX_ELIMIT) abort();
    if (!rc && (mtx_kv_seq_len(kv, seq) != s.n_stored || mtx_kv_image_bytes(kv, seq) != s.image_bytes || mtx_kv_seq_reserve(kv, seq, 1, NULL) == MTX_EINVAL)) abort();
    if (!mtx_kv_check(kv)) abort();
    if (!rc) mtx_kv_seq_free(kv, seq);
  }
  if (!mtx_kv_check(kv) || mtx_kv_n_seqs(kv)) abort();
  mtx_saved_close(&s);
  if (!mtx_saved_peek(&s, bytes, size - 1, &who, NULL) && (s.n_tokens > N_CTX || s.label_bytes > size)) abort();
  mtx_saved_close(&s);
  mtx_kv_close(kv);
  free(bytes);
  return 0;
}
