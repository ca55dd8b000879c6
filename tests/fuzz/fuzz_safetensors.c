// SPDX-License-Identifier: MIT
// Any bytes as a safetensors file: open, touch every tensor, put GGUF's face on all of
// them and read it too. The same bytes as an index of shards.
#include <stdlib.h>
#include <string.h>

#include "st/face.h"
#include "st/index.h"

static volatile uint64_t sink;

// A GGUF file without metadata and tensors.
static const uint8_t head[32] = {'G', 'G', 'U', 'F', 3};

static void touch(const mtx_st *s) {
  for (uint64_t i = 0; i < mtx_st_n_tensors(s); i++) {
    const mtx_st_tensor *t = mtx_st_tensor_at(s, i);
    if (mtx_st_tensor_find(s, t->name) != t || !mtx_st_dtype_bits(t->dtype)) abort();
    if (t->n_bytes) sink += t->data[0] + t->data[t->n_bytes - 1];
  }
}

static void read_face(const mtx_gguf *g) {
  for (uint64_t i = 0; i < mtx_gguf_n_tensors(g); i++) {
    const mtx_gguf_tensor *t = mtx_gguf_tensor_at(g, i);
    uint64_t n_mats = t->ne[2] * t->ne[3];
    uint8_t *all = malloc(t->n_bytes);
    if (!all) continue;
    for (uint64_t m = 0; m < n_mats; m++) mtx_gguf_rows(t, m, 0, t->ne[1], all + m * (t->n_bytes / n_mats));
    sink += all[0] + all[t->n_bytes - 1];
    free(all);
  }
}

// Each tensor in one of the ways a model may use it; what cannot be used is refused.
static void put_face(mtx_st *s, mtx_st_use use, bool stacked) {
  uint64_t n = mtx_st_n_tensors(s);
  for (uint64_t i = 0; i < n; i++) {
    const mtx_st_tensor *from[2] = {mtx_st_tensor_at(s, i), mtx_st_tensor_at(s, (i + 1) % n)};
    use.name = from[0]->name;
    use.from = from;
    use.n_from = stacked ? 2 : 1;
    mtx_gguf *g;
    mtx_err err;
    mtx_code code = mtx_st_face(&g, s, head, sizeof head, &use, 1, &err);
    if (code) {
      if (g || err.code != code) abort();
    } else {
      read_face(g);
      mtx_gguf_close(g);
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  mtx_st *s;
  mtx_st_index x;
  mtx_err err;
  uint8_t *copy = malloc(size + 1);  // its end is watched, and it is aligned as a mapping is
  if (!copy) return 0;
  memcpy(copy, data, size);
  if (mtx_st_open_mem(&s, copy, size, &err) == MTX_OK) {
    touch(s);
    if (mtx_st_n_tensors(s) <= 16) {
      put_face(s, (mtx_st_use){0}, false);
      put_face(s, (mtx_st_use){.n_half_heads = 2}, false);
      put_face(s, (mtx_st_use){.n_half_heads = 2}, true);
      put_face(s, (mtx_st_use){.change = MTX_ST_PLUS_ONE}, false);
      put_face(s, (mtx_st_use){.change = MTX_ST_MINUS_EXP, .n_half_heads = 3}, false);
      put_face(s, (mtx_st_use){.n_heads = 2, .first_row = 1, .n_rows = 1}, false);
      put_face(s, (mtx_st_use){.n_heads = 2, .n_rows = 2, .transposed = true}, false);
    }
    mtx_st_close(s);
  } else if (s) {
    abort();
  }
  if (mtx_st_index_parse(&x, (const char *)copy, size, "index", &err) == MTX_OK) {
    for (int i = 0; i < x.n_files; i++)
      if (strchr(x.file[i], '/') || x.file[i][0] == '.') abort();
    mtx_st_index_fini(&x);
  }
  free(copy);
  return 0;
}
