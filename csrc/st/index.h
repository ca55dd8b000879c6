// SPDX-License-Identifier: MIT
// model.safetensors.index.json: which file of a folder holds which tensor.
#ifndef MTX_ST_INDEX_H
#define MTX_ST_INDEX_H

#include "base/err.h"
#include "grammar/json.h"

typedef struct {
  mtx_json json;       // the document; owns all names
  uint32_t map;        // node of "weight_map": a member for each tensor, its text the file's name
  const char **file;   // [n_files] each once, sorted
  int n_files;
} mtx_st_index;

// Files are plain names that end in .safetensors, so an index never leads out of its folder.
// `path` is for messages. On failure *out is empty.
mtx_code mtx_st_index_parse(mtx_st_index *out, const char *text, size_t n, const char *path, mtx_err *err);
void mtx_st_index_fini(mtx_st_index *x);

#endif
