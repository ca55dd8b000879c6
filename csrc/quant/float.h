// SPDX-License-Identifier: MIT
// F32, F16, BF16: plain floats, one element a block.
//
// Read byte-wise: a tensor's address is aligned by its file, and a file may lie.
#ifndef MTX_QUANT_FLOAT_H
#define MTX_QUANT_FLOAT_H

#include "quant/half.h"

static void f32_decode(const void *src, float *dst, int64_t n) { memcpy(dst, src, (size_t)n * sizeof *dst); }

static void f16_decode(const void *src, float *dst, int64_t n) {
  const uint8_t *p = src;
  for (int64_t i = 0; i < n; i++) dst[i] = mtx_f16_to_f32(mtx_load_u16(p + 2 * i));
}

static void bf16_decode(const void *src, float *dst, int64_t n) {
  const uint8_t *p = src;
  for (int64_t i = 0; i < n; i++) dst[i] = mtx_bf16_to_f32(mtx_load_u16(p + 2 * i));
}

static void f32_encode(const float *src, void *dst, int64_t n) { memcpy(dst, src, (size_t)n * sizeof *src); }

static void f16_encode(const float *src, void *dst, int64_t n) {
  uint8_t *p = dst;
  for (int64_t i = 0; i < n; i++) mtx_store_u16(p + 2 * i, mtx_f32_to_f16(src[i]));
}

static void bf16_encode(const float *src, void *dst, int64_t n) {
  uint8_t *p = dst;
  for (int64_t i = 0; i < n; i++) mtx_store_u16(p + 2 * i, mtx_f32_to_bf16(src[i]));
}

#endif
