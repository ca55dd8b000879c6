// SPDX-License-Identifier: MIT
// Growing buffers: one checked doubling rule for all of them.
#include "base/buf.h"

#include <stdlib.h>

mtx_code mtx_grow(void *ptr, size_t *cap, size_t need, size_t size, mtx_err *err) {
  if (need <= *cap) return MTX_OK;
  size_t want = *cap < 16 ? 16 : *cap;
  while (want < need)
    if (__builtin_mul_overflow(want, (size_t)2, &want)) return mtx_fail(err, MTX_ENOMEM, "a buffer of %zu items is too large", need);
  size_t bytes;
  if (__builtin_mul_overflow(want, size, &bytes)) return mtx_fail(err, MTX_ENOMEM, "a buffer of %zu items is too large", need);
  void *old;
  memcpy(&old, ptr, sizeof old);
  void *grown = realloc(old, bytes);
  if (!grown) return mtx_fail(err, MTX_ENOMEM, "no memory for a buffer of %zu bytes", bytes);
  memcpy(ptr, &grown, sizeof grown);
  *cap = want;
  return MTX_OK;
}

mtx_code mtx_buf_reserve(mtx_buf *b, size_t extra, mtx_err *err) {
  size_t need;
  if (__builtin_add_overflow(b->len, extra, &need)) return mtx_fail(err, MTX_ENOMEM, "a buffer would exceed the address space");
  return mtx_grow(&b->ptr, &b->cap, need, 1, err);
}

mtx_code mtx_ids_reserve(mtx_ids *v, size_t extra, mtx_err *err) {
  size_t need;
  if (__builtin_add_overflow(v->len, extra, &need)) return mtx_fail(err, MTX_ENOMEM, "a buffer would exceed the address space");
  return mtx_grow(&v->ptr, &v->cap, need, sizeof *v->ptr, err);
}

mtx_code mtx_buf_append(mtx_buf *b, const void *bytes, size_t n, mtx_err *err) {
  mtx_code rc = mtx_buf_reserve(b, n, err);
  if (rc) return rc;
  if (n) memcpy(b->ptr + b->len, bytes, n);
  b->len += n;
  return MTX_OK;
}

mtx_code mtx_ids_append(mtx_ids *v, const int32_t *ids, size_t n, mtx_err *err) {
  mtx_code rc = mtx_ids_reserve(v, n, err);
  if (rc) return rc;
  if (n) memcpy(v->ptr + v->len, ids, n * sizeof *ids);
  v->len += n;
  return MTX_OK;
}

void mtx_buf_fini(mtx_buf *b) {
  free(b->ptr);
  *b = (mtx_buf){0};
}

void mtx_ids_fini(mtx_ids *v) {
  free(v->ptr);
  *v = (mtx_ids){0};
}
