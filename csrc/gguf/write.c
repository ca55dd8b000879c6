// SPDX-License-Identifier: MIT
// The GGUF writer: see write.h. Layout: parse.c.
#include "gguf/write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "gguf/parse.h"
#include "quant/quant.h"

typedef struct {
  char *key;       // owned
  uint8_t *bytes;  // owned: u32 type, then the value as in the file
  size_t n_bytes;
} entry;

typedef struct {
  char *name;  // owned
  uint32_t type, n_dims;
  uint64_t ne[4], n_bytes;
  const void *data;              // NULL: the rows of `rows`, or without these what `as` makes
  const mtx_gguf_tensor *rows;
  mtx_gguf_conversion as;
} tensor;

struct mtx_gguf_writer {
  entry *kv;
  size_t n_kv, cap_kv;
  tensor *tensors;
  size_t n_tensors, cap_tensors;
  bool (*go_on)(void *user, uint64_t done, uint64_t total);  // may be NULL
  void *user;
};

typedef struct { FILE *f; const char *path; } sink;

mtx_code mtx_gguf_writer_new(mtx_gguf_writer **out, mtx_err *err) {
  *out = calloc(1, sizeof **out);
  return *out ? MTX_OK : mtx_fail(err, MTX_ENOMEM, "not enough memory for a GGUF writer");
}

void mtx_gguf_writer_free(mtx_gguf_writer *w) {
  if (!w) return;
  for (size_t i = 0; i < w->n_kv; i++) free(w->kv[i].key), free(w->kv[i].bytes);
  for (size_t i = 0; i < w->n_tensors; i++) free(w->tensors[i].name);
  free(w->kv);
  free(w->tensors);
  free(w);
}

// ---------------------------------------------------------------- metadata

static entry *kv_find(mtx_gguf_writer *w, const char *key) {
  for (size_t i = 0; i < w->n_kv; i++)
    if (!strcmp(w->kv[i].key, key)) return &w->kv[i];
  return NULL;
}

// Takes `bytes` (freed on failure; NULL means that its allocation failed).
static mtx_code kv_take(mtx_gguf_writer *w, const char *key, uint8_t *bytes, size_t n, mtx_err *err) {
  mtx_code code = MTX_ENOMEM;
  size_t len = strlen(key);
  if (!bytes) goto fail;
  if (len == 0 || len > MTX_GGUF_MAX_KEY_BYTES) {
    code = MTX_EINVAL;
    goto fail;
  }
  entry *e = kv_find(w, key);
  if (e) {
    free(e->bytes);
    e->bytes = bytes, e->n_bytes = n;
    return MTX_OK;
  }
  char *copy = strdup(key);
  if (!copy || mtx_grow(&w->kv, &w->cap_kv, w->n_kv + 1, sizeof *w->kv, NULL)) {
    free(copy);
    goto fail;
  }
  w->kv[w->n_kv++] = (entry){copy, bytes, n};
  return MTX_OK;
fail:
  free(bytes);
  return code == MTX_EINVAL
             ? mtx_fail_at(err, code, NULL, key, 0, "a metadata key has 1 to %d bytes", MTX_GGUF_MAX_KEY_BYTES)
             : mtx_fail_at(err, code, NULL, key, 0, "not enough memory for the metadata");
}

static void store_u32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); }
static void store_u64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }

mtx_code mtx_gguf_put(mtx_gguf_writer *w, const char *key, mtx_gguf_type type, const void *value, mtx_err *err) {
  size_t n = mtx_gguf_type_bytes(type);
  if (!n) return mtx_fail_at(err, MTX_EINVAL, NULL, key, 0, "%s is not a plain type", mtx_gguf_type_name(type));
  uint8_t *b = malloc(4 + n);
  if (b) store_u32(b, type), memcpy(b + 4, value, n);
  return kv_take(w, key, b, 4 + n, err);
}

mtx_code mtx_gguf_put_u32(mtx_gguf_writer *w, const char *key, uint32_t v, mtx_err *err) { return mtx_gguf_put(w, key, MTX_GGUF_U32, &v, err); }
mtx_code mtx_gguf_put_f32(mtx_gguf_writer *w, const char *key, float v, mtx_err *err) { return mtx_gguf_put(w, key, MTX_GGUF_F32, &v, err); }

