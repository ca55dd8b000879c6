// SPDX-License-Identifier: MIT
// Q4_0, Q4_1, Q5_0, Q5_1 with importance: see search.h. Without it they need no search (their headers).
#include "quant/encode.h"
#include "quant/search.h"

typedef struct {
  int top;        // the largest code
  bool offset;
  int bytes;      // of a block of 32
} simple_type;

// Block: f16 d, f16 m with an offset, 4 bytes of fifth bits with 5, 16 bytes of codes.
static void encode_simple(const simple_type *t, const float *x, uint8_t *row, int64_t n, const float *importance) {
  float weight[32], sigma2 = mtx_search_squares(x, n) / (float)n;
  uint8_t code[32];
  for (int64_t i = 0; i < n; i += 32, row += t->bytes) {
    float offset = 0.0f, d;
    uint8_t *at = row + 2;
    mtx_search_weights(x + i, importance + i, sigma2, 32, weight);
    if (t->offset) d = mtx_search_affine(x + i, weight, 32, t->top, &mtx_search_fine, code, &offset);
    else d = mtx_search_symmetric(x + i, weight, 32, (t->top + 1) / 2, code);
    mtx_store_u16(row, mtx_f32_to_f16(d));
    if (t->offset) mtx_store_u16(at, mtx_f32_to_f16(-offset)), at += 2;
    if (t->top > 15) mtx_encode_fifth_bits(code, at), at += 4;
    mtx_encode_nibbles(code, 16, at);
  }
}

#define SIMPLE(T, top_, offset_, bytes_)                                                      \
  void mtx_search_##T(const float *x, uint8_t *row, int64_t n, const float *importance) {     \
    static const simple_type type = {top_, offset_, bytes_};                                  \
    encode_simple(&type, x, row, n, importance);                                              \
  }

SIMPLE(q4_0, 15, false, 18)
SIMPLE(q4_1, 15, true, 20)
SIMPLE(q5_0, 31, false, 22)
SIMPLE(q5_1, 31, true, 24)
