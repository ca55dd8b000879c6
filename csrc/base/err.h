// SPDX-License-Identifier: MIT
// One error style for the whole core.
//
// Every function that can fail returns an mtx_code (0 = success) and takes an
// `mtx_err *err` as its LAST argument, which may be NULL. On failure it fills
// the record with what a person needs: which file, which key, at which byte,
// and one sentence. Nothing here prints, exits or aborts.
#ifndef MTX_BASE_ERR_H
#define MTX_BASE_ERR_H

#include <stdint.h>

typedef enum {
  MTX_OK = 0,
  MTX_EINVAL,        // an argument is out of range or of the wrong kind
  MTX_EFORMAT,       // a file or text is malformed
  MTX_EUNSUPPORTED,  // well-formed, but names something mtx does not know
  MTX_ENOTFOUND,     // file, key, tensor, sequence or model does not exist
  MTX_EIO,           // the operating system refused or the file changed
  MTX_ENOMEM,        // memory would not suffice (bytes needed are in msg)
  MTX_ELIMIT,        // a stated limit is exceeded (context, queue, length)
  MTX_ECANCELLED,    // the caller withdrew the work
  MTX_ENUMERIC,      // NaN or no candidate left where a number was needed
  MTX_EINTERNAL,     // a broken invariant of mtx itself
} mtx_code;

typedef struct mtx_err {
  mtx_code code;
  uint64_t offset;  // byte position in `file`, or 0
  char file[256];   // path as given by the caller, or ""
  char key[128];    // metadata key, tensor or field name, or ""
  char msg[512];    // one sentence; says what to do where that is known
} mtx_err;

// Short, stable, lower-case name of a code ("format", "nomem", ...): the third
// value Lua gets after nil and the message.
const char *mtx_code_name(mtx_code code);

// Fills *err (if not NULL) and returns `code`, so callers write
//   return mtx_fail(err, MTX_EFORMAT, "...", ...);
// Clears file, key and offset.
mtx_code mtx_fail(mtx_err *err, mtx_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// The same with the place of the fault. `file` and `key` may be NULL.
mtx_code mtx_fail_at(mtx_err *err, mtx_code code, const char *file, const char *key,
                     uint64_t offset, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

// Writes "file: key: msg (at byte N)" with the parts that are known into
// dst[cap]; always terminated. Control characters are replaced by '?'.
void mtx_err_format(const mtx_err *err, char *dst, int cap);

#endif
