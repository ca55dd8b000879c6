// SPDX-License-Identifier: MIT
// One GGUF file: header, metadata, tensor directory, each byte checked once.
//
// Layout (ggml's docs/gguf.md), all little-endian: "GGUF", u32 version, u64
// tensor count, u64 key count; keys: string, u32 type, value; tensors: name,
// u32 n_dims, u64 ne[n_dims], u32 type, u64 offset from the start of the data;
// padding to general.alignment; data. A string is a u64 length and its bytes.
// Version 2 differs from 3 only in allowing no big-endian files.
#include "gguf/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"

typedef struct {
  const uint8_t *base;
  uint64_t n, pos;
  uint64_t n_items;  // array items so far, of all arrays
  const char *file;
  mtx_err *err;
} cursor;

static const mtx_str NO_KEY = {"", 0};

// ---------------------------------------------------------------- small things

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

static const struct { const char *name; uint8_t bytes; } TYPES[] = {
  {"u8", 1}, {"i8", 1}, {"u16", 2}, {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
  {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES };

uint32_t mtx_gguf_type_bytes(uint32_t type) { return type < N_TYPES ? TYPES[type].bytes : 0; }
const char *mtx_gguf_type_name(uint32_t type) { return type < N_TYPES ? TYPES[type].name : "unknown"; }

static int str_cmp(mtx_str a, mtx_str b) {
  int c = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
  return c ? c : (a.len > b.len) - (a.len < b.len);
}

static int name_cmp(const void *a, const void *b) {
  const mtx_gguf_name *x = a, *y = b;
  int c = str_cmp(x->name, y->name);
  return c ? c : (x->i > y->i) - (x->i < y->i);
}

int64_t mtx_gguf_names_sort(mtx_gguf_name *names, uint64_t n) {
  if (n) qsort(names, n, sizeof *names, name_cmp);
  for (uint64_t i = 1; i < n; i++)
    if (str_cmp(names[i - 1].name, names[i].name) == 0) return (int64_t)names[i].i;
  return -1;
}

const mtx_gguf_name *mtx_gguf_names_find(const mtx_gguf_name *names, uint64_t n, const char *name) {
  mtx_str key = {name, strlen(name)};
  uint64_t lo = 0, hi = n;
  while (lo < hi) {
    uint64_t mid = lo + (hi - lo) / 2;
    int c = str_cmp(names[mid].name, key);
    if (c == 0) return &names[mid];
    if (c < 0) lo = mid + 1; else hi = mid;
  }
  return NULL;
}

const mtx_gguf_kv *mtx_gguf_part_find(const mtx_gguf_part *p, const char *key) {
  const mtx_gguf_name *e = mtx_gguf_names_find(p->kv_names, p->n_kv, key);
  return e ? &p->kv[e->i] : NULL;
}

// ---------------------------------------------------------------- reading

static mtx_code need(cursor *c, uint64_t n, mtx_str key, const char *what) {
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

static mtx_code read_u32(cursor *c, mtx_str key, const char *what, uint32_t *out) {
  mtx_code code = need(c, 4, key, what);
  if (code != MTX_OK) return code;
  *out = (uint32_t)load_le(c->base + c->pos, 4);
  c->pos += 4;
  return MTX_OK;
}

static mtx_code read_u64(cursor *c, mtx_str key, const char *what, uint64_t *out) {
  mtx_code code = need(c, 8, key, what);
  if (code != MTX_OK) return code;
  *out = load_le(c->base + c->pos, 8);
  c->pos += 8;
  return MTX_OK;
}

static mtx_code read_string(cursor *c, mtx_str key, const char *what, uint64_t limit, mtx_str *out) {
  uint64_t at = c->pos, len;
  mtx_code code = read_u64(c, key, what, &len);
  if (code != MTX_OK) return code;
  if (len > limit)
    return mtx_gguf_fail(c->err, MTX_ELIMIT, c->file, key, at, "%s is %llu bytes long; the limit is %llu", what,
                         (unsigned long long)len, (unsigned long long)limit);
  if ((code = need(c, len, key, what)) != MTX_OK) return code;
  *out = (mtx_str){(const char *)c->base + c->pos, (size_t)len};
  c->pos += len;
  return MTX_OK;
}

// Keys and tensor names: looked up by C strings, so no zero byte may hide in them.
static mtx_code read_name(cursor *c, const char *what, uint64_t limit, mtx_str *out) {
  uint64_t at = c->pos;
  mtx_code code = read_string(c, NO_KEY, what, limit, out);
  if (code != MTX_OK) return code;
  if (out->len == 0) return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, NO_KEY, at, "%s is empty", what);
  if (memchr(out->ptr, 0, out->len))
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, *out, at, "%s holds a zero byte", what);
  return MTX_OK;
}

static mtx_code read_bools(cursor *c, mtx_str key, const uint8_t *p, uint64_t n) {
  for (uint64_t i = 0; i < n; i++)
    if (p[i] > 1)
      return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, key, (uint64_t)(p - c->base) + i,
                           "a bool is stored as %u; only 0 and 1 are allowed", p[i]);
  return MTX_OK;
}

