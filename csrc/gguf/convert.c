// SPDX-License-Identifier: MIT
// Tensors in another type: see convert.h.
#include "gguf/convert.h"

#include <math.h>
#include <stdlib.h>

#include "base/sysinfo.h"
#include "gguf/cursor.h"
#include "quant/search.h"

// The first row that cannot be converted, and why.
typedef struct {
  uint64_t row, column;
  enum { NONE, NOT_FINITE, TOO_LARGE, NO_MEMORY } what;
} trouble;

typedef struct {
  const mtx_gguf_conversion *c;
  const mtx_qtype *source;
  uint64_t n_cols, from_bytes, to_bytes;  // of a row
} rows;

#define FAIL(c, err, code, ...) mtx_gguf_fail(err, code, mtx_gguf_path((c)->file), (c)->from->name, 0, __VA_ARGS__)

static rows rows_of(const mtx_gguf_conversion *c) {
  const uint64_t *ne = c->from->ne;
  rows r = {.c = c, .source = mtx_qtype_get(c->from->type), .n_cols = ne[0]};
  r.from_bytes = c->from->n_bytes / (ne[1] * ne[2] * ne[3]);
  mtx_qtype_row_bytes(c->to, r.n_cols, &r.to_bytes);
  return r;
}

mtx_code mtx_gguf_conversion_check(const mtx_gguf_conversion *c, mtx_err *err) {
  const mtx_qtype *source = mtx_qtype_get(c->from->type);
  if (!source->decode || !mtx_qtype_encodes(c->to)) return FAIL(c, err, MTX_EINVAL, "%s cannot be converted to %s", source->name, c->to->name);
  if (!c->from->data && !c->from->scatter) return FAIL(c, err, MTX_EINVAL, "a vocabulary-only file has no tensor data to convert");
  if (c->from->ne[0] % c->to->block)
    return FAIL(c, err, MTX_EINVAL, "rows of %llu do not divide into %s blocks of %u", (unsigned long long)c->from->ne[0], c->to->name, c->to->block);
  for (uint64_t i = 0; c->importance && i < c->from->ne[0] * c->from->ne[2] * c->from->ne[3]; i++)
    if (!(c->importance[i] >= 0.0f && isfinite(c->importance[i])))
      return FAIL(c, err, MTX_EINVAL, "its importance holds a NaN, an infinity or a negative weight");
  return mtx_search_ready(c->to->id) ? MTX_OK : FAIL(c, err, MTX_ENOMEM, "not enough memory for the tables of its type");
}

static uint64_t first_not_finite(const float *x, uint64_t n) {
  uint64_t j = 0;
  while (j < n && isfinite(x[j])) j++;
  return j;
}

static void note(trouble *worst, uint64_t row, uint64_t column, int what) {
#pragma omp critical(mtx_gguf_convert_trouble)
  if (worst->what == NONE || row < worst->row) *worst = (trouble){row, column, what};
}

// scratch: n_cols floats and a row of the source.
static void convert_row(const rows *s, uint64_t r, float *x, uint8_t *raw, uint8_t *dst, trouble *worst) {
  const mtx_gguf_tensor *t = s->c->from;
  uint64_t matrix = r / t->ne[1];
  const uint8_t *at = t->data ? (const uint8_t *)t->data + r * s->from_bytes : raw;
  if (!t->data) mtx_gguf_rows(t, matrix, r % t->ne[1], 1, raw);
  s->source->decode(at, x, (int64_t)s->n_cols);
  uint64_t bad = first_not_finite(x, s->n_cols);
  if (bad < s->n_cols) {
    note(worst, r, bad, NOT_FINITE);
    return;
  }
  const float *importance = s->c->importance ? s->c->importance + matrix * s->n_cols : NULL;
  mtx_qtype_encode_rows(s->c->to, x, dst, 1, (int64_t)s->n_cols, importance);
  s->c->to->decode(dst, x, (int64_t)s->n_cols);
  bad = first_not_finite(x, s->n_cols);
  if (bad < s->n_cols) note(worst, r, bad, TOO_LARGE);
}

static mtx_code say(const mtx_gguf_conversion *c, const trouble *t, mtx_err *err) {
  const unsigned long long row = t->row, column = t->column;
  if (t->what == NO_MEMORY) return FAIL(c, err, MTX_ENOMEM, "not enough memory to convert a row");
  if (t->what == NOT_FINITE)
    return FAIL(c, err, MTX_ENUMERIC, "row %llu holds a NaN or infinity at column %llu; a model with such weights is damaged", row, column);
  return FAIL(c, err, MTX_ENUMERIC, "row %llu, column %llu: the values are too large for %s", row, column, c->to->name);
}

mtx_code mtx_gguf_convert(const mtx_gguf_conversion *c, uint64_t r0, uint64_t n, void *dst, mtx_err *err) {
  rows s = rows_of(c);
  trouble worst = {0, 0, NONE};
  int n_threads = mtx_threads_for(c->n_threads);
  int chunk = s.n_cols < 8192 ? (int)(16384 / (s.n_cols + 1)) + 1 : 1;
#pragma omp parallel num_threads(n_threads)
  {
    float *x = malloc(s.n_cols * sizeof *x);
    uint8_t *raw = malloc(s.from_bytes);
    if (!x || !raw) note(&worst, 0, 0, NO_MEMORY);
#pragma omp for schedule(dynamic, chunk)
    for (uint64_t i = 0; i < n; i++)
      if (x && raw) convert_row(&s, r0 + i, x, raw, (uint8_t *)dst + i * s.to_bytes, &worst);
    free(x);
    free(raw);
  }
  if (r0 + n == c->from->ne[1] * c->from->ne[2] * c->from->ne[3]) mtx_gguf_tensor_release(c->file, c->from);
  mtx_code code = mtx_gguf_check(c->file, err);  // before what a cut file's zeros may have led to
  return code != MTX_OK || worst.what == NONE ? code : say(c, &worst, err);
}
