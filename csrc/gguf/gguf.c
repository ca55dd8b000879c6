// SPDX-License-Identifier: MIT
// Opens GGUF models, joins their shards: see gguf.h. Parsing is in parse.c.
//
// Shard paths are built from the given path only (same folder, same prefix);
// the metadata confirms number and count and can never name another file.
#include "base/checksum.h"
#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/parse.h"

// Splits "PREFIX-00002-of-00003.gguf"; *no counts from 1.
static bool shard_name(const char *path, size_t *prefix_len, uint32_t *no, uint32_t *count) {
  size_t n = strlen(path);
  const size_t tail = strlen("-00002-of-00003.gguf");
  if (n < tail) return false;
  const char *p = path + n - tail;
  int used = 0;
  for (size_t i = 0; i < tail; i++) {
    bool digit_place = (i >= 1 && i <= 5) || (i >= 10 && i <= 14);
    if (digit_place ? p[i] < '0' || p[i] > '9' : p[i] != "-00002-of-00003.gguf"[i]) return false;
  }
  *prefix_len = n - tail;
  return sscanf(p, "-%5u-of-%5u.gguf%n", no, count, &used) == 2 && used == (int)tail;
}

static char *shard_path(const char *path, size_t prefix_len, uint32_t no, uint32_t count) {
  size_t cap = prefix_len + 64;
  char *s = malloc(cap);
  if (s) snprintf(s, cap, "%.*s-%05u-of-%05u.gguf", (int)prefix_len, path, no, count);
  return s;
}

static bool part_u64(const mtx_gguf_part *p, const char *key, uint64_t *out) {
  const mtx_gguf_kv *kv = mtx_gguf_part_find(p, key);
  return kv && mtx_gguf_kv_u64(kv, out);
}

static mtx_code part_open(mtx_gguf_part *p, const char *path, int flags, mtx_err *err) {
  p->path = strdup(path);
  if (!p->path) return mtx_fail_at(err, MTX_ENOMEM, path, NULL, 0, "not enough memory to open the file");
  mtx_code code = mtx_map_open(&p->map, path, err);
  if (code != MTX_OK) return code;
  p->base = mtx_map_data(p->map);
  p->n_bytes = mtx_map_bytes(p->map);
  code = mtx_gguf_part_parse(p, flags, err);
  if (mtx_map_damaged(p->map))
    return mtx_fail_at(err, MTX_EIO, path, NULL, 0, "the file became shorter or unreadable while it was being opened");
  return code;
}

// The number of shards the metadata of a part claims; 1 when it claims none.
static mtx_code part_split(const mtx_gguf_part *p, uint64_t *no, uint64_t *count, mtx_err *err) {
  *no = 0, *count = 1;
  const mtx_gguf_kv *kv = mtx_gguf_part_find(p, "split.count");
  if (!kv) return MTX_OK;
  if (!mtx_gguf_kv_u64(kv, count) || *count > MTX_GGUF_MAX_SHARDS)
    return mtx_fail_at(err, MTX_EFORMAT, p->path, "split.count", (uint64_t)(kv->data - p->base),
                       "the number of shards must be an integer up to %d", MTX_GGUF_MAX_SHARDS);
  if (*count <= 1) {
    *count = 1;
    return MTX_OK;
  }
  kv = mtx_gguf_part_find(p, "split.no");
  if (!kv || !mtx_gguf_kv_u64(kv, no) || *no >= *count)
    return mtx_fail_at(err, MTX_EFORMAT, p->path, "split.no", kv ? (uint64_t)(kv->data - p->base) : 0,
                       "a shard of %llu must say its number, 0 to %llu", (unsigned long long)*count,
                       (unsigned long long)*count - 1);
  return MTX_OK;
}

static bool same_value(const mtx_gguf_kv *a, const mtx_gguf_kv *b) {
  if (a->type != b->type || a->n != b->n || a->item_type != b->item_type) return false;
  if (a->type != MTX_GGUF_STRING) return a->type == MTX_GGUF_ARRAY || !memcmp(a->data, b->data, mtx_gguf_type_bytes(a->type));
  mtx_str x = mtx_gguf_item_str(a, 0), y = mtx_gguf_item_str(b, 0);
  return x.len == y.len && !memcmp(x.ptr, y.ptr, x.len);
}

