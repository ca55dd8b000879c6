// SPDX-License-Identifier: MIT
// Reading and checking safetensors: see safetensors.h.
//
// The rules are those of the format's own library: tensors lie one after the
// other without gaps from the start of the data to the end of the file, and each
// has the bytes that its type and shape need.
#include "st/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "grammar/json.h"
#include "st/index.h"

typedef struct {
  char *path;
  mtx_map *map;  // NULL for memory, and once taken
  const uint8_t *base;
  uint64_t n_bytes;
  mtx_json json;            // owns the names
  mtx_st_tensor *tensors;   // [n_tensors], in the order of the data
  uint64_t n_tensors;
} file;

struct mtx_st {
  char *folder;
  file *files;
  int n_files;
  mtx_st_tensor *tensors;   // of all files, sorted by name
  uint64_t n_tensors;
};

static const struct { const char *name; uint32_t bits; } DTYPES[] = {
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},   {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},    {"I32", 32},    {"U32", 32},    {"F32", 32},
    {"I64", 64},    {"U64", 64},    {"F64", 64}, {"C64", 64}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

uint32_t mtx_st_dtype_bits(const char *dtype) {
  for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
    if (strcmp(DTYPES[i].name, dtype) == 0) return DTYPES[i].bits;
  return 0;
}

// ---- one tensor's entry --------------------------------------------------------------

// A whole number as the format writes it: digits alone.
static bool whole(const mtx_json *j, uint32_t i, uint64_t *out) {
  const mtx_jnode *n = &j->nodes[i];
  if (n->kind != MTX_JSON_NUMBER) return false;
  uint64_t v = 0;
  for (uint32_t k = 0; k < n->n_text; k++) {
    char c = j->pool[n->text + k];
    if (c < '0' || c > '9' || __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(c - '0'), &v)) return false;
  }
  *out = v;
  return v <= INT64_MAX;
}

static mtx_code bad(const file *f, const mtx_st_tensor *t, mtx_err *err, const char *what) {
  return mtx_fail_at(err, MTX_EFORMAT, f->path, t->name, 0, "%s", what);
}

static mtx_code read_shape(const file *f, uint32_t node, mtx_st_tensor *t, mtx_err *err) {
  const mtx_json *j = &f->json;
  if (node == MTX_JSON_NONE || j->nodes[node].kind != MTX_JSON_ARRAY) return bad(f, t, err, "it has no list 'shape'");
  if (j->nodes[node].n_kids > MTX_ST_MAX_DIMS)
    return mtx_fail_at(err, MTX_EUNSUPPORTED, f->path, t->name, 0, "%u dimensions; at most %d are read", j->nodes[node].n_kids, MTX_ST_MAX_DIMS);
  for (uint32_t i = j->nodes[node].first; i != MTX_JSON_NONE; i = j->nodes[i].next)
    if (!whole(j, i, &t->shape[t->n_dims++])) return bad(f, t, err, "a dimension of its shape is no whole number");
  return MTX_OK;
}

