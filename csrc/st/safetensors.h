// SPDX-License-Identifier: MIT
// safetensors files: names, types, shapes and mapped bytes of tensors.
//
// A file is a u64 header length, that many bytes of JSON and the data (format:
// safetensors' README). A model is one file, model.safetensors, or several that
// model.safetensors.index.json lists. Everything a file says is checked once, in
// open; what the accessors give afterwards lies inside the mappings.
#ifndef MTX_ST_SAFETENSORS_H
#define MTX_ST_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gguf/map.h"

enum {
  MTX_ST_MAX_HEADER_BYTES = 16 << 20,  // the format allows 100 MB; 100,000 tensors take about 12
  MTX_ST_MAX_DIMS = 8,
  MTX_ST_MAX_FILES = 4096,
};

typedef struct {
  const char *name;                 // zero-terminated, UTF-8
  const char *dtype;                // "F32", "BF16", ...: one that mtx_st_dtype_bits knows
  uint32_t n_dims;                  // 0 for a single number
  uint64_t shape[MTX_ST_MAX_DIMS];  // the last one is contiguous
  const uint8_t *data;
  uint64_t n_bytes;
  int file;
} mtx_st_tensor;

typedef struct mtx_st mtx_st;

// Opens the weights of a model folder. Errors: MTX_ENOTFOUND, MTX_EIO, MTX_EFORMAT, MTX_EUNSUPPORTED (dtype),
// MTX_ELIMIT, MTX_ENOMEM, each with the file and the tensor. On failure *out is NULL.
mtx_code mtx_st_open(mtx_st **out, const char *folder, mtx_err *err);
// One file in memory (tests, fuzzing); the bytes must outlive the handle.
mtx_code mtx_st_open_mem(mtx_st **out, const void *bytes, size_t n, mtx_err *err);
void mtx_st_close(mtx_st *s);  // NULL is allowed

const char *mtx_st_folder(const mtx_st *s);
uint64_t mtx_st_n_tensors(const mtx_st *s);
const mtx_st_tensor *mtx_st_tensor_at(const mtx_st *s, uint64_t i);          // in the order of names
const mtx_st_tensor *mtx_st_tensor_find(const mtx_st *s, const char *name);  // NULL when absent
const char *mtx_st_file_path(const mtx_st *s, int file);
int mtx_st_n_files(const mtx_st *s);
mtx_map *mtx_st_map(const mtx_st *s, int file);  // borrowed; NULL for memory
// From now on the caller of mtx_st_map owns the mappings; the handle's tensors still point into them.
void mtx_st_release_maps(mtx_st *s);

// Bits of one number of the type, or 0 when the format has no such type.
uint32_t mtx_st_dtype_bits(const char *dtype);

#endif
