// SPDX-License-Identifier: MIT
// One GGUF file: header and metadata, each byte checked once (the tensor directory: parse_tensors.c).
//
// Layout (ggml's docs/gguf.md), all little-endian: "GGUF", u32 version, u64
// tensor count, u64 key count; keys: string, u32 type, value; tensors: name,
// u32 n_dims, u64 ne[n_dims], u32 type, u64 offset from the start of the data;
// padding to general.alignment; data. A string is a u64 length and its bytes.
// Version 2 differs from 3 only in allowing no big-endian files.
#include <stdlib.h>
#include <string.h>

#include "gguf/cursor.h"

static const struct { const char *name; uint8_t bytes; } TYPES[] = {
  {"u8", 1}, {"i8", 1}, {"u16", 2}, {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
  {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES };

uint32_t mtx_gguf_type_bytes(uint32_t type) { return type < N_TYPES ? TYPES[type].bytes : 0; }
const char *mtx_gguf_type_name(uint32_t type) { return type < N_TYPES ? TYPES[type].name : "unknown"; }

const mtx_gguf_kv *mtx_gguf_part_find(const mtx_gguf_part *p, const char *key) {
  const mtx_gguf_name *e = mtx_gguf_names_find(p->kv_names, p->n_kv, key);
  return e ? &p->kv[e->i] : NULL;
}

static mtx_code read_bools(mtx_gguf_cursor *c, mtx_str key, const uint8_t *p, uint64_t n) {
  for (uint64_t i = 0; i < n; i++)
    if (p[i] > 1)
      return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, key, (uint64_t)(p - c->base) + i,
                           "a bool is stored as %u; only 0 and 1 are allowed", p[i]);
  return MTX_OK;
}

static mtx_code read_string_items(mtx_gguf_cursor *c, mtx_gguf_kv *kv) {
  uint64_t *off = malloc((size_t)(kv->n + 1) * sizeof *off);
  if (!off)
    return mtx_gguf_fail(c->err, MTX_ENOMEM, c->file, kv->key, c->pos, "not enough memory for %llu strings",
                         (unsigned long long)kv->n);
  kv->str_off = off;
  uint64_t start = c->pos;
  for (uint64_t i = 0; i < kv->n; i++) {
    mtx_str item;
    off[i] = c->pos - start;
    mtx_code code = mtx_gguf_read_string(c, kv->key, "a string of the array", MTX_GGUF_MAX_STRING_BYTES, &item);
    if (code != MTX_OK) return code;
  }
  off[kv->n] = c->pos - start;
  return MTX_OK;
}

static mtx_code read_array(mtx_gguf_cursor *c, mtx_gguf_kv *kv) {
  uint32_t item;
  uint64_t at = c->pos, n;
  mtx_code code = mtx_gguf_read_u32(c, kv->key, "an array's item type", &item);
  if (code != MTX_OK) return code;
  if (item == MTX_GGUF_ARRAY)
    return mtx_gguf_fail(c->err, MTX_EUNSUPPORTED, c->file, kv->key, at, "an array of arrays; GGUF models have no use for it");
  if (item >= N_TYPES)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, kv->key, at, "the array's item type %u does not exist", item);
  at = c->pos;
  if ((code = mtx_gguf_read_u64(c, kv->key, "an array's length", &n)) != MTX_OK) return code;
  uint64_t item_bytes = item == MTX_GGUF_STRING ? 8 : TYPES[item].bytes, bytes;
  if (__builtin_mul_overflow(n, item_bytes, &bytes) || bytes > c->n - c->pos)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, kv->key, at,
                         "the array claims %llu items; the rest of the file cannot hold them",
                         (unsigned long long)n);
  c->n_items += n;  // cannot wrap: each term is at most the file's size, checked each time
  if (c->n_items > MTX_GGUF_MAX_ITEMS)
    return mtx_gguf_fail(c->err, MTX_ELIMIT, c->file, kv->key, at, "the arrays up to here hold %llu items; the limit is %d",
                         (unsigned long long)c->n_items, MTX_GGUF_MAX_ITEMS);
  kv->item_type = (mtx_gguf_type)item;
  kv->n = n;
  kv->data = c->base + c->pos;
  if (item == MTX_GGUF_STRING) return read_string_items(c, kv);
  if (item == MTX_GGUF_BOOL && (code = read_bools(c, kv->key, kv->data, n)) != MTX_OK) return code;
  c->pos += bytes;
  return MTX_OK;
}