static mtx_code read_entry(const file *f, uint32_t node, uint64_t n_data, mtx_st_tensor *t, mtx_err *err) {
  const mtx_json *j = &f->json;
  const mtx_jnode *e = &j->nodes[node];
  t->name = j->pool + e->key;
  if (e->n_key == 0 || strlen(t->name) != e->n_key) return bad(f, t, err, "a tensor's name is empty or holds a zero byte");
  if (e->kind != MTX_JSON_OBJECT) return bad(f, t, err, "its entry in the header is no object");
  uint32_t dtype = mtx_json_get(j, node, "dtype"), at = mtx_json_get(j, node, "data_offsets");
  if (dtype == MTX_JSON_NONE || j->nodes[dtype].kind != MTX_JSON_STRING) return bad(f, t, err, "it has no 'dtype'");
  t->dtype = j->pool + j->nodes[dtype].text;
  uint64_t bits = mtx_st_dtype_bits(t->dtype), n = bits, from, to;
  if (!bits)
    return mtx_fail_at(err, MTX_EUNSUPPORTED, f->path, t->name, 0, "the number type '%.40s' is not known to this version of mtx; save the model as BF16, F16 or F32", t->dtype);
  mtx_code code = read_shape(f, mtx_json_get(j, node, "shape"), t, err);
  if (code) return code;
  for (uint32_t d = 0; d < t->n_dims; d++)
    if (__builtin_mul_overflow(n, t->shape[d], &n)) return bad(f, t, err, "the size of its shape does not fit 64 bits");
  if (at == MTX_JSON_NONE || j->nodes[at].kind != MTX_JSON_ARRAY || j->nodes[at].n_kids != 2 || !whole(j, j->nodes[at].first, &from) ||
      !whole(j, j->nodes[j->nodes[at].first].next, &to))
    return bad(f, t, err, "'data_offsets' must be two whole numbers");
  if (from > to || to > n_data)
    return mtx_fail_at(err, MTX_EFORMAT, f->path, t->name, 0, "its data, bytes %llu to %llu, leaves the file's %llu bytes of data; the file is incomplete or damaged, fetch it again",
                       (unsigned long long)from, (unsigned long long)to, (unsigned long long)n_data);
  if (n % 8 || to - from != n / 8)
    return mtx_fail_at(err, MTX_EFORMAT, f->path, t->name, 0, "type %s and shape need %llu bytes, its data has %llu", t->dtype, (unsigned long long)(n / 8),
                       (unsigned long long)(to - from));
  t->data = f->base + (f->n_bytes - n_data) + from;
  t->n_bytes = to - from;
  return MTX_OK;
}

// ---- one file --------------------------------------------------------------------------

