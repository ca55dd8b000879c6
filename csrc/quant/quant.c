// SPDX-License-Identifier: MIT
// The table of tensor types, built from types.def, and its look-ups.
//
// The only file that includes every type's header: adding a type is a row there
// and one #include here.
#include "quant/quant.h"

#include <strings.h>

#include "quant/float.h"
#include "quant/iq1_m.h"
#include "quant/iq1_s.h"
#include "quant/iq2_s.h"
#include "quant/iq2_xs.h"
#include "quant/iq2_xxs.h"
#include "quant/iq3_s.h"
#include "quant/iq3_xxs.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"
#include "quant/q1_0.h"
#include "quant/q2_0.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"
#include "quant/q8_1.h"
#include "quant/q8_k.h"
#include "quant/search.h"
#include "quant/tq1_0.h"
#include "quant/tq2_0.h"

static const mtx_qtype types[] = {
#define MTX_QTYPE(id_, name_, block_, bytes_, decode_, unpack_, has_min_, encode_, search_) \
  {.id = (id_), .name = #name_, .block = (block_), .block_bytes = (bytes_), .has_min = (has_min_), \
   .decode = decode_, .unpack = unpack_, .encode = encode_, .search = search_},
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

bool mtx_qtype_encodes(const mtx_qtype *t) { return t->encode || t->search; }

void mtx_qtype_encode_rows(const mtx_qtype *t, const float *src, void *dst, int64_t n_rows, int64_t n_cols, const float *importance) {
  if (t->encode && !(t->search && importance)) {
    t->encode(src, dst, n_rows * n_cols);
    return;
  }
  int64_t row_bytes = n_cols / t->block * t->block_bytes;
  for (int64_t r = 0; r < n_rows; r++) t->search(src + r * n_cols, (uint8_t *)dst + r * row_bytes, n_cols, importance);
}