mtx_code mtx_gguf_put_bool(mtx_gguf_writer *w, const char *key, bool v, mtx_err *err) {
  uint8_t b = v;
  return mtx_gguf_put(w, key, MTX_GGUF_BOOL, &b, err);
}

mtx_code mtx_gguf_put_str(mtx_gguf_writer *w, const char *key, mtx_str v, mtx_err *err) {
  if (v.len > MTX_GGUF_MAX_STRING_BYTES)
    return mtx_fail_at(err, MTX_EINVAL, NULL, key, 0, "the string has %zu bytes; the limit is %d", v.len, MTX_GGUF_MAX_STRING_BYTES);
  uint8_t *b = malloc(12 + v.len);
  if (b) {
    store_u32(b, MTX_GGUF_STRING), store_u64(b + 4, v.len);
    if (v.len) memcpy(b + 12, v.ptr, v.len);
  }
  return kv_take(w, key, b, 12 + v.len, err);
}

static uint8_t *array_head(mtx_gguf_type item, uint64_t n, uint64_t n_bytes) {
  uint8_t *b = malloc(16 + n_bytes);
  if (b) store_u32(b, MTX_GGUF_ARRAY), store_u32(b + 4, item), store_u64(b + 8, n);
  return b;
}

mtx_code mtx_gguf_put_array(mtx_gguf_writer *w, const char *key, mtx_gguf_type item, const void *items, uint64_t n, mtx_err *err) {
  uint64_t size = mtx_gguf_type_bytes(item);
  if (!size || n > MTX_GGUF_MAX_ITEMS)
    return mtx_fail_at(err, MTX_EINVAL, NULL, key, 0, "an array holds at most %d items of a plain type", MTX_GGUF_MAX_ITEMS);
  uint8_t *b = array_head(item, n, n * size);
  if (b && n) memcpy(b + 16, items, n * size);
  return kv_take(w, key, b, 16 + n * size, err);
}

mtx_code mtx_gguf_put_strs(mtx_gguf_writer *w, const char *key, const mtx_str *items, uint64_t n, mtx_err *err) {
  uint64_t total = 0;
  bool fits = n <= MTX_GGUF_MAX_ITEMS;
  for (uint64_t i = 0; fits && i < n; i++) fits = items[i].len <= MTX_GGUF_MAX_STRING_BYTES, total += 8 + items[i].len;
  if (!fits)
    return mtx_fail_at(err, MTX_EINVAL, NULL, key, 0, "an array holds at most %d strings of at most %d bytes", MTX_GGUF_MAX_ITEMS,
                       MTX_GGUF_MAX_STRING_BYTES);
  uint8_t *b = array_head(MTX_GGUF_STRING, n, total), *p = b ? b + 16 : NULL;
  for (uint64_t i = 0; b && i < n; i++) {
    store_u64(p, items[i].len);
    if (items[i].len) memcpy(p + 8, items[i].ptr, items[i].len);
    p += 8 + items[i].len;
  }
  return kv_take(w, key, b, 16 + total, err);
}

static mtx_code put_kv(mtx_gguf_writer *w, const mtx_gguf_kv *kv, mtx_err *err) {
  char *key = strndup(kv->key.ptr, kv->key.len);
  if (!key) return mtx_fail(err, MTX_ENOMEM, "not enough memory for the metadata");
  bool is_array = kv->type == MTX_GGUF_ARRAY;
  size_t head = is_array ? 16 : 4, n;
  if (is_array) n = kv->str_off ? kv->str_off[kv->n] : kv->n * mtx_gguf_type_bytes(kv->item_type);
  else n = kv->type == MTX_GGUF_STRING ? 8 + kv->str_len : mtx_gguf_type_bytes(kv->type);
  uint8_t *b = is_array ? array_head(kv->item_type, kv->n, n) : malloc(4 + n);
  if (b) {
    store_u32(b, kv->type);
    if (n) memcpy(b + head, kv->data, n);
  }
  mtx_code code = kv_take(w, key, b, head + n, err);
  free(key);
  return code;
}

mtx_code mtx_gguf_put_all(mtx_gguf_writer *w, const mtx_gguf *from, mtx_err *err) {
  for (uint64_t i = 0; i < mtx_gguf_n_kv(from); i++) {
    const mtx_gguf_kv *kv = mtx_gguf_kv_at(from, i);
    if (kv->key.len >= 6 && !memcmp(kv->key.ptr, "split.", 6)) continue;
    mtx_code code = put_kv(w, kv, err);
    if (code != MTX_OK) return code;
  }
  return MTX_OK;
}