static int by_place(const void *a, const void *b) {
  const mtx_st_tensor *x = a, *y = b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

// One after the other, without gaps and overlaps, up to the end.
static mtx_code check_places(const file *f, const uint8_t *at, mtx_err *err) {
  for (uint64_t i = 0; i < f->n_tensors; i++) {
    const mtx_st_tensor *t = &f->tensors[i];
    if (t->data != at) return bad(f, t, err, t->data < at ? "its data overlaps another tensor's" : "there is a gap before its data");
    at += t->n_bytes;
  }
  if (at == f->base + f->n_bytes) return MTX_OK;
  return mtx_fail_at(err, MTX_EFORMAT, f->path, NULL, (uint64_t)(at - f->base), "%llu bytes behind the last tensor belong to none",
                     (unsigned long long)(f->base + f->n_bytes - at));
}

// What a file is when it is no safetensors file: the common mistakes.
static mtx_code refuse_header(const file *f, uint64_t n_header, mtx_err *err) {
  const char *what = "this is not a safetensors file, or it is incomplete; fetch it again";
  if (f->n_bytes >= 8 && !memcmp(f->base, "version ", 8)) what = "this is a git-lfs pointer; fetch the real file with `git lfs pull`";
  else if (f->n_bytes >= 4 && !memcmp(f->base, "GGUF", 4)) what = "this is a GGUF file; give its own name to mtx";
  else if (f->n_bytes >= 4 && !memcmp(f->base, "PK\3\4", 4)) what = "this is a zip or PyTorch file, not safetensors";
  else if (f->n_bytes >= 8 && n_header <= f->n_bytes - 8)
    return mtx_fail_at(err, MTX_ELIMIT, f->path, NULL, 0, "the header has %llu bytes; the limit is %d", (unsigned long long)n_header, MTX_ST_MAX_HEADER_BYTES);
  return mtx_fail_at(err, MTX_EFORMAT, f->path, NULL, 0, "%s", what);
}

static mtx_code file_parse(file *f, mtx_err *err) {
  uint64_t n_header = 0;
  for (int i = 7; i >= 0 && f->n_bytes >= 8; i--) n_header = n_header << 8 | f->base[i];
  if (f->n_bytes < 8 || n_header > f->n_bytes - 8 || n_header > MTX_ST_MAX_HEADER_BYTES) return refuse_header(f, n_header, err);
  mtx_err why;
  mtx_code code = mtx_json_parse((const char *)f->base + 8, n_header, &f->json, &why);
  if (code) return mtx_fail_at(err, code, f->path, NULL, 8 + why.offset, "the header is no proper JSON: %.400s", why.msg);
  const mtx_json *j = &f->json;
  if (j->nodes[0].kind != MTX_JSON_OBJECT) return mtx_fail_at(err, MTX_EFORMAT, f->path, NULL, 8, "the header is no JSON object");
  f->tensors = calloc((size_t)j->nodes[0].n_kids + 1, sizeof *f->tensors);
  if (!f->tensors) return mtx_fail_at(err, MTX_ENOMEM, f->path, NULL, 0, "not enough memory for %u tensors", j->nodes[0].n_kids);
  for (uint32_t i = j->nodes[0].first; i != MTX_JSON_NONE; i = j->nodes[i].next) {
    if (strcmp(j->pool + j->nodes[i].key, "__metadata__") == 0) continue;
    if ((code = read_entry(f, i, f->n_bytes - 8 - n_header, &f->tensors[f->n_tensors++], err))) return code;
  }
  qsort(f->tensors, f->n_tensors, sizeof *f->tensors, by_place);
  return check_places(f, f->base + 8 + n_header, err);
}

static mtx_code file_open(file *f, const char *folder, const char *name, mtx_err *err) {
  size_t cap = strlen(folder) + strlen(name) + 2;
  f->path = malloc(cap);
  if (!f->path) return mtx_fail_at(err, MTX_ENOMEM, folder, NULL, 0, "not enough memory to open the model");
  snprintf(f->path, cap, "%s/%s", folder, name);
  mtx_code code = mtx_map_open(&f->map, f->path, err);
  if (code) return code;
  f->base = mtx_map_data(f->map);
  f->n_bytes = mtx_map_bytes(f->map);
  code = file_parse(f, err);
  if (mtx_map_damaged(f->map)) return mtx_fail_at(err, MTX_EIO, f->path, NULL, 0, "the file became shorter or unreadable while it was being opened");
  return code;
}

static void file_fini(file *f) {
  free(f->tensors);
  mtx_json_fini(&f->json);
  mtx_map_close(f->map);
  free(f->path);
}

// ---- the folder ------------------------------------------------------------------------

static int by_name(const void *a, const void *b) { return strcmp(((const mtx_st_tensor *)a)->name, ((const mtx_st_tensor *)b)->name); }

static mtx_code join(mtx_st *s, mtx_err *err) {
  uint64_t n = 0;
  for (int i = 0; i < s->n_files; i++) n += s->files[i].n_tensors;
  s->tensors = malloc((n + 1) * sizeof *s->tensors);
  if (!s->tensors) return mtx_fail_at(err, MTX_ENOMEM, s->folder, NULL, 0, "not enough memory for %llu tensors", (unsigned long long)n);
  for (int i = 0; i < s->n_files; i++)
    for (uint64_t k = 0; k < s->files[i].n_tensors; k++) {
      s->tensors[s->n_tensors] = s->files[i].tensors[k];
      s->tensors[s->n_tensors++].file = i;
    }
  qsort(s->tensors, n, sizeof *s->tensors, by_name);
  for (uint64_t i = 1; i < n; i++)
    if (by_name(&s->tensors[i - 1], &s->tensors[i]) == 0)
      return mtx_fail_at(err, MTX_EFORMAT, s->files[s->tensors[i].file].path, s->tensors[i].name, 0, "the tensor occurs twice");
  return MTX_OK;
}

// Every tensor of the index must lie in the file that it names.
static mtx_code check_index(const mtx_st *s, const mtx_st_index *x, const char *path, mtx_err *err) {
  for (uint32_t i = x->json.nodes[x->map].first; i != MTX_JSON_NONE; i = x->json.nodes[i].next) {
    const char *name = x->json.pool + x->json.nodes[i].key, *in = x->json.pool + x->json.nodes[i].text;
    const mtx_st_tensor *t = mtx_st_tensor_find(s, name);
    if (!t || strcmp(x->file[t->file], in) != 0)
      return mtx_fail_at(err, MTX_EFORMAT, path, name, 0, "the index says that %.200s holds the tensor, which it does not; the files belong to different models", in);
  }
  return MTX_OK;
}

static mtx_code open_files(mtx_st *s, const char *const *names, int n, mtx_err *err) {
  s->files = calloc((size_t)n, sizeof *s->files);
  if (!s->files) return mtx_fail_at(err, MTX_ENOMEM, s->folder, NULL, 0, "not enough memory for %d files", n);
  for (int i = 0; i < n; i++) {
    s->n_files = i + 1;
    mtx_code code = file_open(&s->files[i], s->folder, names[i], err);
    if (code) return code;
  }
  return join(s, err);
}

static mtx_code open_sharded(mtx_st *s, const char *path, mtx_err *err) {
  mtx_map *map;
  mtx_st_index x;
  mtx_code code = mtx_map_open(&map, path, err);
  if (code) return code;
  if ((code = mtx_st_index_parse(&x, (const char *)mtx_map_data(map), mtx_map_bytes(map), path, err))) goto done;
  code = open_files(s, x.file, x.n_files, err);
  if (!code) code = check_index(s, &x, path, err);
  mtx_st_index_fini(&x);
done:
  mtx_map_close(map);
  return code;
}

mtx_code mtx_st_open(mtx_st **out, const char *folder, mtx_err *err) {
  static const char *const single = "model.safetensors", *const index = "model.safetensors.index.json";
  *out = NULL;
  size_t cap = strlen(folder) + strlen(index) + 2;
  char *path = malloc(cap);
  mtx_st *s = calloc(1, sizeof *s);
  mtx_code code = MTX_ENOMEM;
  if (s) s->folder = strdup(folder);
  if (!path || !s || !s->folder) {
    mtx_fail_at(err, code, folder, NULL, 0, "not enough memory to open the model");
    goto fail;
  }
  snprintf(path, cap, "%s/%s", folder, single);
  bool one = access(path, F_OK) == 0;
  if (!one) snprintf(path, cap, "%s/%s", folder, index);
  if (!one && access(path, F_OK) != 0) {
    code = mtx_fail_at(err, MTX_ENOTFOUND, folder, NULL, 0, "the folder holds neither %s nor %s; other formats of weights (.bin, .pth) are not read", single, index);
    goto fail;
  }
  if ((code = one ? open_files(s, &single, 1, err) : open_sharded(s, path, err))) goto fail;
  free(path);
  *out = s;
  return MTX_OK;
fail:
  free(path);
  mtx_st_close(s);
  return code;
}

mtx_code mtx_st_open_mem(mtx_st **out, const void *bytes, size_t n, mtx_err *err) {
  *out = NULL;
  mtx_st *s = calloc(1, sizeof *s);
  mtx_code code = MTX_OK;
  if (s) s->folder = strdup(""), s->files = calloc(1, sizeof *s->files);
  if (!s || !s->folder || !s->files) {
    code = mtx_fail(err, MTX_ENOMEM, "not enough memory to open the model");
  } else {
    s->n_files = 1;
    s->files[0].base = bytes;
    s->files[0].n_bytes = n;
    code = file_parse(&s->files[0], err);
    if (!code) code = join(s, err);
  }
  if (code) mtx_st_close(s);
  else *out = s;
  return code;
}

void mtx_st_close(mtx_st *s) {
  if (!s) return;
  for (int i = 0; i < s->n_files; i++) file_fini(&s->files[i]);
  free(s->files);
  free(s->tensors);
  free(s->folder);
  free(s);
}

const char *mtx_st_folder(const mtx_st *s) { return s->folder; }
uint64_t mtx_st_n_tensors(const mtx_st *s) { return s->n_tensors; }
const mtx_st_tensor *mtx_st_tensor_at(const mtx_st *s, uint64_t i) { return &s->tensors[i]; }
int mtx_st_n_files(const mtx_st *s) { return s->n_files; }
const char *mtx_st_file_path(const mtx_st *s, int i) { return s->files[i].path ? s->files[i].path : ""; }

const mtx_st_tensor *mtx_st_tensor_find(const mtx_st *s, const char *name) {
  mtx_st_tensor key = {.name = name};
  return s->n_tensors ? bsearch(&key, s->tensors, s->n_tensors, sizeof key, by_name) : NULL;
}

mtx_map *mtx_st_map(const mtx_st *s, int i) { return s->files[i].map; }

void mtx_st_release_maps(mtx_st *s) {
  for (int i = 0; i < s->n_files; i++) s->files[i].map = NULL;
}
