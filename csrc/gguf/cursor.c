// SPDX-License-Identifier: MIT
// Numbers and strings of a GGUF file: see cursor.h.
#include "gguf/cursor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

mtx_code mtx_gguf_fail(mtx_err *err, mtx_code code, const char *file, mtx_str key, uint64_t offset,
                       const char *fmt, ...) {
  char name[128], text[512];
  size_t n = key.len < sizeof name - 1 ? key.len : sizeof name - 1;
  memcpy(name, key.ptr, n);
  name[n] = 0;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return mtx_fail_at(err, code, file, name, offset, "%s", text);
}

mtx_code mtx_gguf_need(mtx_gguf_cursor *c, uint64_t n, mtx_str key, const char *what) {
  if (n <= c->n - c->pos) return MTX_OK;
  return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, key, c->pos,
                       "the file ends inside %s: %llu bytes wanted, %llu left; it is incomplete or damaged, fetch it again",
                       what, (unsigned long long)n, (unsigned long long)(c->n - c->pos));
}

static uint64_t load_le(const uint8_t *p, int n) {
  uint64_t v = 0;
  for (int i = n - 1; i >= 0; i--) v = v << 8 | p[i];
  return v;
}

mtx_code mtx_gguf_read_u32(mtx_gguf_cursor *c, mtx_str key, const char *what, uint32_t *out) {
  mtx_code code = mtx_gguf_need(c, 4, key, what);
  if (code != MTX_OK) return code;
  *out = (uint32_t)load_le(c->base + c->pos, 4);
  c->pos += 4;
  return MTX_OK;
}

mtx_code mtx_gguf_read_u64(mtx_gguf_cursor *c, mtx_str key, const char *what, uint64_t *out) {
  mtx_code code = mtx_gguf_need(c, 8, key, what);
  if (code != MTX_OK) return code;
  *out = load_le(c->base + c->pos, 8);
  c->pos += 8;
  return MTX_OK;
}

mtx_code mtx_gguf_read_string(mtx_gguf_cursor *c, mtx_str key, const char *what, uint64_t limit, mtx_str *out) {
  uint64_t at = c->pos, len;
  mtx_code code = mtx_gguf_read_u64(c, key, what, &len);
  if (code != MTX_OK) return code;
  if (len > limit)
    return mtx_gguf_fail(c->err, MTX_ELIMIT, c->file, key, at, "%s is %llu bytes long; the limit is %llu", what,
                         (unsigned long long)len, (unsigned long long)limit);
  if ((code = mtx_gguf_need(c, len, key, what)) != MTX_OK) return code;
  *out = (mtx_str){(const char *)c->base + c->pos, (size_t)len};
  c->pos += len;
  return MTX_OK;
}

mtx_code mtx_gguf_read_name(mtx_gguf_cursor *c, const char *what, uint64_t limit, mtx_str *out) {
  uint64_t at = c->pos;
  mtx_code code = mtx_gguf_read_string(c, MTX_GGUF_NO_KEY, what, limit, out);
  if (code != MTX_OK) return code;
  if (out->len == 0) return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, MTX_GGUF_NO_KEY, at, "%s is empty", what);
  if (memchr(out->ptr, 0, out->len))
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, *out, at, "%s holds a zero byte", what);
  return MTX_OK;
}
