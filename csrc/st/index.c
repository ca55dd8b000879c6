// SPDX-License-Identifier: MIT
// The reader of index.h.
#include "st/index.h"

#include <stdlib.h>
#include <string.h>

#include "st/safetensors.h"

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static bool plain_name(const char *s, size_t n) {
  const char *end = ".safetensors";
  size_t n_end = strlen(end);
  return n > n_end && n < 256 && strlen(s) == n && s[0] != '.' && !strchr(s, '/') && !strchr(s, '\\') && strcmp(s + n - n_end, end) == 0;
}

static mtx_code collect(mtx_st_index *x, const char *path, mtx_err *err) {
  const mtx_json *j = &x->json;
  const mtx_jnode *map = &j->nodes[x->map];
  x->file = malloc(((size_t)map->n_kids + 1) * sizeof *x->file);
  if (!x->file) return mtx_fail_at(err, MTX_ENOMEM, path, NULL, 0, "not enough memory for %u tensors", map->n_kids);
  int n = 0;
  for (uint32_t i = map->first; i != MTX_JSON_NONE; i = j->nodes[i].next) {
    const mtx_jnode *e = &j->nodes[i];
    const char *tensor = j->pool + e->key;
    if (e->kind != MTX_JSON_STRING || !plain_name(j->pool + e->text, e->n_text))
      return mtx_fail_at(err, MTX_EFORMAT, path, tensor, e->offset, "its file must be a plain name that ends in .safetensors, in the same folder");
    x->file[n++] = j->pool + e->text;
  }
  qsort(x->file, (size_t)n, sizeof *x->file, by_text);
  for (int i = 0; i < n; i++)
    if (i == 0 || strcmp(x->file[x->n_files - 1], x->file[i]) != 0) x->file[x->n_files++] = x->file[i];
  if (x->n_files == 0) return mtx_fail_at(err, MTX_EFORMAT, path, "weight_map", 0, "the index lists no tensors");
  if (x->n_files > MTX_ST_MAX_FILES)
    return mtx_fail_at(err, MTX_ELIMIT, path, "weight_map", 0, "%d files; the limit is %d", x->n_files, MTX_ST_MAX_FILES);
  return MTX_OK;
}

mtx_code mtx_st_index_parse(mtx_st_index *out, const char *text, size_t n, const char *path, mtx_err *err) {
  *out = (mtx_st_index){0};
  mtx_err bad;
  mtx_code code = mtx_json_parse(text, n, &out->json, &bad);
  if (code) return mtx_fail_at(err, code, path, NULL, bad.offset, "%s", bad.msg);
  out->map = mtx_json_get(&out->json, 0, "weight_map");
  if (out->map == MTX_JSON_NONE || out->json.nodes[out->map].kind != MTX_JSON_OBJECT)
    code = mtx_fail_at(err, MTX_EFORMAT, path, "weight_map", 0, "the index has no object of that name");
  else
    code = collect(out, path, err);
  if (code) mtx_st_index_fini(out);
  return code;
}

void mtx_st_index_fini(mtx_st_index *x) {
  free(x->file);
  mtx_json_fini(&x->json);
  *x = (mtx_st_index){0};
}
