// SPDX-License-Identifier: MIT
// The table of tensor types, built from types.def, and its look-ups.
//
// The only file that includes every type's header: adding a type is a row there
// and one #include here.
#include "quant/quant.h"

#include <strings.h>

#include "quant/float.h"

static const mtx_qtype types[] = {
#define MTX_QTYPE(id_, name_, block_, bytes_, decode_, unpack_, encode_) \
  {.id = (id_), .name = #name_, .block = (block_), .block_bytes = (bytes_), .decode = decode_, .unpack = unpack_, .encode = encode_},
#include "quant/types.def"
#undef MTX_QTYPE
};

enum { N_TYPES = sizeof types / sizeof types[0] };

int mtx_qtype_count(void) { return N_TYPES; }

const mtx_qtype *mtx_qtype_at(int i) { return i >= 0 && i < N_TYPES ? &types[i] : NULL; }

const mtx_qtype *mtx_qtype_get(uint32_t id) {
  for (int i = 0; i < N_TYPES; i++)
    if (types[i].id == id) return &types[i];
  return NULL;
}

const mtx_qtype *mtx_qtype_by_name(const char *name) {
  for (int i = 0; i < N_TYPES; i++)
    if (name && strcasecmp(types[i].name, name) == 0) return &types[i];
  return NULL;
}

bool mtx_qtype_row_bytes(const mtx_qtype *t, uint64_t n, uint64_t *out) {
  if (n % t->block) return false;
  return !__builtin_mul_overflow(n / t->block, (uint64_t)t->block_bytes, out);
}
