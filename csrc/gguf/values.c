// SPDX-License-Identifier: MIT
// Typed reading of metadata values: see gguf.h. Values are unaligned and
// little-endian in the file, and so is every machine mtx runs on; memcpy.
#include <float.h>
#include <math.h>
#include <string.h>

#include "gguf/parse.h"

// Any integer or bool item as (sign, magnitude): false for other types.
static bool item_int(mtx_gguf_type type, const uint8_t *p, int64_t *s, uint64_t *u, bool *is_signed) {
  *is_signed = true;
  switch (type) {
    case MTX_GGUF_U8: case MTX_GGUF_BOOL: *u = *p; *is_signed = false; return true;
    case MTX_GGUF_I8: *s = (int8_t)*p; return true;
    case MTX_GGUF_U16: { uint16_t v; memcpy(&v, p, 2); *u = v; *is_signed = false; return true; }
    case MTX_GGUF_I16: { int16_t v; memcpy(&v, p, 2); *s = v; return true; }
    case MTX_GGUF_U32: { uint32_t v; memcpy(&v, p, 4); *u = v; *is_signed = false; return true; }
    case MTX_GGUF_I32: { int32_t v; memcpy(&v, p, 4); *s = v; return true; }
    case MTX_GGUF_U64: memcpy(u, p, 8); *is_signed = false; return true;
    case MTX_GGUF_I64: memcpy(s, p, 8); return true;
    case MTX_GGUF_F32: case MTX_GGUF_F64: case MTX_GGUF_STRING: case MTX_GGUF_ARRAY: return false;
  }
  return false;
}

bool mtx_gguf_kv_u64(const mtx_gguf_kv *kv, uint64_t *out) {
  int64_t s = 0;
  uint64_t u = 0;
  bool is_signed;
  if (kv->type == MTX_GGUF_BOOL || !item_int(kv->type, kv->data, &s, &u, &is_signed)) return false;
  if (is_signed && s < 0) return false;
  *out = is_signed ? (uint64_t)s : u;
  return true;
}

static mtx_code find(const mtx_gguf *g, const char *key, bool required, const mtx_gguf_kv **kv, mtx_err *err) {
  *kv = mtx_gguf_find(g, key);
  if (*kv) return MTX_OK;
  if (!required) return MTX_ENOTFOUND;
  return mtx_fail_at(err, MTX_ENOTFOUND, g->path, key, 0, "the model lacks this metadata key");
}

static mtx_code wrong(const mtx_gguf *g, const mtx_gguf_kv *kv, const char *want, mtx_err *err) {
  return mtx_gguf_fail(err, MTX_EFORMAT, g->path, kv->key, mtx_gguf_kv_offset(g, kv), "%s expected, the file has %s%s%s", want,
                       mtx_gguf_type_name(kv->type), kv->type == MTX_GGUF_ARRAY ? " of " : "",
                       kv->type == MTX_GGUF_ARRAY ? mtx_gguf_type_name(kv->item_type) : "");
}

mtx_code mtx_gguf_get_u64(const mtx_gguf *g, const char *key, bool required, uint64_t *out, mtx_err *err) {
  const mtx_gguf_kv *kv;
  mtx_code code = find(g, key, required, &kv, err);
  if (code != MTX_OK) return code;
  return mtx_gguf_kv_u64(kv, out) ? MTX_OK : wrong(g, kv, "an integer of 0 or more", err);
}

mtx_code mtx_gguf_get_u32(const mtx_gguf *g, const char *key, bool required, uint32_t *out, mtx_err *err) {
  uint64_t v = 0;
  mtx_code code = mtx_gguf_get_u64(g, key, required, &v, err);
  if (code != MTX_OK) return code;
  if (v > UINT32_MAX)
    return mtx_fail_at(err, MTX_EFORMAT, g->path, key, 0, "the value %llu does not fit 32 bits", (unsigned long long)v);
  *out = (uint32_t)v;
  return MTX_OK;
}

mtx_code mtx_gguf_get_f32(const mtx_gguf *g, const char *key, bool required, float *out, mtx_err *err) {
  const mtx_gguf_kv *kv;
  mtx_code code = find(g, key, required, &kv, err);
  if (code != MTX_OK) return code;
  if (kv->type == MTX_GGUF_F32) {
    memcpy(out, kv->data, 4);
    return MTX_OK;
  }
  if (kv->type != MTX_GGUF_F64) return wrong(g, kv, "a float", err);
  double d;
  memcpy(&d, kv->data, 8);
  if (isfinite(d) && fabs(d) > FLT_MAX)
    return mtx_fail_at(err, MTX_EFORMAT, g->path, key, mtx_gguf_kv_offset(g, kv), "the value %g does not fit a 32-bit float", d);
  *out = (float)d;
  return MTX_OK;
}

mtx_code mtx_gguf_get_bool(const mtx_gguf *g, const char *key, bool required, bool *out, mtx_err *err) {
  const mtx_gguf_kv *kv;
  mtx_code code = find(g, key, required, &kv, err);
  if (code != MTX_OK) return code;
  if (kv->type != MTX_GGUF_BOOL) return wrong(g, kv, "a bool", err);
  *out = *kv->data != 0;
  return MTX_OK;
}

mtx_code mtx_gguf_get_str(const mtx_gguf *g, const char *key, bool required, mtx_str *out, mtx_err *err) {
  const mtx_gguf_kv *kv;
  mtx_code code = find(g, key, required, &kv, err);
  if (code != MTX_OK) return code;
  if (kv->type != MTX_GGUF_STRING) return wrong(g, kv, "a string", err);
  *out = mtx_gguf_item_str(kv, 0);
  return MTX_OK;
}

static mtx_gguf_type kind(const mtx_gguf_kv *kv) { return kv->type == MTX_GGUF_ARRAY ? kv->item_type : kv->type; }

int64_t mtx_gguf_item_i64(const mtx_gguf_kv *kv, uint64_t i) {
  int64_t s = 0;
  uint64_t u = 0;
  bool is_signed;
  if (i >= kv->n || !item_int(kind(kv), kv->data + i * mtx_gguf_type_bytes(kind(kv)), &s, &u, &is_signed)) return 0;
  return is_signed ? s : (int64_t)u;
}

double mtx_gguf_item_f64(const mtx_gguf_kv *kv, uint64_t i) {
  if (i >= kv->n) return 0;
  const uint8_t *p = kv->data + i * mtx_gguf_type_bytes(kind(kv));
  if (kind(kv) == MTX_GGUF_F32) {
    float f;
    memcpy(&f, p, 4);
    return f;
  }
  if (kind(kv) == MTX_GGUF_F64) {
    double d;
    memcpy(&d, p, 8);
    return d;
  }
  return kind(kv) == MTX_GGUF_U64 ? (double)(uint64_t)mtx_gguf_item_i64(kv, i) : (double)mtx_gguf_item_i64(kv, i);
}

mtx_str mtx_gguf_item_str(const mtx_gguf_kv *kv, uint64_t i) {
  if (i >= kv->n || kind(kv) != MTX_GGUF_STRING) return (mtx_str){"", 0};
  if (kv->type == MTX_GGUF_ARRAY)
    return (mtx_str){(const char *)kv->data + kv->str_off[i] + 8, (size_t)(kv->str_off[i + 1] - kv->str_off[i] - 8)};
  return (mtx_str){(const char *)kv->data + 8, (size_t)kv->str_len};
}