// Shards of one model carry the same general.* values where they repeat them.
static mtx_code check_same_model(const mtx_gguf_part *first, const mtx_gguf_part *p, mtx_err *err) {
  for (uint64_t i = 0; i < p->n_kv; i++) {
    const mtx_gguf_kv *kv = &p->kv[i];
    if (kv->key.len < 8 || memcmp(kv->key.ptr, "general.", 8) != 0) continue;
    const mtx_gguf_name *e = NULL;
    char key[128];
    if (kv->key.len < sizeof key) {
      snprintf(key, sizeof key, "%.*s", (int)kv->key.len, kv->key.ptr);
      e = mtx_gguf_names_find(first->kv_names, first->n_kv, key);
    }
    if (!e || !strcmp(key, "general.alignment") || same_value(&first->kv[e->i], kv)) continue;
    return mtx_gguf_fail(err, MTX_EFORMAT, p->path, kv->key, (uint64_t)(kv->data - p->base),
                         "the value differs from the first shard's; the shards belong to different models");
  }
  return MTX_OK;
}

static mtx_code check_shard(const mtx_gguf *g, int i, uint64_t count, mtx_err *err) {
  const mtx_gguf_part *p = &g->parts[i];
  uint64_t no, n;
  mtx_code code = part_split(p, &no, &n, err);
  if (code != MTX_OK) return code;
  if (no != (uint64_t)i || n != count)
    return mtx_fail_at(err, MTX_EFORMAT, p->path, "split.no", 0,
                       "the file says it is shard %llu of %llu, its name says %d of %llu; rename the files or fetch them again",
                       (unsigned long long)no + 1, (unsigned long long)n, i + 1, (unsigned long long)count);
  return i ? check_same_model(&g->parts[0], p, err) : MTX_OK;
}

static mtx_code check_all_there(const char *path, size_t prefix, uint32_t count, int want, mtx_err *err) {
  for (uint32_t i = 1; i <= (uint32_t)want; i++) {
    char *s = shard_path(path, prefix, i, count);
    bool there = s && access(s, F_OK) == 0;
    mtx_code code = MTX_OK;
    if (!s) code = mtx_fail_at(err, MTX_ENOMEM, path, NULL, 0, "not enough memory to open the file");
    else if (!there)
      code = mtx_fail_at(err, MTX_ENOTFOUND, s, NULL, 0, "shard %u of %u is missing; put it beside the others", i, count);
    free(s);
    if (code != MTX_OK) return code;
  }
  return MTX_OK;
}

// parts[0] holds the file the caller named, which says it is one of `count`.
static mtx_code open_shards(mtx_gguf *g, uint64_t no, uint64_t count, int flags, mtx_err *err) {
  size_t prefix = 0;
  uint32_t name_no = 0, name_count = 0;
  if (!shard_name(g->path, &prefix, &name_no, &name_count) || name_count != count || name_no != no + 1)
    return mtx_fail_at(err, MTX_EFORMAT, g->path, "split.count", 0,
                       "this is shard %llu of %llu, so its name must end in -%05llu-of-%05llu.gguf; rename it",
                       (unsigned long long)no + 1, (unsigned long long)count, (unsigned long long)no + 1,
                       (unsigned long long)count);
  int want = flags & MTX_GGUF_VOCAB_ONLY ? 1 : (int)count;
  mtx_code code = check_all_there(g->path, prefix, name_count, want, err);
  if (code != MTX_OK) return code;
  mtx_gguf_part *parts = calloc((size_t)want, sizeof *parts);
  if (!parts) return mtx_fail_at(err, MTX_ENOMEM, g->path, NULL, 0, "not enough memory for %d shards", want);
  mtx_gguf_part named = g->parts[0];
  free(g->parts);
  g->parts = parts;
  g->n_parts = want;
  if (no < (uint64_t)want) parts[no] = named;
  else mtx_gguf_part_fini(&named);
  for (int i = 0; i < want; i++) {
    if (!parts[i].base) {
      char *s = shard_path(g->path, prefix, (uint32_t)i + 1, name_count);
      code = s ? part_open(&parts[i], s, flags, err)
               : mtx_fail_at(err, MTX_ENOMEM, g->path, NULL, 0, "not enough memory to open the file");
      free(s);
      if (code != MTX_OK) return code;
    }
    if ((code = check_shard(g, i, count, err)) != MTX_OK) return code;
  }
  return MTX_OK;
}