bool mtx_gguf_remove(mtx_gguf_writer *w, const char *key) {
  entry *e = kv_find(w, key);
  if (!e) return false;
  free(e->key), free(e->bytes);
  size_t i = (size_t)(e - w->kv);
  memmove(e, e + 1, (w->n_kv - i - 1) * sizeof *e);
  w->n_kv--;
  return true;
}

// ---------------------------------------------------------------- tensors

static mtx_code shape_bytes(tensor *t, const uint64_t *ne, mtx_err *err) {
  const mtx_qtype *q = mtx_qtype_get(t->type);
  uint64_t row, n_rows = 1;
  if (!q) return mtx_fail_at(err, MTX_EINVAL, NULL, t->name, 0, "tensor type %u is not known", t->type);
  if (t->n_dims < 1 || t->n_dims > 4)
    return mtx_fail_at(err, MTX_EINVAL, NULL, t->name, 0, "a tensor has 1 to 4 dimensions, not %u", t->n_dims);
  bool fits = true;
  for (uint32_t d = 0; d < 4; d++) {
    t->ne[d] = d < t->n_dims ? ne[d] : 1;
    fits = fits && t->ne[d] > 0 && (d == 0 || !__builtin_mul_overflow(n_rows, t->ne[d], &n_rows));
  }
  fits = fits && mtx_qtype_row_bytes(q, t->ne[0], &row) && !__builtin_mul_overflow(row, n_rows, &t->n_bytes) && t->n_bytes <= INT64_MAX;
  return fits ? MTX_OK
              : mtx_fail_at(err, MTX_EINVAL, NULL, t->name, 0, "the shape has a zero, rows that do not divide into %s blocks of %u, or is too large",
                            q->name, q->block);
}

static mtx_code add(mtx_gguf_writer *w, mtx_str name, tensor t, const uint64_t *ne, uint64_t n_bytes, mtx_err *err) {
  mtx_code code = MTX_OK;
  if (name.len == 0 || name.len > MTX_GGUF_MAX_NAME_BYTES || memchr(name.ptr, 0, name.len))
    return mtx_fail(err, MTX_EINVAL, "a tensor name has 1 to %d bytes, none of them zero", MTX_GGUF_MAX_NAME_BYTES);
  t.name = strndup(name.ptr, name.len);
  if (!t.name) code = mtx_fail(err, MTX_ENOMEM, "not enough memory for the tensor list");
  if (code == MTX_OK) code = shape_bytes(&t, ne, err);
  if (code == MTX_OK && n_bytes != t.n_bytes)
    code = mtx_fail_at(err, MTX_EINVAL, NULL, t.name, 0, "the shape needs %llu bytes, %llu are given", (unsigned long long)t.n_bytes,
                       (unsigned long long)n_bytes);
  if (code == MTX_OK && mtx_grow(&w->tensors, &w->cap_tensors, w->n_tensors + 1, sizeof *w->tensors, NULL))
    code = mtx_fail(err, MTX_ENOMEM, "not enough memory for the tensor list");
  if (code != MTX_OK) {
    free(t.name);
    return code;
  }
  w->tensors[w->n_tensors++] = t;
  return MTX_OK;
}

mtx_code mtx_gguf_add(mtx_gguf_writer *w, mtx_str name, uint32_t type, uint32_t n_dims, const uint64_t *ne, const void *data,
                      uint64_t n_bytes, mtx_err *err) {
  if (!data) return mtx_fail(err, MTX_EINVAL, "a tensor needs data");
  return add(w, name, (tensor){.type = type, .n_dims = n_dims, .data = data}, ne, n_bytes, err);
}

mtx_code mtx_gguf_add_copy(mtx_gguf_writer *w, const mtx_gguf_tensor *t, mtx_err *err) {
  if (t->scatter) return add(w, t->name, (tensor){.type = t->type, .n_dims = t->n_dims, .rows = t}, t->ne, t->n_bytes, err);
  if (!t->data) return mtx_fail(err, MTX_EINVAL, "a vocabulary-only file has no tensor data to copy");
  return mtx_gguf_add(w, t->name, t->type, t->n_dims, t->ne, t->data, t->n_bytes, err);
}

