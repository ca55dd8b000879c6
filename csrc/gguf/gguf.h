// SPDX-License-Identifier: MIT
// GGUF v2/v3 files: metadata, tensor directory, mapped tensor data.
//
// Everything a file says is checked once, in open: counts, offsets, sizes,
// alignment, duplicates, types. After a successful open every accessor is
// total: no pointer it returns leaves the mapping and no size can overflow.
// Split files (NAME-00001-of-000NN.gguf) are opened as one, from any shard.
// Format: ggml's docs/gguf.md.
#ifndef MTX_GGUF_GGUF_H
#define MTX_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum {
  MTX_GGUF_U8 = 0, MTX_GGUF_I8, MTX_GGUF_U16, MTX_GGUF_I16, MTX_GGUF_U32, MTX_GGUF_I32,
  MTX_GGUF_F32, MTX_GGUF_BOOL, MTX_GGUF_STRING, MTX_GGUF_ARRAY, MTX_GGUF_U64, MTX_GGUF_I64,
  MTX_GGUF_F64,
} mtx_gguf_type;

// A borrowed, NOT zero-terminated string inside the mapping.
typedef struct { const char *ptr; size_t len; } mtx_str;

typedef struct mtx_gguf mtx_gguf;

typedef struct {
  mtx_str key;
  mtx_gguf_type type;        // MTX_GGUF_ARRAY for arrays
  mtx_gguf_type item_type;   // of an array; never MTX_GGUF_ARRAY
  uint64_t n;                // items of an array, else 1
  const uint8_t *data;       // raw value, or first array item (unaligned, little-endian)
  const uint64_t *str_off;   // string arrays: n+1 offsets, item i = data+str_off[i]+8 .. data+str_off[i+1]
  uint64_t str_len;          // of a single string, whose bytes begin at data+8
} mtx_gguf_kv;

typedef struct {
  mtx_str name;
  uint32_t type;             // ggml tensor type id; known to mtx_qtype_get
  uint32_t n_dims;           // 1..4
  uint64_t ne[4];            // ne[0] is the contiguous one (row length); unused dims are 1
  const void *data;          // mapped bytes; NULL in a vocabulary-only open, and with `scatter`
  uint64_t n_bytes;
  int shard;                 // index of the file that holds it
  const struct mtx_gguf_scatter *scatter;  // NULL in files
} mtx_gguf_tensor;

// A tensor of another format whose bytes are not one run in GGUF's order.
typedef struct mtx_gguf_scatter {
  const uint8_t *const *mat;  // [ne[2] * ne[3]]: where each matrix of ne[1] rows lies
  // Not 0: the rows are so many heads, each of them with the first floats of all rotary
  // pairs before the second ones (Hugging Face), where GGUF has them by turns.
  uint32_t n_half_heads;
  bool transposed;            // each matrix lies with its columns as rows
} mtx_gguf_scatter;

enum {
  // Do not require tensor data to be present. Of a split model only the first
  // shard is opened, so the tensor list is that shard's.
  MTX_GGUF_VOCAB_ONLY = 1,
};

// Opens `path` (and its sibling shards). On failure *out is NULL.
mtx_code mtx_gguf_open(mtx_gguf **out, const char *path, int flags, mtx_err *err);
// The same on bytes owned by the caller (tests, fuzzing); they must outlive the handle.
mtx_code mtx_gguf_open_mem(mtx_gguf **out, const void *bytes, size_t n, int flags, mtx_err *err);
// A model of another format behind the same face.
typedef struct {
  const char *path;         // the name it was opened by
  const uint8_t *head;      // a GGUF file without tensors: its metadata
  size_t n_head;
  int n_files;
  const char *const *file_path;
  struct mtx_map *const *map;      // NULL where tensors lie in the caller's memory (tests)
  const mtx_gguf_tensor *tensors;  // `shard` counts the files from 1
  uint64_t n_tensors;
  void *owned;              // malloc'ed memory that the tensors' names, data and scatters point into
} mtx_gguf_made;
// Copies what `made` lists; on success the handle owns its maps and `owned`, else the caller still does.
mtx_code mtx_gguf_assemble(mtx_gguf **out, const mtx_gguf_made *made, mtx_err *err);
void mtx_gguf_close(mtx_gguf *g);

