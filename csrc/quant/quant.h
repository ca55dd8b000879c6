// SPDX-License-Identifier: MIT
// The tensor types of GGUF: names, block geometry, decoding.
//
// types.def has ONE row per type; each type has one header with its byte layout
// and scalar code. Decoding equals ggml bit for bit (tests/golden/quant).
#ifndef MTX_QUANT_QUANT_H
#define MTX_QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mtx_qtype {
  uint32_t id;              // ggml's type id
  const char *name;         // "Q4_K"
  uint32_t block;           // elements in a block (1 for plain floats)
  uint32_t block_bytes;     // bytes in a block
  bool has_min;             // unpack yields offsets other than 0
  // Decodes n elements (a multiple of `block`) from src to f32. NULL: the type
  // is known by name but holds no weights (I8, I16, ...).
  void (*decode)(const void *src, float *dst, int64_t n);
  // The integer form of 32 elements, for a multiplication by any type: see unpack.h. NULL where
  // weights are plain floats.
  void (*unpack)(const void *row, int64_t i_block32, int8_t *q, float *scale2, float *min2);
  // Encodes n floats (a multiple of `block`) the way ggml does, byte for byte, where that takes no search.
  void (*encode)(const float *src, void *dst, int64_t n);
  // Encodes one row by search (search.h): of types without `encode` the only way, of others the way with importance.
  void (*search)(const float *src, uint8_t *dst, int64_t n, const float *importance);
} mtx_qtype;

// NULL when the id is unknown or was removed from GGUF.
const mtx_qtype *mtx_qtype_get(uint32_t id);
const mtx_qtype *mtx_qtype_by_name(const char *name);  // case-insensitive
// All known types in id order, for listings and tests.
int mtx_qtype_count(void);
const mtx_qtype *mtx_qtype_at(int i);

// Bytes of one row of n elements; false when n is no multiple of the block or
// the product does not fit.
bool mtx_qtype_row_bytes(const mtx_qtype *t, uint64_t n, uint64_t *out);

// Can mtx write this type?
bool mtx_qtype_encodes(const mtx_qtype *t);
// Encodes n_rows rows of n_cols floats (a multiple of the block; all finite) as ggml does, byte for byte. importance: NULL,
// or n_cols weights that are not negative: how much an error in each column costs. Types that know no search ignore them.
void mtx_qtype_encode_rows(const mtx_qtype *t, const float *src, void *dst, int64_t n_rows, int64_t n_cols, const float *importance);

#endif
