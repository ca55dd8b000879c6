// SPDX-License-Identifier: MIT
// Error records: see err.h.
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *mtx_code_name(mtx_code code) {
  switch (code) {
    case MTX_OK: return "ok";
    case MTX_EINVAL: return "invalid";
    case MTX_EFORMAT: return "format";
    case MTX_EUNSUPPORTED: return "unsupported";
    case MTX_ENOTFOUND: return "notfound";
    case MTX_EIO: return "io";
    case MTX_ENOMEM: return "nomem";
    case MTX_ELIMIT: return "limit";
    case MTX_ECANCELLED: return "cancelled";
    case MTX_ENUMERIC: return "numeric";
    case MTX_EINTERNAL: return "internal";
  }
  return "unknown";
}

static void copy_str(char *dst, size_t cap, const char *src) {
  snprintf(dst, cap, "%s", src ? src : "");
}

static mtx_code vfail(mtx_err *err, mtx_code code, const char *file, const char *key, uint64_t offset,
                      const char *fmt, va_list ap) {
  if (!err) return code;
  err->code = code;
  err->offset = offset;
  copy_str(err->file, sizeof err->file, file);
  copy_str(err->key, sizeof err->key, key);
  vsnprintf(err->msg, sizeof err->msg, fmt, ap);
  return code;
}

mtx_code mtx_fail(mtx_err *err, mtx_code code, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vfail(err, code, NULL, NULL, 0, fmt, ap);
  va_end(ap);
  return code;
}

mtx_code mtx_fail_at(mtx_err *err, mtx_code code, const char *file, const char *key, uint64_t offset,
                     const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vfail(err, code, file, key, offset, fmt, ap);
  va_end(ap);
  return code;
}

void mtx_err_format(const mtx_err *err, char *dst, int cap) {
  if (cap <= 0) return;
  int n = snprintf(dst, (size_t)cap, "%s%s%s%s%s", err->file, err->file[0] ? ": " : "", err->key,
                   err->key[0] ? ": " : "", err->msg);
  if (err->offset && n >= 0 && n < cap)
    snprintf(dst + n, (size_t)(cap - n), " (at byte %llu)", (unsigned long long)err->offset);
  for (unsigned char *p = (unsigned char *)dst; *p; p++)
    if (*p < 0x20 || *p == 0x7f) *p = '?';
}
