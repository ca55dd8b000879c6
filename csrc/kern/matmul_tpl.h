// SPDX-License-Identifier: MIT
// The body of every tier's matmul.c: included after the tier's lanes.h and mm_lanes.h.
//
// MM_VL lanes (16, 8 or 4 rows) are walked at a time; a group is walked 16 / MM_VL
// times. A block is unpacked into registers once and used for MM_NC columns.
// Every function here is inlined into one function per (type, columns), where the
// switches below are decided by constants.
#ifndef MTX_KERN_MATMUL_TPL_H
#define MTX_KERN_MATMUL_TPL_H

#include "kern/matmul.h"
#include "kern/matmul_rare.h"

// What the packed bytes of a kind mean.
LANES_INLINE int mm_q_bytes(const mtx_pack p) {
  switch (p) {
    case MTX_PACK_Q5_0: case MTX_PACK_Q5_1: case MTX_PACK_Q5_K: return 320;
    case MTX_PACK_Q6_K: return 384;
    case MTX_PACK_Q8_0: case MTX_PACK_TILE: return 512;
    default: return mm_is_rare(p) ? mm_rare(p).q_bytes : 256;
  }
}
LANES_INLINE int mm_s_bytes(const mtx_pack p) {
  switch (p) {
    case MTX_PACK_Q4_1: case MTX_PACK_Q5_1: return 64;
    case MTX_PACK_IQ4_XS: case MTX_PACK_MXFP4: return 16;
    case MTX_PACK_TILE: return 256;
    default: return mm_is_rare(p) ? mm_rare(p).s_bytes : 32;
  }
}
LANES_INLINE int mm_ss_bytes(const mtx_pack p) {
  switch (p) {
    case MTX_PACK_Q4_K: case MTX_PACK_Q5_K: return 64;
    case MTX_PACK_Q6_K: case MTX_PACK_IQ4_XS: return 32;
    default: return mm_rare(p).ss_bytes;
  }
}
// Blocks of 32 to a chunk.
LANES_INLINE int64_t mm_chunk(const mtx_pack p) {
  return mtx_chunk(mm_s_bytes(p), mm_ss_bytes(p), mm_is_rare(p) ? mm_rare(p).blocks : 8);
}
// Most columns per unpacked block.
LANES_INLINE int mm_columns(const mtx_pack p) { return mm_is_rare(p) ? MM_RARE_NC : MM_NC; }
// log2 of what the unsigned bytes of the unpacked vectors exceed the integers by; -1: nothing.
LANES_INLINE int mm_bias(const mtx_pack p) {
  switch (p) {
    case MTX_PACK_Q4_0: return 3;
    case MTX_PACK_Q5_0: return 4;
    case MTX_PACK_Q6_K: return 5;
    case MTX_PACK_Q8_0: case MTX_PACK_TILE: case MTX_PACK_IQ4_NL: case MTX_PACK_IQ4_XS: case MTX_PACK_MXFP4:
      return MM_SIGNED ? -1 : 7;
    default: return mm_rare(p).bias;
  }
}
// Bits of the unpacked bytes: 8 = all of them are used.
LANES_INLINE int mm_bits(const mtx_pack p) {
  switch (p) {
    case MTX_PACK_Q5_0: case MTX_PACK_Q5_1: case MTX_PACK_Q5_K: return 5;
    case MTX_PACK_Q6_K: return 6;
    case MTX_PACK_Q8_0: case MTX_PACK_TILE: case MTX_PACK_IQ4_NL: case MTX_PACK_IQ4_XS: return 8;
    case MTX_PACK_MXFP4: return MM_SIGNED ? 8 : 8;
    default: return mm_is_rare(p) ? mm_rare(p).bits : 4;
  }
}
LANES_INLINE int mm_two_scales(const mtx_pack p) { return p == MTX_PACK_Q6_K || p == MTX_PACK_TILE || mm_rare(p).two_scales; }
LANES_INLINE int mm_has_min(const mtx_pack p) {
  return p == MTX_PACK_Q4_1 || p == MTX_PACK_Q5_1 || p == MTX_PACK_Q4_K || p == MTX_PACK_Q5_K || p == MTX_PACK_Q2_K ||
         p == MTX_PACK_TILE;
}