static mtx_code read_string_items(cursor *c, mtx_gguf_kv *kv) {
  uint64_t *off = malloc((size_t)(kv->n + 1) * sizeof *off);
  if (!off)
    return mtx_gguf_fail(c->err, MTX_ENOMEM, c->file, kv->key, c->pos, "not enough memory for %llu strings",
                         (unsigned long long)kv->n);
  kv->str_off = off;
  uint64_t start = c->pos;
  for (uint64_t i = 0; i < kv->n; i++) {
    mtx_str item;
    off[i] = c->pos - start;
    mtx_code code = read_string(c, kv->key, "a string of the array", MTX_GGUF_MAX_STRING_BYTES, &item);
    if (code != MTX_OK) return code;
  }
  off[kv->n] = c->pos - start;
  return MTX_OK;
}

static mtx_code read_array(cursor *c, mtx_gguf_kv *kv) {
  uint32_t item;
  uint64_t at = c->pos, n;
  mtx_code code = read_u32(c, kv->key, "an array's item type", &item);
  if (code != MTX_OK) return code;
  if (item == MTX_GGUF_ARRAY)
    return mtx_gguf_fail(c->err, MTX_EUNSUPPORTED, c->file, kv->key, at, "an array of arrays; GGUF models have no use for it");
  if (item >= N_TYPES)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, kv->key, at, "the array's item type %u does not exist", item);
  at = c->pos;
  if ((code = read_u64(c, kv->key, "an array's length", &n)) != MTX_OK) return code;
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

static mtx_code read_kv(cursor *c, mtx_gguf_kv *kv) {
  uint32_t type;
  mtx_code code = read_name(c, "a metadata key", MTX_GGUF_MAX_KEY_BYTES, &kv->key);
  if (code != MTX_OK) return code;
  uint64_t at = c->pos;
  if ((code = read_u32(c, kv->key, "a value's type", &type)) != MTX_OK) return code;
  if (type >= N_TYPES)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, kv->key, at, "the value type %u does not exist", type);
  kv->type = (mtx_gguf_type)type;
  kv->n = 1;
  if (type == MTX_GGUF_ARRAY) return read_array(c, kv);
  kv->data = c->base + c->pos;
  if (type == MTX_GGUF_STRING) {
    mtx_str s = {NULL, 0};
    code = read_string(c, kv->key, "a string value", MTX_GGUF_MAX_STRING_BYTES, &s);
    kv->str_len = s.len;
    return code;
  }
  if ((code = need(c, TYPES[type].bytes, kv->key, "a value")) != MTX_OK) return code;
  if (type == MTX_GGUF_BOOL && (code = read_bools(c, kv->key, kv->data, 1)) != MTX_OK) return code;
  c->pos += TYPES[type].bytes;
  return MTX_OK;
}

