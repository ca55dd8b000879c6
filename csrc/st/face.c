// SPDX-License-Identifier: MIT
// Builds the face of face.h: one block of memory holds all that tensors point
// into beside the mapped files (names, changed vectors, lists of matrices).
#include "st/face.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"

typedef struct {
  uint8_t *at;
} block;

// The next n bytes, rounded up to 8; `needed` counts the same way.
static void *take(block *b, size_t n) {
  uint8_t *p = b->at;
  b->at += (n + 7) / 8 * 8;
  return p;
}

static bool is_made(const mtx_st_use *u) { return !u->n_from || u->change != MTX_ST_AS_IS || (u->n_half_heads && u->from[0]->n_dims < 2); }
static bool is_scattered(const mtx_st_use *u) { return !is_made(u) && (u->n_from > 1 || u->n_half_heads || u->n_heads); }
static uint32_t n_matrices(const mtx_st_use *u) { return u->n_heads ? u->n_heads : u->n_from; }

static uint64_t n_elements(const mtx_st_use *u) {
  uint64_t n = u->n_from ? 1 : u->n_values;
  for (uint32_t d = 0; u->n_from && d < u->from[0]->n_dims; d++) n *= u->from[0]->shape[d];
  return n;
}

static size_t needed(const mtx_st_use *u) {
  size_t n = (strlen(u->name) + 8) / 8 * 8;
  if (is_made(u)) n += (n_elements(u) * sizeof(float) + 7) / 8 * 8;
  if (is_scattered(u)) n += sizeof(mtx_gguf_scatter) + 8 + n_matrices(u) * sizeof(void *);
  return n;
}

static mtx_code bad(const mtx_st *s, const mtx_st_tensor *t, mtx_code code, mtx_err *err, const char *what) {
  return mtx_fail_at(err, code, mtx_st_file_path(s, t->file), t->name, 0, "%s", what);
}

static mtx_code weight_type(const mtx_st *s, const mtx_st_tensor *t, const mtx_qtype **out, mtx_err *err) {
  static const char *const names[] = {"F32", "F16", "BF16"};
  for (int i = 0; i < 3; i++)
    if (strcmp(names[i], t->dtype) == 0) {
      *out = mtx_qtype_by_name(names[i]);
      return MTX_OK;
    }
  return mtx_fail_at(err, MTX_EUNSUPPORTED, mtx_st_file_path(s, t->file), t->name, 0,
                     "weights of type %s are not read; save the model as BF16, F16 or F32, or use a GGUF file of it", t->dtype);
}

static mtx_code check_sources(const mtx_st *s, const mtx_st_use *u, const mtx_qtype **type, mtx_err *err) {
  const mtx_st_tensor *a = u->from[0];
  mtx_code code = weight_type(s, a, type, err);
  if (code) return code;
  for (uint32_t i = 0; i < u->n_from; i++) {
    const mtx_st_tensor *t = u->from[i];
    if (t->n_bytes == 0) return bad(s, t, MTX_EFORMAT, err, "the tensor is empty");
    if ((uintptr_t)t->data % (*type)->block_bytes)
      return bad(s, t, MTX_EFORMAT, err, "its data does not begin at a multiple of its numbers' size; save the model again with a current safetensors");
    if (strcmp(t->dtype, a->dtype) != 0 || t->n_dims != a->n_dims || memcmp(t->shape, a->shape, sizeof t->shape) != 0)
      return bad(s, t, MTX_EFORMAT, err, "its type or shape differs from that of its fellows (the same matrix of other experts)");
  }
  if (u->n_from > 1 && a->n_dims != 2) return bad(s, a, MTX_EFORMAT, err, "only matrices can be stacked");
  if (u->n_heads) {
    uint64_t rows = a->n_dims == 2 ? a->shape[0] : 0, run = rows / u->n_heads;
    if (u->n_from != 1 || !u->n_rows || rows % u->n_heads || (uint64_t)u->first_row + u->n_rows > run)
      return mtx_fail_at(err, MTX_EFORMAT, mtx_st_file_path(s, a->file), a->name, 0, "its %llu rows are not %u heads with rows %u to %llu", (unsigned long long)rows,
                         u->n_heads, u->first_row, (unsigned long long)u->first_row + u->n_rows);
  }
  if (u->n_half_heads) {
    uint64_t rows = a->n_dims ? a->shape[0] : 0;
    if (a->n_dims > 2 || rows % u->n_half_heads || rows / u->n_half_heads % 2)
      return mtx_fail_at(err, MTX_EFORMAT, mtx_st_file_path(s, a->file), a->name, 0, "its %llu rows are not %u heads of even size", (unsigned long long)rows, u->n_half_heads);
  }
  return MTX_OK;
}

