// SPDX-License-Identifier: MIT
// Writes GGUF v3 files: from scratch, or an opened model with changes.
//
// Metadata is copied in; tensor bytes are borrowed (they must live until the
// writer is freed), so a model copied from its mapping never lies in memory. The file appears under its name only when complete:
// temporary file beside it, fsync, rename, fsync of the folder.
#ifndef MTX_GGUF_WRITE_H
#define MTX_GGUF_WRITE_H

#include "gguf/convert.h"
#include "gguf/gguf.h"

typedef struct mtx_gguf_writer mtx_gguf_writer;

mtx_code mtx_gguf_writer_new(mtx_gguf_writer **out, mtx_err *err);
void mtx_gguf_writer_free(mtx_gguf_writer *w);  // NULL is allowed

// Setters keep the order of first use; a key that exists is replaced in place.
// Errors: MTX_EINVAL (empty or too long key, item count, type), MTX_ENOMEM.
// `value` points to one little-endian value of a plain type (not string, array).
mtx_code mtx_gguf_put(mtx_gguf_writer *w, const char *key, mtx_gguf_type type, const void *value, mtx_err *err);
mtx_code mtx_gguf_put_u32(mtx_gguf_writer *w, const char *key, uint32_t v, mtx_err *err);
mtx_code mtx_gguf_put_f32(mtx_gguf_writer *w, const char *key, float v, mtx_err *err);
mtx_code mtx_gguf_put_bool(mtx_gguf_writer *w, const char *key, bool v, mtx_err *err);
mtx_code mtx_gguf_put_str(mtx_gguf_writer *w, const char *key, mtx_str v, mtx_err *err);
mtx_code mtx_gguf_put_array(mtx_gguf_writer *w, const char *key, mtx_gguf_type item, const void *items, uint64_t n, mtx_err *err);
mtx_code mtx_gguf_put_strs(mtx_gguf_writer *w, const char *key, const mtx_str *items, uint64_t n, mtx_err *err);
mtx_code mtx_gguf_put_all(mtx_gguf_writer *w, const mtx_gguf *from, mtx_err *err);        // all keys but split.*
bool mtx_gguf_remove(mtx_gguf_writer *w, const char *key);                                // false: there was none

// Adds a tensor of ggml type id `type` and shape ne[n_dims]; `data` is borrowed.
// Errors: MTX_EINVAL (name, shape, unknown type, n_bytes not the shape's).
mtx_code mtx_gguf_add(mtx_gguf_writer *w, mtx_str name, uint32_t type, uint32_t n_dims, const uint64_t *ne,
                      const void *data, uint64_t n_bytes, mtx_err *err);
mtx_code mtx_gguf_add_copy(mtx_gguf_writer *w, const mtx_gguf_tensor *t, mtx_err *err);
// The same in another type, converted while the file is written, so that it never lies in memory as a whole. *c is copied; what it
// points to is borrowed. Errors: MTX_EINVAL, MTX_ENOMEM (mtx_gguf_conversion_check).
mtx_code mtx_gguf_add_as(mtx_gguf_writer *w, const mtx_gguf_conversion *c, mtx_err *err);

// Asked between tensors and pieces of them: bytes of tensors written, of how many; false ends the writing (MTX_ECANCELLED).
void mtx_gguf_on_progress(mtx_gguf_writer *w, bool (*go_on)(void *user, uint64_t done, uint64_t total), void *user);

// Writes everything to `path`, replacing a file of that name at the end. May be
// called again. Errors: MTX_EIO, MTX_EINVAL (duplicate tensor, bad alignment),
// MTX_ECANCELLED, those of mtx_gguf_convert.
mtx_code mtx_gguf_write(mtx_gguf_writer *w, const char *path, mtx_err *err);

#endif
