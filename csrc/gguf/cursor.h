// SPDX-License-Identifier: MIT
// Inside of csrc/gguf: reading a file from front to back. What is read was there: every read checks what is left.
#ifndef MTX_GGUF_CURSOR_H
#define MTX_GGUF_CURSOR_H

#include "gguf/parse.h"

typedef struct {
  const uint8_t *base;
  uint64_t n, pos;
  uint64_t n_items;  // array items so far, of all arrays
  const char *file;
  mtx_err *err;
} mtx_gguf_cursor;

#define MTX_GGUF_NO_KEY ((mtx_str){"", 0})

// MTX_EFORMAT unless n bytes are left; key and what (is read) are for the message.
mtx_code mtx_gguf_need(mtx_gguf_cursor *c, uint64_t n, mtx_str key, const char *what);
mtx_code mtx_gguf_read_u32(mtx_gguf_cursor *c, mtx_str key, const char *what, uint32_t *out);
mtx_code mtx_gguf_read_u64(mtx_gguf_cursor *c, mtx_str key, const char *what, uint64_t *out);
// The string points into the file. MTX_ELIMIT beyond `limit` bytes.
mtx_code mtx_gguf_read_string(mtx_gguf_cursor *c, mtx_str key, const char *what, uint64_t limit, mtx_str *out);
// Keys and tensor names: looked up by C strings, so none is empty or hides a zero byte.
mtx_code mtx_gguf_read_name(mtx_gguf_cursor *c, const char *what, uint64_t limit, mtx_str *out);

// The tensor directory, n entries, behind the metadata: shapes, types, places. flags as mtx_gguf_open's.
mtx_code mtx_gguf_read_tensors(mtx_gguf_cursor *c, mtx_gguf_part *p, uint64_t n, int flags);

#endif