// GGUF lists the contiguous dimension first; more than four keep only those above 1.
static mtx_code set_shape(const mtx_st *s, const mtx_st_use *u, mtx_gguf_tensor *t, mtx_err *err) {
  const mtx_st_tensor *a = u->from[0];
  bool squeeze = a->n_dims > 4;
  t->ne[0] = t->ne[1] = t->ne[2] = t->ne[3] = 1;
  for (uint32_t d = a->n_dims; d-- > 0;) {
    if (squeeze && a->shape[d] == 1) continue;
    if (t->n_dims == 4) return bad(s, a, MTX_EUNSUPPORTED, err, "more than four dimensions");
    t->ne[t->n_dims++] = a->shape[d];
  }
  if (t->n_dims == 0) t->n_dims = 1;
  if (u->n_from > 1) t->ne[t->n_dims++] = u->n_from;
  if (u->n_heads) {
    t->ne[1] = u->n_rows;
    if (u->transposed) t->ne[1] = t->ne[0], t->ne[0] = u->n_rows;
    t->ne[t->n_dims++] = u->n_heads;
  }
  return MTX_OK;
}

static float changed(float x, mtx_st_change c) {
  switch (c) {
  case MTX_ST_PLUS_ONE: return x + 1.0f;
  case MTX_ST_MINUS_EXP: return -expf(x);
  default: return x;
  }
}

// A vector that is not the file's own bytes.
static void make_vector(block *b, const mtx_st_use *u, const mtx_qtype *type, mtx_gguf_tensor *t) {
  uint64_t n = n_elements(u);
  float *x = take(b, n * sizeof *x);
  if (!u->n_from) memcpy(x, u->values, n * sizeof *x);
  uint64_t head = u->n_half_heads ? n / u->n_half_heads : 0;
  for (uint64_t r = 0; u->n_from && r < n; r++) {
    uint64_t at = head ? mtx_gguf_half_row(r, head) : r;
    type->decode(u->from[0]->data + at * type->block_bytes, &x[r], 1);
    x[r] = changed(x[r], u->change);
  }
  t->data = x;
  t->type = mtx_qtype_by_name("F32")->id;
  t->n_bytes = n * sizeof *x;
}

static void scatter(block *b, const mtx_st_use *u, mtx_gguf_tensor *t) {
  uint32_t n = n_matrices(u);
  const mtx_st_tensor *a = u->from[0];
  const uint8_t **mat = take(b, n * sizeof *mat);
  for (uint32_t i = 0; i < n; i++) {
    uint64_t row = u->n_heads ? a->shape[0] / n * i + u->first_row : 0;
    mat[i] = u->n_heads ? a->data + row * (a->n_bytes / a->shape[0]) : u->from[i]->data;
  }
  mtx_gguf_scatter *x = take(b, sizeof *x);
  *x = (mtx_gguf_scatter){mat, u->n_half_heads, u->transposed};
  t->scatter = x;
}

static mtx_code set_tensor(const mtx_st *s, block *b, const mtx_st_use *u, mtx_gguf_tensor *t, mtx_err *err) {
  const mtx_qtype *type = NULL;
  size_t n_name = strlen(u->name);
  t->name = (mtx_str){memcpy(take(b, n_name + 1), u->name, n_name + 1), n_name};
  if (!u->n_from) {
    t->n_dims = 1;
    t->ne[0] = u->n_values;
    t->ne[1] = t->ne[2] = t->ne[3] = 1;
    make_vector(b, u, NULL, t);
    return MTX_OK;
  }
  mtx_code code = check_sources(s, u, &type, err);
  if (code || (code = set_shape(s, u, t, err))) return code;
  t->shard = u->from[0]->file + 1;
  t->type = type->id;
  t->n_bytes = u->n_heads ? t->ne[0] * t->ne[1] * t->ne[2] * type->block_bytes : u->from[0]->n_bytes * u->n_from;
  if (is_made(u)) make_vector(b, u, type, t);
  else if (is_scattered(u)) scatter(b, u, t);
  else t->data = u->from[0]->data;
  return MTX_OK;
}

mtx_code mtx_st_face(mtx_gguf **out, mtx_st *s, const void *head, size_t n_head, const mtx_st_use *use, uint64_t n_use, mtx_err *err) {
  *out = NULL;
  int n_files = mtx_st_n_files(s);
  size_t total = 8;
  for (uint64_t i = 0; i < n_use; i++) total += needed(&use[i]);
  block b = {.at = malloc(total)};
  uint8_t *owned = b.at;
  mtx_gguf_tensor *tensors = calloc(n_use + 1, sizeof *tensors);
  const char **paths = calloc((size_t)n_files + 1, sizeof *paths);
  mtx_map **maps = calloc((size_t)n_files + 1, sizeof *maps);
  mtx_code code = MTX_ENOMEM;
  if (!owned || !tensors || !paths || !maps) {
    mtx_fail_at(err, code, mtx_st_folder(s), NULL, 0, "not enough memory for the %zu bytes of the model's tables", total);
    goto done;
  }
  code = MTX_OK;
  for (uint64_t i = 0; i < n_use && !code; i++) code = set_tensor(s, &b, &use[i], &tensors[i], err);
  if (code) goto done;
  for (int i = 0; i < n_files; i++) paths[i] = mtx_st_file_path(s, i), maps[i] = mtx_st_map(s, i);
  mtx_gguf_made made = {mtx_st_folder(s), head, n_head, n_files, paths, maps, tensors, n_use, owned};
  code = mtx_gguf_assemble(out, &made, err);
  if (code) goto done;
  owned = NULL;
  mtx_st_release_maps(s);
done:
  free(owned);
  free(tensors);
  free(paths);
  free(maps);
  return code;
}