static mtx_code read_kv(mtx_gguf_cursor *c, mtx_gguf_kv *kv) {
  uint32_t type;
  mtx_code code = mtx_gguf_read_name(c, "a metadata key", MTX_GGUF_MAX_KEY_BYTES, &kv->key);
  if (code != MTX_OK) return code;
  uint64_t at = c->pos;
  if ((code = mtx_gguf_read_u32(c, kv->key, "a value's type", &type)) != MTX_OK) return code;
  if (type >= N_TYPES)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, kv->key, at, "the value type %u does not exist", type);
  kv->type = (mtx_gguf_type)type;
  kv->n = 1;
  if (type == MTX_GGUF_ARRAY) return read_array(c, kv);
  kv->data = c->base + c->pos;
  if (type == MTX_GGUF_STRING) {
    mtx_str s = {NULL, 0};
    code = mtx_gguf_read_string(c, kv->key, "a string value", MTX_GGUF_MAX_STRING_BYTES, &s);
    kv->str_len = s.len;
    return code;
  }
  if ((code = mtx_gguf_need(c, TYPES[type].bytes, kv->key, "a value")) != MTX_OK) return code;
  if (type == MTX_GGUF_BOOL && (code = read_bools(c, kv->key, kv->data, 1)) != MTX_OK) return code;
  c->pos += TYPES[type].bytes;
  return MTX_OK;
}

static mtx_code read_all_kv(mtx_gguf_cursor *c, mtx_gguf_part *p, uint64_t n) {
  p->kv = calloc(n ? n : 1, sizeof *p->kv);
  p->kv_names = calloc(n ? n : 1, sizeof *p->kv_names);
  if (!p->kv || !p->kv_names)
    return mtx_gguf_fail(c->err, MTX_ENOMEM, c->file, MTX_GGUF_NO_KEY, c->pos, "not enough memory for %llu metadata keys",
                         (unsigned long long)n);
  for (uint64_t i = 0; i < n; i++) {
    p->n_kv = i + 1;
    mtx_code code = read_kv(c, &p->kv[i]);
    if (code != MTX_OK) return code;
    p->kv_names[i] = (mtx_gguf_name){p->kv[i].key, i};
  }
  int64_t twice = mtx_gguf_names_sort(p->kv_names, n);
  if (twice >= 0) {
    mtx_str key = p->kv[twice].key;
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, key, (uint64_t)((const uint8_t *)key.ptr - c->base),
                         "the metadata key occurs twice");
  }
  return MTX_OK;
}

// The format allows any multiple of 8; 8 is also what the kernels may rely on.
static mtx_code read_alignment(mtx_gguf_cursor *c, mtx_gguf_part *p) {
  p->alignment = MTX_GGUF_DEFAULT_ALIGNMENT;
  const mtx_gguf_kv *kv = mtx_gguf_part_find(p, "general.alignment");
  if (!kv) return MTX_OK;
  uint64_t at = (uint64_t)(kv->data - c->base), value = 0;
  if (kv->type != MTX_GGUF_U32)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, kv->key, at, "stored as %s; it must be u32",
                         mtx_gguf_type_name(kv->type));
  mtx_gguf_kv_u64(kv, &value);
  if (value == 0 || value % 8 || value > MTX_GGUF_MAX_ALIGNMENT)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, kv->key, at,
                         "the alignment %llu is not a multiple of 8 between 8 and %d", (unsigned long long)value,
                         MTX_GGUF_MAX_ALIGNMENT);
  p->alignment = (uint32_t)value;
  return MTX_OK;
}

// ---------------------------------------------------------------- header

