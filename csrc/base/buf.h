// SPDX-License-Identifier: MIT
// Growing byte and token-id buffers, shared by every layer.
//
// A zeroed struct is an empty buffer. Growth doubles, is overflow-checked and
// fails with MTX_ENOMEM; a failed call leaves the buffer as it was. `fini`
// frees and leaves an empty buffer, so it may be called twice.
#ifndef MTX_BASE_BUF_H
#define MTX_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

typedef struct { char *ptr; size_t len, cap; } mtx_buf;     // bytes, not terminated
typedef struct { int32_t *ptr; size_t len, cap; } mtx_ids;  // token ids

// Makes room for `extra` more bytes / ids behind the present ones.
mtx_code mtx_buf_reserve(mtx_buf *b, size_t extra, mtx_err *err);
mtx_code mtx_ids_reserve(mtx_ids *v, size_t extra, mtx_err *err);

mtx_code mtx_buf_append(mtx_buf *b, const void *bytes, size_t n, mtx_err *err);
mtx_code mtx_ids_append(mtx_ids *v, const int32_t *ids, size_t n, mtx_err *err);

static inline mtx_code mtx_ids_push(mtx_ids *v, int32_t id, mtx_err *err) {
  if (v->len == v->cap) {
    mtx_code rc = mtx_ids_reserve(v, 1, err);
    if (rc) return rc;
  }
  v->ptr[v->len++] = id;
  return MTX_OK;
}

void mtx_buf_fini(mtx_buf *b);
void mtx_ids_fini(mtx_ids *v);

// `*ptr` becomes an array of at least `need` items of `size` bytes (`*cap` is
// its present size in items); contents are kept. For arrays of other types.
mtx_code mtx_grow(void *ptr, size_t *cap, size_t need, size_t size, mtx_err *err);

#endif