mtx_code mtx_gguf_add_as(mtx_gguf_writer *w, const mtx_gguf_conversion *c, mtx_err *err) {
  mtx_code code = mtx_gguf_conversion_check(c, err);
  if (code != MTX_OK) return code;
  tensor t = {.type = c->to->id, .n_dims = c->from->n_dims, .as = *c};
  uint64_t row;  // its blocks divide: checked. What is too large for 64 bits, `add` finds
  mtx_qtype_row_bytes(c->to, c->from->ne[0], &row);
  return add(w, c->from->name, t, c->from->ne, row * c->from->ne[1] * c->from->ne[2] * c->from->ne[3], err);
}

void mtx_gguf_on_progress(mtx_gguf_writer *w, bool (*go_on)(void *user, uint64_t done, uint64_t total), void *user) {
  w->go_on = go_on;
  w->user = user;
}

// ---------------------------------------------------------------- the file

static mtx_code put_bytes(const sink *s, const void *p, uint64_t n, mtx_err *err) {
  if (!n || fwrite(p, 1, n, s->f) == n) return MTX_OK;
  return mtx_fail_at(err, MTX_EIO, s->path, NULL, 0, "cannot write: %s", strerror(errno));
}

static mtx_code put_string(const sink *s, const char *text, mtx_err *err) {
  uint64_t n = strlen(text);
  mtx_code code = put_bytes(s, &n, 8, err);
  return code == MTX_OK ? put_bytes(s, text, n, err) : code;
}

static mtx_code put_padding(const sink *s, uint64_t to, mtx_err *err) {
  static const uint8_t zeros[64];
  off_t at = ftello(s->f);
  uint64_t n = at < 0 ? 0 : (to - (uint64_t)at % to) % to;
  mtx_code code = MTX_OK;
  for (; n && code == MTX_OK; n -= n < 64 ? n : 64) code = put_bytes(s, zeros, n < 64 ? n : 64, err);
  return code;
}

static uint64_t pad_to(uint64_t n, uint64_t a) { return n + (a - n % a) % a; }

static mtx_code write_directory(const mtx_gguf_writer *w, const sink *s, uint64_t align, mtx_err *err) {
  uint64_t counts[2] = {w->n_tensors, w->n_kv}, offset = 0;
  mtx_code code = put_bytes(s, "GGUF\3\0\0\0", 8, err);
  if (code == MTX_OK) code = put_bytes(s, counts, 16, err);
  for (size_t i = 0; i < w->n_kv && code == MTX_OK; i++) {
    code = put_string(s, w->kv[i].key, err);
    if (code == MTX_OK) code = put_bytes(s, w->kv[i].bytes, w->kv[i].n_bytes, err);
  }
  for (size_t i = 0; i < w->n_tensors && code == MTX_OK; i++) {
    const tensor *t = &w->tensors[i];
    code = put_string(s, t->name, err);
    if (code == MTX_OK) code = put_bytes(s, &t->n_dims, 4, err);
    if (code == MTX_OK) code = put_bytes(s, t->ne, 8 * t->n_dims, err);
    if (code == MTX_OK) code = put_bytes(s, &t->type, 4, err);
    if (code == MTX_OK) code = put_bytes(s, &offset, 8, err);
    if (t->n_bytes > INT64_MAX - offset - align)
      return mtx_fail_at(err, MTX_EINVAL, s->path, t->name, 0, "the tensors are too large together");
    offset = pad_to(offset + t->n_bytes, align);
  }
  return code == MTX_OK ? put_padding(s, align, err) : code;
}

static mtx_code put_rows(const sink *s, const mtx_gguf_tensor *t, mtx_err *err) {
  uint64_t n_rows = t->ne[1] * t->ne[2] * t->ne[3], row = t->n_bytes / n_rows;
  uint8_t *bytes = malloc(row);
  mtx_code code = bytes ? MTX_OK : mtx_fail_at(err, MTX_ENOMEM, s->path, NULL, 0, "not enough memory for a row of %llu bytes", (unsigned long long)row);
  for (uint64_t i = 0; i < n_rows && code == MTX_OK; i++) {
    mtx_gguf_rows(t, i / t->ne[1], i % t->ne[1], 1, bytes);
    code = put_bytes(s, bytes, row, err);
  }
  free(bytes);
  return code;
}

enum { PIECE_ELEMENTS = 2 << 20 };  // converted at once: some megabytes, enough for many threads