// Says what a file is when it is not GGUF: the common mistakes.
static mtx_code refuse_magic(mtx_gguf_cursor *c) {
  static const struct { const char *start, *msg; } KNOWN[] = {
    {"FUGG", "this is a big-endian GGUF file; convert it to little-endian first"},
    {"lmgg", "this is an old GGML file; convert the original model to GGUF"},
    {"tjgg", "this is an old GGJT file; convert the original model to GGUF"},
    {"fmgg", "this is an old GGMF file; convert the original model to GGUF"},
    {"vers", "this is not GGUF; if it is a git-lfs pointer, fetch the real file with `git lfs pull`"},
    {"PK\3\4", "this is a zip or PyTorch file, not GGUF"},
    {"<!DO", "this is an HTML page, not GGUF; the download went wrong"},
  };
  for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
    if (memcmp(c->base, KNOWN[i].start, 4) == 0)
      return mtx_gguf_fail(c->err, MTX_EUNSUPPORTED, c->file, MTX_GGUF_NO_KEY, 0, "%s", KNOWN[i].msg);
  return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, MTX_GGUF_NO_KEY, 0, "this is not a GGUF file: it does not begin with \"GGUF\"");
}

static mtx_code read_header(mtx_gguf_cursor *c, mtx_gguf_part *p, uint64_t *n_tensors, uint64_t *n_kv) {
  mtx_code code = mtx_gguf_need(c, 4, MTX_GGUF_NO_KEY, "the header");
  if (code != MTX_OK) return code;
  if (memcmp(c->base, "GGUF", 4) != 0) return refuse_magic(c);
  c->pos = 4;
  if ((code = mtx_gguf_read_u32(c, MTX_GGUF_NO_KEY, "the header", &p->version)) != MTX_OK) return code;
  if (p->version == 1)
    return mtx_gguf_fail(c->err, MTX_EUNSUPPORTED, c->file, MTX_GGUF_NO_KEY, 4, "GGUF version 1 is too old; convert the original model again");
  if (p->version && !(p->version & 0xffff))
    return mtx_gguf_fail(c->err, MTX_EUNSUPPORTED, c->file, MTX_GGUF_NO_KEY, 4, "this is a big-endian GGUF file; convert it to little-endian first");
  if (p->version != 2 && p->version != 3)
    return mtx_gguf_fail(c->err, MTX_EUNSUPPORTED, c->file, MTX_GGUF_NO_KEY, 4, "GGUF version %u is not known; mtx reads 2 and 3", p->version);
  if ((code = mtx_gguf_read_u64(c, MTX_GGUF_NO_KEY, "the header", n_tensors)) != MTX_OK) return code;
  if ((code = mtx_gguf_read_u64(c, MTX_GGUF_NO_KEY, "the header", n_kv)) != MTX_OK) return code;
  // The shortest tensor entry has 33 bytes, the shortest key and value 14.
  uint64_t left = c->n - c->pos;
  if (*n_tensors > left / 33 || *n_tensors > MTX_GGUF_MAX_TENSORS)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, MTX_GGUF_NO_KEY, 8, "the header claims %llu tensors; the file cannot hold them, or the limit of %d is passed",
                         (unsigned long long)*n_tensors, MTX_GGUF_MAX_TENSORS);
  if (*n_kv > left / 14 || *n_kv > MTX_GGUF_MAX_KV)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, MTX_GGUF_NO_KEY, 16, "the header claims %llu metadata keys; the file cannot hold them, or the limit of %d is passed",
                         (unsigned long long)*n_kv, MTX_GGUF_MAX_KV);
  return MTX_OK;
}

mtx_code mtx_gguf_part_parse(mtx_gguf_part *p, int flags, mtx_err *err) {
  mtx_gguf_cursor c = {p->base, p->n_bytes, 0, 0, p->path, err};
  uint64_t n_tensors = 0, n_kv = 0;
  mtx_code code = read_header(&c, p, &n_tensors, &n_kv);
  if (code == MTX_OK) code = read_all_kv(&c, p, n_kv);
  if (code == MTX_OK) code = read_alignment(&c, p);
  if (code == MTX_OK) code = mtx_gguf_read_tensors(&c, p, n_tensors, flags);
  return code;
}

void mtx_gguf_part_fini(mtx_gguf_part *p) {
  for (uint64_t i = 0; p->kv && i < p->n_kv; i++) free((void *)p->kv[i].str_off);
  free(p->kv);
  free(p->kv_names);
  free(p->tensors);
  free(p->path);
  mtx_map_close(p->map);
  *p = (mtx_gguf_part){0};
}