// One directory of all parts; names are unique across shards.
static mtx_code join(mtx_gguf *g, mtx_err *err) {
  for (int i = 0; i < g->n_parts; i++) {
    g->n_tensors += g->parts[i].n_tensors;
    g->n_bytes += g->parts[i].n_bytes;
  }
  size_t cap = g->n_tensors ? g->n_tensors : 1;
  g->tensors = calloc(cap, sizeof *g->tensors);
  g->tensor_names = calloc(cap, sizeof *g->tensor_names);
  if (!g->tensors || !g->tensor_names)
    return mtx_fail_at(err, MTX_ENOMEM, g->path, NULL, 0, "not enough memory for %zu tensors", cap);
  uint64_t n = 0;
  for (int i = 0; i < g->n_parts; i++) {
    for (uint64_t k = 0; k < g->parts[i].n_tensors; k++, n++) {
      g->tensors[n] = g->parts[i].tensors[k];
      g->tensors[n].shard = i;
      g->tensor_names[n] = (mtx_gguf_name){g->tensors[n].name, n};
    }
  }
  int64_t twice = mtx_gguf_names_sort(g->tensor_names, n);
  if (twice >= 0) {
    const mtx_gguf_tensor *t = &g->tensors[twice];
    const mtx_gguf_part *p = &g->parts[t->shard];
    return mtx_gguf_fail(err, MTX_EFORMAT, p->path, t->name, (uint64_t)((const uint8_t *)t->name.ptr - p->base),
                         "the tensor name occurs twice");
  }
  uint64_t total;
  if (g->n_parts > 1 && part_u64(&g->parts[0], "split.tensors.count", &total) && total != n)
    return mtx_fail_at(err, MTX_EFORMAT, g->path, "split.tensors.count", 0,
                       "the shards hold %llu tensors, %llu were announced; they belong to different models",
                       (unsigned long long)n, (unsigned long long)total);
  return MTX_OK;
}

static mtx_gguf *handle_new(const char *path, int n_parts) {
  mtx_gguf *g = calloc(1, sizeof *g);
  if (!g) return NULL;
  g->path = strdup(path);
  g->parts = calloc((size_t)n_parts, sizeof *g->parts);
  g->n_parts = n_parts;
  if (g->path && g->parts) return g;
  mtx_gguf_close(g);
  return NULL;
}

mtx_code mtx_gguf_open(mtx_gguf **out, const char *path, int flags, mtx_err *err) {
  *out = NULL;
  uint64_t no, count;
  mtx_gguf *g = handle_new(path, 1);
  if (!g) return mtx_fail_at(err, MTX_ENOMEM, path, NULL, 0, "not enough memory to open the file");
  mtx_code code = part_open(&g->parts[0], path, flags, err);
  if (code == MTX_OK) code = part_split(&g->parts[0], &no, &count, err);
  if (code == MTX_OK && count > 1) code = open_shards(g, no, count, flags, err);
  if (code == MTX_OK) code = join(g, err);
  if (code != MTX_OK) {
    mtx_gguf_close(g);
    return code;
  }
  *out = g;
  return MTX_OK;
}

mtx_code mtx_gguf_open_mem(mtx_gguf **out, const void *bytes, size_t n, int flags, mtx_err *err) {
  *out = NULL;
  uint64_t no, count;
  mtx_gguf *g = handle_new("", 1);
  if (g) g->parts[0].path = strdup("");
  mtx_code code = g && g->parts[0].path ? MTX_OK : mtx_fail(err, MTX_ENOMEM, "not enough memory to open the model");
  if (code == MTX_OK) {
    g->parts[0].base = bytes;
    g->parts[0].n_bytes = n;
    code = mtx_gguf_part_parse(&g->parts[0], flags, err);
  }
  if (code == MTX_OK) code = part_split(&g->parts[0], &no, &count, err);
  if (code == MTX_OK && count > 1 && !(flags & MTX_GGUF_VOCAB_ONLY))
    code = mtx_fail_at(err, MTX_EUNSUPPORTED, NULL, "split.count", 0, "a shard of a split model must be opened from its file");
  if (code == MTX_OK) code = join(g, err);
  if (code != MTX_OK) {
    mtx_gguf_close(g);
    return code;
  }
  *out = g;
  return MTX_OK;
}

