// SPDX-License-Identifier: MIT
// Read-only file mappings; the only place that calls mmap.
//
// A file is opened once and its size is fixed by fstat, so a path that is
// replaced later changes nothing. A file that is truncated in place, or a disk
// that fails, would kill the process with SIGBUS at the next touch of a lost
// page. The first mapping therefore installs a SIGBUS handler: a fault inside a
// registered mapping puts zero pages from there to the mapping's end and marks
// the mapping as damaged; any other SIGBUS goes to the handler that was there
// before. Readers never fault; whoever reports results asks mtx_map_damaged
// first and turns it into a model error.
#ifndef MTX_GGUF_MAP_H
#define MTX_GGUF_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct mtx_map mtx_map;

// Maps the regular file `path`. Errors: MTX_ENOTFOUND, MTX_EIO, MTX_EFORMAT
// (no regular file, or empty), MTX_ENOMEM. On failure *out is NULL.
mtx_code mtx_map_open(mtx_map **out, const char *path, mtx_err *err);
void mtx_map_close(mtx_map *m);  // NULL is allowed

const uint8_t *mtx_map_data(const mtx_map *m);
uint64_t mtx_map_bytes(const mtx_map *m);

// True once a page of the mapping could not be read; its bytes are zeros now.
bool mtx_map_damaged(const mtx_map *m);

// Drops whole pages inside [p, p + n), which lies inside the mapping; they are read again when touched.
void mtx_map_release(const mtx_map *m, const void *p, uint64_t n);

#endif