// IQ4_NL's values and E2M1's doubled values (golden quant README), biased by 128.
static const uint8_t mm_lut_nl[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t mm_lut_e2m1[16] = {128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116};

// q: the block's bytes, moved on to the first of MM_VL lanes.
LANES_INLINE void mm_unpack(const mtx_pack p, const uint8_t *q, mb w[8]) {
  if (p == MTX_PACK_Q8_0 || p == MTX_PACK_TILE) {
    for (int v = 0; v < 8; v++) w[v] = MM_SIGNED ? mb_flip(mb_load(q + 64 * v)) : mb_load(q + 64 * v);
    return;
  }
  for (int v = 0; v < 4; v++) {
    mb b = mb_load(q + 64 * v);
    w[v] = mb_low(b);
    w[v + 4] = mb_high(b);
  }
  if (mm_bits(p) == 5) {
    mb h = mb_load(q + 256);
    w[0] = mb_or_shl(w[0], h, 4, 0x10);
    w[1] = mb_or_shl(w[1], h, 3, 0x10);
    w[2] = mb_or_shl(w[2], h, 2, 0x10);
    w[3] = mb_or_shl(w[3], h, 1, 0x10);
    w[4] = mb_or_shl(w[4], h, 0, 0x10);
    w[5] = mb_or_shr(w[5], h, 1, 0x10);
    w[6] = mb_or_shr(w[6], h, 2, 0x10);
    w[7] = mb_or_shr(w[7], h, 3, 0x10);
  } else if (mm_bits(p) == 6) {
    for (int g = 0; g < 2; g++) {
      mb h = mb_load(q + 256 + 64 * g);
      w[4 * g] = mb_or_shl(w[4 * g], h, 4, 0x30);
      w[4 * g + 1] = mb_or_shl(w[4 * g + 1], h, 2, 0x30);
      w[4 * g + 2] = mb_or_shl(w[4 * g + 2], h, 0, 0x30);
      w[4 * g + 3] = mb_or_shr(w[4 * g + 3], h, 2, 0x30);
    }
  } else if (p == MTX_PACK_IQ4_NL || p == MTX_PACK_IQ4_XS || p == MTX_PACK_MXFP4) {
    const uint8_t *lut = p == MTX_PACK_MXFP4 ? mm_lut_e2m1 : mm_lut_nl;
    for (int v = 0; v < 8; v++) w[v] = MM_SIGNED ? mb_flip(mb_lut(w[v], lut)) : mb_lut(w[v], lut);
  }
}

// s, ss: the block's and its super-block's scales; l: first lane.
LANES_INLINE mm_scales mm_load_scales(const mtx_pack p, const uint8_t *s, const uint8_t *ss, int l) {
  if (mm_is_rare(p)) return mm_rare_scales(p, s, ss, l);
  mm_scales r;
  r.d = r.d_hi = r.m = r.m_hi = mf_zero();
  switch (p) {
    case MTX_PACK_Q4_1: case MTX_PACK_Q5_1:
      r.d = mf_f16(s + 2 * l);
      r.m = mf_neg(mf_f16(s + 32 + 2 * l));
      break;
    case MTX_PACK_Q4_K: case MTX_PACK_Q5_K:
      r.d = mf_mul(mf_f16(ss + 2 * l), mf_u8(s + l));
      r.m = mf_mul(mf_f16(ss + 32 + 2 * l), mf_u8(s + 16 + l));
      break;
    case MTX_PACK_Q6_K: {
      mf d = mf_f16(ss + 2 * l);
      r.d = mf_mul(d, mf_i8(s + l));
      r.d_hi = mf_mul(d, mf_i8(s + 16 + l));
      break;
    }
    case MTX_PACK_IQ4_XS: r.d = mf_mul(mf_f16(ss + 2 * l), mf_i8(s + l)); break;
    case MTX_PACK_MXFP4: r.d = mf_e8m0_half(s + l); break;
    case MTX_PACK_TILE:
      r.d = mf_load((const float *)(const void *)s + l);
      r.d_hi = mf_load((const float *)(const void *)s + 16 + l);
      r.m = mf_neg(mf_load((const float *)(const void *)s + 32 + l));
      r.m_hi = mf_neg(mf_load((const float *)(const void *)s + 48 + l));
      break;
    default: r.d = mf_f16(s + 2 * l); break;
  }
  return r;
}

LANES_INLINE mi mm_start(const mtx_pack p, int32_t n) {
  return mm_bias(p) < 0 ? mi_set1(0) : mi_shl(mi_set1(n), mm_bias(p));
}

// The float steps that matmul.h defines, of one block of one column; lo, hi: its integer dots (hi: of two scales).
LANES_INLINE mf mm_steps(const mtx_pack p, mi lo, mi hi, const mm_scales *s, const mtx_q8 *x, mf acc) {
  mf t = mf_mul(s->d, mf_cvt(lo));
  if (mm_two_scales(p)) {
    t = mf_fma(s->d_hi, mf_cvt(hi), t);
    if (mm_has_min(p)) {
      t = mf_fma(s->m, mf_cvt(mi_set1(x->n_lo)), t);
      t = mf_fma(s->m_hi, mf_cvt(mi_set1(x->n_hi)), t);
    }
  } else if (mm_has_min(p)) {
    t = mf_fma(s->m, mf_cvt(mi_set1(x->n)), t);
  }
  return mf_fma(t, mf_set1(x->d), acc);
}

// The same block of n columns: acc[c * step] is the sum of column c, act + c * stride its activation.
LANES_INLINE void mm_blocks(const mtx_pack p, const int n, const mb w[8], const mm_scales *s, const uint8_t *act, size_t stride, mf *acc,
                            const int step) {
#define MM_X(c) ((const mtx_q8 *)(const void *)(act + (c) * stride))
  const int two = mm_two_scales(p), half = two ? 4 : 8, run = n > 1 ? 1 : half;
  mi lo[MM_TOGETHER], hi[MM_TOGETHER];
  for (int c = 0; c < n; c++) {
    lo[c] = mm_start(p, two ? MM_X(c)->n_lo : MM_X(c)->n);
    hi[c] = two ? mm_start(p, MM_X(c)->n_hi) : lo[c];
  }
  for (int v = 0; v < half; v += run)
    for (int c = 0; c < n; c++) {
      lo[c] = mm_dot(w + v, MM_X(c)->q + 4 * v, run, mm_bits(p), lo[c]);
      if (two) hi[c] = mm_dot(w + 4 + v, MM_X(c)->q + 16 + 4 * v, run, mm_bits(p), hi[c]);
    }
  for (int c = 0; c < n; c++) acc[c * step] = mm_steps(p, lo[c], hi[c], s, MM_X(c), acc[c * step]);
#undef MM_X
}

// Stores MM_VL sums of column y (first lane's address), of which n < MM_VL exist; none where n is negative.
static __attribute__((noinline)) void mm_finish_part(float *y, const float *sum, int64_t n, bool accumulate) {
  for (int64_t i = 0; i < n; i++) y[i] = accumulate ? y[i] + sum[i] : sum[i];
}

// The same for any n.
LANES_INLINE void mm_finish(float *y, mf sum, int64_t n, bool accumulate) {
  if (n >= MM_VL) {
    mf_store(y, accumulate ? mf_add(mf_load(y), sum) : sum);
    return;
  }
  float part[MM_VL];
  mf_store(part, sum);
  mm_finish_part(y, part, n, accumulate);
}

// Asks for the weights that come next. With one column the CPU's own prefetcher keeps up (and asking only slowed it down);
// with several a block takes long enough for it to fall behind. Far ahead into the second-level cache, since the few lines that
// may be under way to the first are the limit, and near ahead from there: 8 columns of Q8_0 out of memory took a fifth less
// time so than with one distance of 4096.
enum { MM_NEAR = 2048, MM_FAR = 8192 };
LANES_INLINE void mm_ask_ahead(const uint8_t *p, const int n) {
  for (int at = 0; at < n; at += 64) {
    __builtin_prefetch(p + at + MM_NEAR);
    __builtin_prefetch(p + at + MM_FAR, 0, 2);
  }
}

// nc columns of one group; lanes [l, l + np * MM_VL), of which n_lanes exist. first: the group was not walked before.
LANES_INLINE void mm_tile(const mtx_pack p, const int nc, const int np, const mtx_mm_args *a, const uint8_t *group, int l,
                          const uint8_t *act, float *y, int64_t n_lanes, bool first) {
  const int64_t nb = a->k / 32;
  const int together = nc < MM_TOGETHER ? nc : MM_TOGETHER;
  const uint8_t *chunk = group;
  mf acc[8];
  for (int c = 0; c < nc * np; c++) acc[c] = mf_zero();
  if (p == MTX_PACK_TILE && a->resume)
    for (int c = 0; c < nc * np; c++) acc[c] = mf_load(y + c / np * a->ldy + c % np * MM_VL);
  for (int64_t b = 0; b < nb; b += mm_chunk(p)) {
    const int64_t n = nb - b < mm_chunk(p) ? nb - b : mm_chunk(p);
    const uint8_t *s = chunk + mm_ss_bytes(p), *q = s + n * mm_s_bytes(p) + 4 * l;
    for (int64_t i = 0; i < n; i++) {
      if (nc > 1 && first && !mm_is_rare(p)) mm_ask_ahead(q, mm_q_bytes(p) + mm_s_bytes(p));
      for (int part = 0; part < np; part++) {
        mb w[8];
        if (mm_is_rare(p)) mm_rare_unpack(p, q - 4 * l, s, l + MM_VL * part, w);
        else mm_unpack(p, q + 4 * MM_VL * part, w);
        mm_scales sc = mm_load_scales(p, s, chunk, l + MM_VL * part);
        for (int c = 0; c < nc; c += together)
          mm_blocks(p, together, w, &sc, act + c * a->act_stride, a->act_stride, acc + c * np + part, np);
      }
      act += sizeof(mtx_q8);
      q += mm_q_bytes(p);
      s += mm_s_bytes(p);
    }
    chunk += mm_ss_bytes(p) + n * (mm_s_bytes(p) + mm_q_bytes(p));
  }
  for (int c = 0; c < nc * np; c++)
    mm_finish(y + c / np * a->ldy + c % np * MM_VL, acc[c], n_lanes - c % np * MM_VL, a->accumulate);
}

// ---- F32, F16, BF16 --------------------------------------------------------------
// Element k goes to partial sum k mod 4, each an fma chain over k; sum = (p0 + p1) + (p2 + p3).

LANES_INLINE mf mm_weight(const mtx_pack p, const uint8_t *w) {
  switch (p) {
    case MTX_PACK_F16: return mf_f16(w);
    case MTX_PACK_BF16: return mf_bf16(w);
    default: return mf_load((const float *)(const void *)w);
  }
}

LANES_INLINE void mm_float_tile(const mtx_pack p, const int nc, const int np, const mtx_mm_args *a, const uint8_t *group, int l,
                                const uint8_t *act, float *y, int64_t n_lanes, bool first) {
  const int size = p == MTX_PACK_F32 ? 4 : 2;
  const uint8_t *w = group + l * size;
  mf acc[MM_FC > 4 ? MM_FC : 4][4];
  for (int c = 0; c < nc * np; c++)
    for (int j = 0; j < 4; j++) acc[c][j] = mf_zero();
  for (int64_t k = 0; k < a->k; k += 4, w += 64 * size, act += 16) {
    const int m = a->k - k < 4 ? (int)(a->k - k) : 4;
    if (nc > 1 && first) mm_ask_ahead(w, 64 * size);
    for (int j = 0; j < 4; j++) {
      if (m < 4 && j >= m) break;
      for (int part = 0; part < np; part++) {
        mf wj = mm_weight(p, w + 16 * size * j + size * MM_VL * part);
        for (int c = 0; c < nc; c++)
          acc[c * np + part][j] = mf_fma(wj, mf_set1(((const float *)(const void *)(act + c * a->act_stride))[j]), acc[c * np + part][j]);
      }
    }
  }
  for (int c = 0; c < nc * np; c++) {
    mf sum = mf_add(mf_add(acc[c][0], acc[c][1]), mf_add(acc[c][2], acc[c][3]));
    mm_finish(y + c / np * a->ldy + c % np * MM_VL, sum, n_lanes - c % np * MM_VL, a->accumulate);
  }
}

// ---- all of a product ----------------------------------------------------------------

LANES_INLINE int mm_is_float(const mtx_pack p) { return p == MTX_PACK_F32 || p == MTX_PACK_F16 || p == MTX_PACK_BF16; }

// Columns are walked in parts that stay in the second-level cache while all groups pass by.
enum { MM_CACHE_BYTES = 384 << 10 };

LANES_INLINE void mm_run(const mtx_pack p, const mtx_mm_args *a) {
  const int64_t step = mm_is_float(p) ? MM_FC : MM_NC, least = (mm_is_float(p) ? 4 : 2) * step;
  int64_t part = MM_CACHE_BYTES / (int64_t)a->act_stride / step * step;
  if (part < least) part = least;
  for (int64_t c0 = 0; c0 < a->n_cols; c0 += part) {
    int64_t c1 = c0 + part < a->n_cols ? c0 + part : a->n_cols;
    for (int64_t g = 0; g < a->n_groups; g++) {
      const uint8_t *group = a->data + g * a->group_bytes;
      int64_t n = a->n_rows - g * 16, c = c0;
      float *y = a->y + g * 16;
#define MM_COLUMNS(TILE, NC)                          \
  for (; c + NC <= c1; c += NC)                       \
    for (int l = 0; l < 16 && l < n; l += MM_VL)      \
  TILE(p, NC, 1, a, group, l, a->act + c * a->act_stride, y + c * a->ldy + l, n - l, c == c0 && l == 0)
#define MM_REST(TILE) \
  for (; c < c1; c++) TILE(p, 1, 16 / MM_VL, a, group, 0, a->act + c * a->act_stride, y + c * a->ldy, n, false)
      if (mm_is_float(p)) {
        MM_COLUMNS(mm_float_tile, MM_FC);
        MM_REST(mm_float_tile);
        continue;
      }
#if MM_NC >= 8
      MM_COLUMNS(mm_tile, 8);
#endif
      if (mm_columns(p) >= 4) MM_COLUMNS(mm_tile, 4);
      if (mm_columns(p) >= 2) MM_COLUMNS(mm_tile, 2);
      MM_REST(mm_tile);
#undef MM_COLUMNS
#undef MM_REST
    }
  }
}

// ---- activation --------------------------------------------------------------------

static void mm_encode(const float *x, int64_t n_blocks, mtx_q8 *dst) {
  for (int64_t b = 0; b < n_blocks; b++, x += 32, dst++) {
    vf x0 = vf_load(x), x1 = vf_load(x + 16);
    uint32_t bits = vf_absmax_bits(x0, x1);
    float absmax = mtx_f32_from_bits(bits);
    if (bits >= 0x7F800000u || absmax < 0x1p-118f) {
      memset(dst, 0, sizeof *dst);
      if (bits >= 0x7F800000u) dst->d = NAN;
      continue;
    }
    vf scale = vf_set1(127.0f / absmax);
    dst->d = absmax / 127.0f;
    dst->n_lo = -vf_quantise(dst->q, vf_mul(x0, scale));
    dst->n_hi = -vf_quantise(dst->q + 16, vf_mul(x1, scale));
    dst->n = dst->n_lo + dst->n_hi;
  }
}

#define MM_INT_TYPES(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_NL) X(IQ4_XS) X(MXFP4) X(TILE) MM_RARE_TYPES(X)
#define MM_FLOAT_TYPES(X) X(F32) X(F16) X(BF16)
#define MM_DEFINE(T) static void mm_##T(const mtx_mm_args *a) { mm_run(MTX_PACK_##T, a); }
#define MM_ENTRY(T) [MTX_PACK_##T] = mm_##T,

#endif