static mtx_code assemble_parts(mtx_gguf *g, const mtx_gguf_made *m, mtx_err *err) {
  mtx_gguf_part *p = &g->parts[0];
  g->head = malloc(m->n_head);
  p->path = strdup(m->path);
  p->tensors = NULL;
  if (!g->head || !p->path) return mtx_fail_at(err, MTX_ENOMEM, m->path, NULL, 0, "not enough memory for %zu bytes of metadata", m->n_head);
  p->base = memcpy(g->head, m->head, m->n_head);
  p->n_bytes = m->n_head;
  mtx_code code = mtx_gguf_part_parse(p, 0, err);
  if (code) return code;
  for (int i = 0; i < m->n_files; i++) {
    mtx_gguf_part *file = &g->parts[i + 1];
    file->path = strdup(m->file_path[i]);
    if (!file->path) return mtx_fail_at(err, MTX_ENOMEM, m->path, NULL, 0, "not enough memory to open the model");
    if (!m->map[i]) continue;
    file->base = mtx_map_data(m->map[i]);
    file->n_bytes = mtx_map_bytes(m->map[i]);
  }
  free(p->tensors);
  p->tensors = malloc((m->n_tensors + 1) * sizeof *p->tensors);
  if (!p->tensors) return mtx_fail_at(err, MTX_ENOMEM, m->path, NULL, 0, "not enough memory for %llu tensors", (unsigned long long)m->n_tensors);
  if (m->n_tensors) memcpy(p->tensors, m->tensors, m->n_tensors * sizeof *p->tensors);
  p->n_tensors = m->n_tensors;
  return join(g, err);
}

mtx_code mtx_gguf_assemble(mtx_gguf **out, const mtx_gguf_made *m, mtx_err *err) {
  *out = NULL;
  mtx_gguf *g = handle_new(m->path, m->n_files + 1);
  if (!g) return mtx_fail_at(err, MTX_ENOMEM, m->path, NULL, 0, "not enough memory to open the model");
  mtx_code code = assemble_parts(g, m, err);
  if (code != MTX_OK) {
    mtx_gguf_close(g);
    return code;
  }
  for (uint64_t i = 0; i < g->n_tensors; i++) g->tensors[i].shard = m->tensors[i].shard;
  for (int i = 0; i < m->n_files; i++) g->parts[i + 1].map = m->map[i];
  g->owned = m->owned;
  *out = g;
  return MTX_OK;
}

void mtx_gguf_close(mtx_gguf *g) {
  if (!g) return;
  for (int i = 0; g->parts && i < g->n_parts; i++) mtx_gguf_part_fini(&g->parts[i]);
  free(g->parts);
  free(g->tensors);
  free(g->tensor_names);
  free(g->head);
  free(g->owned);
  free(g->path);
  free(g);
}

const char *mtx_gguf_path(const mtx_gguf *g) { return g->path; }
bool mtx_gguf_is_made(const mtx_gguf *g) { return g->head != NULL; }
uint64_t mtx_gguf_file_bytes(const mtx_gguf *g) { return g->n_bytes; }
int mtx_gguf_version(const mtx_gguf *g) { return (int)g->parts[0].version; }
uint32_t mtx_gguf_alignment(const mtx_gguf *g) { return g->parts[0].alignment; }
int mtx_gguf_n_shards(const mtx_gguf *g) { return g->n_parts; }
const char *mtx_gguf_shard_path(const mtx_gguf *g, int i) { return g->parts[i].path; }

mtx_code mtx_gguf_check(const mtx_gguf *g, mtx_err *err) {
  for (int i = 0; i < g->n_parts; i++)
    if (g->parts[i].map && mtx_map_damaged(g->parts[i].map))
      return mtx_fail_at(err, MTX_EIO, g->parts[i].path, NULL, 0,
                         "the file became shorter or unreadable while the model was in use; restore it and load the model again");
  return MTX_OK;
}