static mtx_code read_all_kv(cursor *c, mtx_gguf_part *p, uint64_t n) {
  p->kv = calloc(n ? n : 1, sizeof *p->kv);
  p->kv_names = calloc(n ? n : 1, sizeof *p->kv_names);
  if (!p->kv || !p->kv_names)
    return mtx_gguf_fail(c->err, MTX_ENOMEM, c->file, NO_KEY, c->pos, "not enough memory for %llu metadata keys",
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
static mtx_code read_alignment(cursor *c, mtx_gguf_part *p) {
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

// ---------------------------------------------------------------- tensor directory

static mtx_code read_shape(cursor *c, mtx_gguf_tensor *t) {
  uint64_t at = c->pos, n_all = 1;
  mtx_code code = read_u32(c, t->name, "a tensor's number of dimensions", &t->n_dims);
  if (code != MTX_OK) return code;
  if (t->n_dims < 1 || t->n_dims > 4)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, t->name, at, "the tensor has %u dimensions; 1 to 4 are allowed", t->n_dims);
  for (uint32_t d = 0; d < 4; d++) {
    t->ne[d] = 1;
    if (d >= t->n_dims) continue;
    at = c->pos;
    if ((code = read_u64(c, t->name, "a tensor's shape", &t->ne[d])) != MTX_OK) return code;
    if (t->ne[d] == 0)
      return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, t->name, at, "dimension %u of the tensor is 0", d);
    if (__builtin_mul_overflow(n_all, t->ne[d], &n_all) || n_all > INT64_MAX)
      return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, t->name, at,
                           "the tensor's number of elements does not fit 63 bits");
  }
  return MTX_OK;
}

static mtx_code read_tensor(cursor *c, const mtx_gguf_part *p, mtx_gguf_tensor *t, uint64_t *offset) {
  mtx_code code = read_name(c, "a tensor name", MTX_GGUF_MAX_NAME_BYTES, &t->name);
  if (code != MTX_OK || (code = read_shape(c, t)) != MTX_OK) return code;
  uint64_t at = c->pos, row;
  if ((code = read_u32(c, t->name, "a tensor's type", &t->type)) != MTX_OK) return code;
  const mtx_qtype *q = mtx_qtype_get(t->type);
  if (!q)
    return mtx_gguf_fail(c->err, MTX_EUNSUPPORTED, c->file, t->name, at,
                         "tensor type %u is not known to this version of mtx, or was removed from GGUF", t->type);
  if (t->ne[0] % q->block)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, t->name, at, "rows of %llu elements do not divide into %s blocks of %u",
                         (unsigned long long)t->ne[0], q->name, q->block);
  if (!mtx_qtype_row_bytes(q, t->ne[0], &row) ||
      __builtin_mul_overflow(row, t->ne[1] * t->ne[2] * t->ne[3], &t->n_bytes) || t->n_bytes > INT64_MAX)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, t->name, at, "the tensor's size in bytes does not fit 63 bits");
  at = c->pos;
  if ((code = read_u64(c, t->name, "a tensor's offset", offset)) != MTX_OK) return code;
  if (*offset % p->alignment)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, t->name, at, "the tensor's offset %llu is no multiple of the alignment %u",
                         (unsigned long long)*offset, p->alignment);
  return MTX_OK;
}

typedef struct { uint64_t start, end, i; } extent;

static int extent_cmp(const void *a, const void *b) {
  const extent *x = a, *y = b;
  return (x->start > y->start) - (x->start < y->start);
}

// Type id 39 is MXFP4 in ggml but has also been used for a 1-bit type with
// smaller blocks. The room a tensor has decides: what does not fit is refused.
static const char *type_hint(const mtx_gguf_tensor *t) {
  return t->type == 39 ? " (type id 39 is read as MXFP4; a program that uses this id for another type may have written the file)" : "";
}

// Turns offsets into pointers; inside the file, no two tensors on the same bytes.
static mtx_code place_tensors(cursor *c, mtx_gguf_part *p, extent *x) {
  for (uint64_t i = 0; i < p->n_tensors; i++) {
    mtx_gguf_tensor *t = &p->tensors[i];
    uint64_t start, end;
    if (__builtin_add_overflow(p->data_offset, x[i].start, &start) || __builtin_add_overflow(start, t->n_bytes, &end) ||
        end > p->n_bytes)
      return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, t->name, p->data_offset,
                           "the tensor needs %llu bytes at offset %llu of the data, but the file has only %llu there; it is incomplete or damaged, fetch it again%s",
                           (unsigned long long)t->n_bytes, (unsigned long long)x[i].start,
                           (unsigned long long)(p->n_bytes > p->data_offset ? p->n_bytes - p->data_offset : 0), type_hint(t));
    t->data = p->base + start;
    x[i] = (extent){start, end, i};
  }
  qsort(x, p->n_tensors, sizeof *x, extent_cmp);
  for (uint64_t i = 1; i < p->n_tensors; i++) {
    const mtx_gguf_tensor *a = &p->tensors[x[i - 1].i], *b = &p->tensors[x[i].i];
    if (x[i].start < x[i - 1].end)
      return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, b->name, x[i].start, "the tensor overlaps '%.*s'%s%s",
                           (int)(a->name.len < 128 ? a->name.len : 128), a->name.ptr, type_hint(a), a->type == b->type ? "" : type_hint(b));
  }
  return MTX_OK;
}