const char *mtx_gguf_path(const mtx_gguf *g);
bool mtx_gguf_is_made(const mtx_gguf *g);         // by mtx_gguf_assemble
uint64_t mtx_gguf_file_bytes(const mtx_gguf *g);  // all shards
int mtx_gguf_version(const mtx_gguf *g);
uint32_t mtx_gguf_alignment(const mtx_gguf *g);   // of tensor data, a multiple of 8
int mtx_gguf_n_shards(const mtx_gguf *g);
const char *mtx_gguf_shard_path(const mtx_gguf *g, int i);  // i < n_shards

// A file that is truncated (or a disk that fails) under an open model gives
// zeros, not SIGBUS (map.h). Ask after a step and before results are reported.
mtx_code mtx_gguf_check(const mtx_gguf *g, mtx_err *err);  // MTX_EIO when damaged

uint64_t mtx_gguf_n_kv(const mtx_gguf *g);
const mtx_gguf_kv *mtx_gguf_kv_at(const mtx_gguf *g, uint64_t i);
const mtx_gguf_kv *mtx_gguf_find(const mtx_gguf *g, const char *key);  // NULL if absent

// Byte position of the value in the (first) file, for error messages.
uint64_t mtx_gguf_kv_offset(const mtx_gguf *g, const mtx_gguf_kv *kv);

uint64_t mtx_gguf_n_tensors(const mtx_gguf *g);
const mtx_gguf_tensor *mtx_gguf_tensor_at(const mtx_gguf *g, uint64_t i);
const mtx_gguf_tensor *mtx_gguf_tensor_find(const mtx_gguf *g, const char *name);
// Byte position in the tensor's shard; 0 in a vocabulary-only open.
uint64_t mtx_gguf_tensor_offset(const mtx_gguf *g, const mtx_gguf_tensor *t);

// Typed readers. Absent key: *out untouched, returns MTX_ENOTFOUND without
// filling err when `required` is false (and filling it when true). Present with
// a wrong type or a value that does not fit: MTX_EFORMAT naming file and key.
// Any integer type converts to any other that can hold the value; bool and
// integers do not mix; f64 converts to f32.
mtx_code mtx_gguf_get_u32(const mtx_gguf *g, const char *key, bool required, uint32_t *out, mtx_err *err);
mtx_code mtx_gguf_get_u64(const mtx_gguf *g, const char *key, bool required, uint64_t *out, mtx_err *err);
mtx_code mtx_gguf_get_f32(const mtx_gguf *g, const char *key, bool required, float *out, mtx_err *err);
mtx_code mtx_gguf_get_bool(const mtx_gguf *g, const char *key, bool required, bool *out, mtx_err *err);
mtx_code mtx_gguf_get_str(const mtx_gguf *g, const char *key, bool required, mtx_str *out, mtx_err *err);

// Array items by index (i < kv->n). The integer reader accepts any integer or
// bool item type; the float reader any float or integer item type; other types
// and i >= n give 0 or "". A single value counts as an array of one.
int64_t mtx_gguf_item_i64(const mtx_gguf_kv *kv, uint64_t i);
double mtx_gguf_item_f64(const mtx_gguf_kv *kv, uint64_t i);
mtx_str mtx_gguf_item_str(const mtx_gguf_kv *kv, uint64_t i);

// Where row r of GGUF's order lies among rows of such heads, `head` rows each.
static inline uint64_t mtx_gguf_half_row(uint64_t r, uint64_t head) { return r / head * head + r % head / 2 + r % 2 * (head / 2); }

// Copies rows [r0, r0 + n) of matrix m (m < ne[2] * ne[3]) to dst, in GGUF's order.
void mtx_gguf_rows(const mtx_gguf_tensor *t, uint64_t m, uint64_t r0, uint64_t n, void *dst);

// Tells the kernel that the mapped pages of `t` are not needed any more (they stay readable).
void mtx_gguf_tensor_release(const mtx_gguf *g, const mtx_gguf_tensor *t);

// Checksum of all bytes of all shards: the identity of a model. Reads everything; the
// pages are given back. MTX_EIO: a file was cut short.
mtx_code mtx_gguf_checksum(const mtx_gguf *g, uint64_t *out, mtx_err *err);

#endif