uint64_t mtx_gguf_n_kv(const mtx_gguf *g) { return g->parts[0].n_kv; }
const mtx_gguf_kv *mtx_gguf_kv_at(const mtx_gguf *g, uint64_t i) { return &g->parts[0].kv[i]; }
const mtx_gguf_kv *mtx_gguf_find(const mtx_gguf *g, const char *key) { return mtx_gguf_part_find(&g->parts[0], key); }

uint64_t mtx_gguf_kv_offset(const mtx_gguf *g, const mtx_gguf_kv *kv) {
  return (uint64_t)(kv->data - g->parts[0].base);
}

uint64_t mtx_gguf_n_tensors(const mtx_gguf *g) { return g->n_tensors; }
const mtx_gguf_tensor *mtx_gguf_tensor_at(const mtx_gguf *g, uint64_t i) { return &g->tensors[i]; }

const mtx_gguf_tensor *mtx_gguf_tensor_find(const mtx_gguf *g, const char *name) {
  const mtx_gguf_name *e = mtx_gguf_names_find(g->tensor_names, g->n_tensors, name);
  return e ? &g->tensors[e->i] : NULL;
}

uint64_t mtx_gguf_tensor_offset(const mtx_gguf *g, const mtx_gguf_tensor *t) {
  const mtx_gguf_part *p = &g->parts[t->shard];
  const uint8_t *data = t->scatter ? t->scatter->mat[0] : t->data;
  return data && data >= p->base && data < p->base + p->n_bytes ? (uint64_t)(data - p->base) : 0;
}

void mtx_gguf_tensor_release(const mtx_gguf *g, const mtx_gguf_tensor *t) {
  uint64_t n_mats = t->scatter ? t->ne[2] * t->ne[3] : 1, n = t->n_bytes / n_mats;
  for (uint64_t m = 0; m < n_mats; m++) {
    const uint8_t *data = t->scatter ? t->scatter->mat[m] : t->data;
    for (int i = t->scatter ? 0 : t->shard; data && i < g->n_parts; i++) {
      const mtx_gguf_part *p = &g->parts[i];
      bool inside = data >= p->base && data < p->base + p->n_bytes;
      if (inside && p->map) mtx_map_release(p->map, data, n);
      if (inside || !t->scatter) break;
    }
  }
}

void mtx_gguf_rows(const mtx_gguf_tensor *t, uint64_t m, uint64_t r0, uint64_t n, void *dst) {
  uint64_t row = t->n_bytes / (t->ne[1] * t->ne[2] * t->ne[3]);
  const uint8_t *from = t->scatter ? t->scatter->mat[m] : (const uint8_t *)t->data + m * t->ne[1] * row;
  uint64_t head = t->scatter && t->scatter->n_half_heads ? t->ne[1] / t->scatter->n_half_heads : 0;
  if (t->scatter && t->scatter->transposed) {
    uint64_t size = row / t->ne[0];
    for (uint64_t c = 0; c < t->ne[0]; c++)
      for (uint64_t r = 0; r < n; r++) memcpy((uint8_t *)dst + r * row + c * size, from + (c * t->ne[1] + r0 + r) * size, size);
    return;
  }
  if (!head) {
    memcpy(dst, from + r0 * row, n * row);
    return;
  }
  for (uint64_t r = r0; r < r0 + n; r++) memcpy((uint8_t *)dst + (r - r0) * row, from + mtx_gguf_half_row(r, head) * row, row);
}

mtx_code mtx_gguf_checksum(const mtx_gguf *g, uint64_t *out, mtx_err *err) {
  enum { CHUNK = 4 << 20 };
  mtx_checksum c;
  mtx_checksum_init(&c);
  for (int i = 0; i < g->n_parts; i++) {
    const mtx_gguf_part *p = &g->parts[i];
    for (uint64_t at = 0; at < p->n_bytes; at += CHUNK) {
      uint64_t n = p->n_bytes - at < CHUNK ? p->n_bytes - at : CHUNK;
      mtx_checksum_update(&c, p->base + at, n);
      if (p->map) mtx_map_release(p->map, p->base + at, n);
    }
  }
  *out = mtx_checksum_get(&c);
  return mtx_gguf_check(g, err);
}