static mtx_code report(const mtx_gguf_writer *w, const sink *s, uint64_t done, uint64_t total, mtx_err *err) {
  if (!w->go_on || w->go_on(w->user, done, total)) return MTX_OK;
  return mtx_fail_at(err, MTX_ECANCELLED, s->path, NULL, 0, "stopped; nothing was written");
}

static mtx_code put_converted(const mtx_gguf_writer *w, const sink *s, const tensor *t, uint64_t done, uint64_t total, mtx_err *err) {
  uint64_t n_rows = t->ne[1] * t->ne[2] * t->ne[3], row = t->n_bytes / n_rows;
  uint64_t piece = PIECE_ELEMENTS / t->ne[0] + 1 < n_rows ? PIECE_ELEMENTS / t->ne[0] + 1 : n_rows;
  uint8_t *bytes = malloc(piece * row);
  mtx_code code = bytes ? MTX_OK : mtx_fail_at(err, MTX_ENOMEM, s->path, t->name, 0, "not enough memory for %llu rows", (unsigned long long)piece);
  for (uint64_t r = 0; r < n_rows && code == MTX_OK; r += piece) {
    uint64_t n = piece < n_rows - r ? piece : n_rows - r;
    code = mtx_gguf_convert(&t->as, r, n, bytes, err);
    if (code == MTX_OK) code = put_bytes(s, bytes, n * row, err);
    if (code == MTX_OK) code = report(w, s, done + (r + n) * row, total, err);
  }
  free(bytes);
  return code;
}

static mtx_code write_data(const mtx_gguf_writer *w, const sink *s, uint64_t align, mtx_err *err) {
  mtx_code code = MTX_OK;
  uint64_t done = 0, total = 0;
  for (size_t i = 0; i < w->n_tensors; i++) total += w->tensors[i].n_bytes;
  for (size_t i = 0; i < w->n_tensors && code == MTX_OK; i++) {
    const tensor *t = &w->tensors[i];
    if (t->as.from) code = put_converted(w, s, t, done, total, err);
    else code = t->rows ? put_rows(s, t->rows, err) : put_bytes(s, t->data, t->n_bytes, err);
    if (code == MTX_OK) code = put_padding(s, align, err);
    done += t->n_bytes;
    if (code == MTX_OK && !t->as.from) code = report(w, s, done, total, err);
  }
  return code;
}

static mtx_code check(mtx_gguf_writer *w, const char *path, uint64_t *align, mtx_err *err) {
  *align = MTX_GGUF_DEFAULT_ALIGNMENT;
  const entry *e = kv_find(w, "general.alignment");
  if (e) {
    uint32_t v = 0, type;
    memcpy(&type, e->bytes, 4);
    if (type == MTX_GGUF_U32) memcpy(&v, e->bytes + 4, 4);
    if (v == 0 || v % 8 || v > MTX_GGUF_MAX_ALIGNMENT)
      return mtx_fail_at(err, MTX_EINVAL, path, e->key, 0, "the alignment must be a u32, a multiple of 8 up to %d", MTX_GGUF_MAX_ALIGNMENT);
    *align = v;
  }
  mtx_gguf_name *names = calloc(w->n_tensors + 1, sizeof *names);
  if (!names) return mtx_fail_at(err, MTX_ENOMEM, path, NULL, 0, "not enough memory to check the tensor names");
  for (size_t i = 0; i < w->n_tensors; i++) names[i] = (mtx_gguf_name){{w->tensors[i].name, strlen(w->tensors[i].name)}, i};
  int64_t twice = mtx_gguf_names_sort(names, w->n_tensors);
  free(names);
  return twice < 0 ? MTX_OK : mtx_fail_at(err, MTX_EINVAL, path, w->tensors[twice].name, 0, "the tensor name occurs twice");
}

mtx_code mtx_gguf_write(mtx_gguf_writer *w, const char *path, mtx_err *err) {
  uint64_t align;
  mtx_code code = check(w, path, &align, err);
  if (code != MTX_OK) return code;
  mtx_new_file file;
  if ((code = mtx_new_file_open(&file, path, 0666, err))) return code;
  const sink s = {file.f, path};
  code = write_directory(w, &s, align, err);
  if (code == MTX_OK) code = write_data(w, &s, align, err);
  return mtx_new_file_end(&file, code, err);
}
