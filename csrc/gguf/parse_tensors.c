// SPDX-License-Identifier: MIT
// The tensor directory of a GGUF file: names, shapes, types, and where the data lies.
#include <stdlib.h>

#include "gguf/cursor.h"
#include "quant/quant.h"

static mtx_code read_shape(mtx_gguf_cursor *c, mtx_gguf_tensor *t) {
  uint64_t at = c->pos, n_all = 1;
  mtx_code code = mtx_gguf_read_u32(c, t->name, "a tensor's number of dimensions", &t->n_dims);
  if (code != MTX_OK) return code;
  if (t->n_dims < 1 || t->n_dims > 4)
    return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, t->name, at, "the tensor has %u dimensions; 1 to 4 are allowed", t->n_dims);
  for (uint32_t d = 0; d < 4; d++) {
    t->ne[d] = 1;
    if (d >= t->n_dims) continue;
    at = c->pos;
    if ((code = mtx_gguf_read_u64(c, t->name, "a tensor's shape", &t->ne[d])) != MTX_OK) return code;
    if (t->ne[d] == 0)
      return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, t->name, at, "dimension %u of the tensor is 0", d);
    if (__builtin_mul_overflow(n_all, t->ne[d], &n_all) || n_all > INT64_MAX)
      return mtx_gguf_fail(c->err, MTX_EFORMAT, c->file, t->name, at,
                           "the tensor's number of elements does not fit 63 bits");
  }
  return MTX_OK;
}

static mtx_code read_tensor(mtx_gguf_cursor *c, const mtx_gguf_part *p, mtx_gguf_tensor *t, uint64_t *offset) {
  mtx_code code = mtx_gguf_read_name(c, "a tensor name", MTX_GGUF_MAX_NAME_BYTES, &t->name);
  if (code != MTX_OK || (code = read_shape(c, t)) != MTX_OK) return code;
  uint64_t at = c->pos, row;
  if ((code = mtx_gguf_read_u32(c, t->name, "a tensor's type", &t->type)) != MTX_OK) return code;
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
  if ((code = mtx_gguf_read_u64(c, t->name, "a tensor's offset", offset)) != MTX_OK) return code;
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
static mtx_code place_tensors(mtx_gguf_cursor *c, mtx_gguf_part *p, extent *x) {
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

mtx_code mtx_gguf_read_tensors(mtx_gguf_cursor *c, mtx_gguf_part *p, uint64_t n, int flags) {
  mtx_code code = MTX_OK;
  p->tensors = calloc(n ? n : 1, sizeof *p->tensors);
  extent *x = calloc(n ? n : 1, sizeof *x);
  if (!p->tensors || !x) {
    code = mtx_gguf_fail(c->err, MTX_ENOMEM, c->file, MTX_GGUF_NO_KEY, c->pos, "not enough memory for %llu tensors", (unsigned long long)n);
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
