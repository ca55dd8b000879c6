// SPDX-License-Identifier: MIT
// Inside of csrc/gguf: one file parsed and checked, before shards are joined.
#ifndef MTX_GGUF_PARSE_H
#define MTX_GGUF_PARSE_H

#include "gguf/gguf.h"
#include "gguf/map.h"

// Limits on what a file may claim, next to "the file must be able to hold it".
// The largest vocabularies of 2025 have 262,144 tokens and 514,906 merges.
enum {
  MTX_GGUF_MAX_KEY_BYTES = 65535,        // docs/gguf.md
  MTX_GGUF_MAX_NAME_BYTES = 255,         // the format says 64; ggml's own limit is 63
  MTX_GGUF_MAX_STRING_BYTES = 64 << 20,
  MTX_GGUF_MAX_ITEMS = 64 << 20,         // of all arrays of a file together
  MTX_GGUF_MAX_KV = 1 << 16,
  MTX_GGUF_MAX_TENSORS = 1 << 20,
  MTX_GGUF_MAX_ALIGNMENT = 1 << 20,
  MTX_GGUF_MAX_SHARDS = 4096,
  MTX_GGUF_DEFAULT_ALIGNMENT = 32,
};

// A sorted list of names: lookups in log n, duplicates are neighbours, and no
// choice of names makes it slow (a hash table would need a secret seed).
typedef struct { mtx_str name; uint64_t i; } mtx_gguf_name;

typedef struct {
  char *path;       // owned; "" for memory
  mtx_map *map;     // owned; NULL for memory
  const uint8_t *base;
  uint64_t n_bytes;
  uint32_t version;
  uint32_t alignment;
  uint64_t data_offset;
  mtx_gguf_kv *kv;         // [n_kv], owned (with each str_off)
  uint64_t n_kv;
  mtx_gguf_name *kv_names; // [n_kv] sorted
  mtx_gguf_tensor *tensors;
  uint64_t n_tensors;
} mtx_gguf_part;

struct mtx_gguf {
  char *path;
  mtx_gguf_part *parts;     // [n_parts], shard order; metadata is parts[0]'s
  int n_parts;
  uint64_t n_bytes;
  mtx_gguf_tensor *tensors; // [n_tensors] of all parts
  uint64_t n_tensors;
  mtx_gguf_name *tensor_names;
  uint8_t *head;            // of an assembled model: parts[0]'s bytes, and what tensors point into
  void *owned;
};

// Parses p->base[0 .. p->n_bytes); fills the rest of *p. The caller calls fini
// whatever the result.
mtx_code mtx_gguf_part_parse(mtx_gguf_part *p, int flags, mtx_err *err);
void mtx_gguf_part_fini(mtx_gguf_part *p);
const mtx_gguf_kv *mtx_gguf_part_find(const mtx_gguf_part *p, const char *key);

// Reads an integer of any width; false when the item is negative or not an integer.
bool mtx_gguf_kv_u64(const mtx_gguf_kv *kv, uint64_t *out);
uint32_t mtx_gguf_type_bytes(uint32_t type);  // 0 for string, array and unknown types
const char *mtx_gguf_type_name(uint32_t type);

// Sorts names[n]; returns the index of a name that occurs twice, or -1.
int64_t mtx_gguf_names_sort(mtx_gguf_name *names, uint64_t n);
const mtx_gguf_name *mtx_gguf_names_find(const mtx_gguf_name *names, uint64_t n, const char *name);

// mtx_fail_at with a key that is not zero-terminated.
mtx_code mtx_gguf_fail(mtx_err *err, mtx_code code, const char *file, mtx_str key, uint64_t offset,
                       const char *fmt, ...) __attribute__((format(printf, 6, 7)));

#endif