static mtx_code read_tensors(cursor *c, mtx_gguf_part *p, uint64_t n, int flags) {
  mtx_code code = MTX_OK;
  p->tensors = calloc(n ? n : 1, sizeof *p->tensors);
  extent *x = calloc(n ? n : 1, sizeof *x);
  if (!p->tensors || !x) {
    code = mtx_gguf_fail(c->err, MTX_ENOMEM, c->file, NO_KEY, c->pos, "not enough memory for %llu tensors", (unsigned long long)n);
    goto fail;
  }
  for (uint64_t i = 0; i < n; i++)
    if ((code = read_tensor(c, p, &p->tensors[i], &x[i].start)) != MTX_OK) goto fail;
  p->n_tensors = n;
  p->data_offset = c->pos + (p->alignment - c->pos % p->alignment) % p->alignment;
  if (n && !(flags & MTX_GGUF_VOCAB_ONLY)) code = place_tensors(c, p, x);
fail:
  free(x);
  return code;
}

// ---------------------------------------------------------------- header

// Says what a file is when it is not GGUF: the common mistakes.
static mtx_code refuse_magic(cursor *c) {
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
      return mtx_gguf_fail(c->err, MTX_EUNSUPPORTED, c->file, NO_KEY, 0, "%s", KNOWN[i].msg);
  return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, NO_KEY, 0, "this is not a GGUF file: it does not begin with \"GGUF\"");
}

static mtx_code read_header(cursor *c, mtx_gguf_part *p, uint64_t *n_tensors, uint64_t *n_kv) {
  mtx_code code = need(c, 4, NO_KEY, "the header");
  if (code != MTX_OK) return code;
  if (memcmp(c->base, "GGUF", 4) != 0) return refuse_magic(c);
  c->pos = 4;
  if ((code = read_u32(c, NO_KEY, "the header", &p->version)) != MTX_OK) return code;
  if (p->version == 1)
    return mtx_gguf_fail(c->err, MTX_EUNSUPPORTED, c->file, NO_KEY, 4, "GGUF version 1 is too old; convert the original model again");
  if (p->version && !(p->version & 0xffff))
    return mtx_gguf_fail(c->err, MTX_EUNSUPPORTED, c->file, NO_KEY, 4, "this is a big-endian GGUF file; convert it to little-endian first");
  if (p->version != 2 && p->version != 3)
    return mtx_gguf_fail(c->err, MTX_EUNSUPPORTED, c->file, NO_KEY, 4, "GGUF version %u is not known; mtx reads 2 and 3", p->version);
  if ((code = read_u64(c, NO_KEY, "the header", n_tensors)) != MTX_OK) return code;
  if ((code = read_u64(c, NO_KEY, "the header", n_kv)) != MTX_OK) return code;
  // The shortest tensor entry has 33 bytes, the shortest key and value 14.
  uint64_t left = c->n - c->pos;
  if (*n_tensors > left / 33 || *n_tensors > MTX_GGUF_MAX_TENSORS)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, NO_KEY, 8, "the header claims %llu tensors; the file cannot hold them, or the limit of %d is passed",
                         (unsigned long long)*n_tensors, MTX_GGUF_MAX_TENSORS);
  if (*n_kv > left / 14 || *n_kv > MTX_GGUF_MAX_KV)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, NO_KEY, 16, "the header claims %llu metadata keys; the file cannot hold them, or the limit of %d is passed",
                         (unsigned long long)*n_kv, MTX_GGUF_MAX_KV);
  return MTX_OK;
}

mtx_code mtx_gguf_part_parse(mtx_gguf_part *p, int flags, mtx_err *err) {
  cursor c = {p->base, p->n_bytes, 0, 0, p->path, err};
  uint64_t n_tensors = 0, n_kv = 0;
  mtx_code code = read_header(&c, p, &n_tensors, &n_kv);
  if (code == MTX_OK) code = read_all_kv(&c, p, n_kv);
  if (code == MTX_OK) code = read_alignment(&c, p);
  if (code == MTX_OK) code = read_tensors(&c, p, n_tensors, flags);
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
