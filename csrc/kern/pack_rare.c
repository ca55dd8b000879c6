// SPDX-License-Identifier: MIT
// Packed layouts of the 1- to 3-bit and codebook types (parts: matmul.h).
//
// As in pack.c only a re-ordering, so that `get` gives back blocks which decode
// to the same floats. Grid indices of four entries lie as [pair of lanes][entry][lane of
// the pair]: a 64-bit word has those of two lanes, as does the result, 4 elements of each,
// so that byte permutations inside words (AVX-512 VBMI) need no other shuffle.
//
//   kind            q of a block of 32                 s of a block of 32
//   Q2_K            two-bit vectors                    u8[2][16]: scale low, offset high half
//   Q3_K            two-bit vectors, one-bit vector    i8[2][16]: scale - 32
//   TQ2_0, Q2_0     two-bit vectors                    -
//   Q1_0            one-bit vector                     -
//   NVFP4           nibbles                            u8[2][16]: E4M3 scale without its special codes
//   IQ2_XXS         u8[64] index                       u32[16]: four 7-bit sign codes, scale on top
//   IQ2_XS          u8[64] index   , low               u32[16]: sign codes, ninth index bits on top; u8[16] scales
//   IQ2_S           u8[64] index   , low               u8[16][4] sign masks; u8[16] index, high; u8[16] scales
//   IQ3_XXS         u8[128] index                      as IQ2_XXS
//   IQ3_S           u8[128] index  , low               u8[16][4] sign masks; u8[16] ninth index bits; u8[16] scale
//   IQ1_S           u8[64] index   , low               u16[16] as in the file
//   IQ1_M           u8[64] index   , low               u16[16]: the two bytes of the file; u8[16]: two 3-bit scales
//
// ss holds f16 d[16] (Q2_K: then f16 dmin[16]) for each block of the file.
#include <string.h>

#include "kern/matmul.h"
#include "kern/pack_words.h"

static void put_q2_k(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 8; i++) {
    put_pairs(blk + 16 + 32 * (i / 4), 2 * (i % 4), lane, q + 128 * i);
    for (int h = 0; h < 2; h++) s[32 * i + 16 * h + lane] = blk[2 * i + h];
  }
  copy2(ss + 2 * lane, blk + 80);
  copy2(ss + 32 + 2 * lane, blk + 82);
}
static void get_q2_k(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  memset(blk + 16, 0, 64);
  for (int i = 0; i < 8; i++) {
    get_pairs(blk + 16 + 32 * (i / 4), 2 * (i % 4), lane, q + 128 * i);
    for (int h = 0; h < 2; h++) blk[2 * i + h] = s[32 * i + 16 * h + lane];
  }
  copy2(blk + 80, ss + 2 * lane);
  copy2(blk + 82, ss + 32 + 2 * lane);
}

static void put_q3_k(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 8; i++, q += 192, s += 32) {
    put_pairs(blk + 32 + 32 * (i / 4), 2 * (i % 4), lane, q);
    wr(at(q, 2, lane), plane_put(blk, i));
    for (int h = 0; h < 2; h++) {
      int g = 2 * i + h;
      int sc = (blk[96 + g % 8] >> 4 * (g / 8) & 15) | (blk[104 + g % 4] >> 2 * (g / 4) & 3) << 4;
      s[16 * h + lane] = (uint8_t)(sc - 32);
    }
  }
  copy2(ss + 2 * lane, blk + 108);
}
static void get_q3_k(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  memset(blk, 0, 108);
  for (int i = 0; i < 8; i++, q += 192, s += 32) {
    get_pairs(blk + 32 + 32 * (i / 4), 2 * (i % 4), lane, q);
    plane_get(blk, i, rd(cat(q, 2, lane)));
    for (int h = 0; h < 2; h++) {
      int g = 2 * i + h, sc = (int8_t)s[16 * h + lane] + 32;
      blk[96 + g % 8] = (uint8_t)(blk[96 + g % 8] | (sc & 15) << 4 * (g / 8));
      blk[104 + g % 4] = (uint8_t)(blk[104 + g % 4] | sc >> 4 << 2 * (g / 4));
    }
  }
  copy2(blk + 108, ss + 2 * lane);
}

static void put_tq2_0(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 8; i++) put_pairs(blk + 32 * (i / 4), 2 * (i % 4), lane, q + 128 * i);
  copy2(ss + 2 * lane, blk + 64);
}
static void get_tq2_0(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  memset(blk, 0, 64);
  for (int i = 0; i < 8; i++) get_pairs(blk + 32 * (i / 4), 2 * (i % 4), lane, q + 128 * i);
  copy2(blk + 64, ss + 2 * lane);
}

static void put_q2_0(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 2; i++) {
    uint8_t code[32];
    for (int j = 0; j < 32; j++) code[j] = blk[2 + 8 * i + j / 4] >> 2 * (j % 4) & 3;
    put_pairs(code, 0, lane, q + 128 * i);
  }
  copy2(ss + 2 * lane, blk);
}
static void get_q2_0(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  memset(blk + 2, 0, 16);
  for (int i = 0; i < 2; i++) {
    uint8_t code[32] = {0};
    get_pairs(code, 0, lane, q + 128 * i);
    for (int j = 0; j < 32; j++) blk[2 + 8 * i + j / 4] = (uint8_t)(blk[2 + 8 * i + j / 4] | code[j] << 2 * (j % 4));
  }
  copy2(blk, ss + 2 * lane);
}

static void put_q1_0(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 4; i++) wr(at(q, i, lane), bits_put(rd(blk + 2 + 4 * i)));
  copy2(ss + 2 * lane, blk);
}
static void get_q1_0(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  for (int i = 0; i < 4; i++) wr(blk + 2 + 4 * i, bits_get(rd(cat(q, i, lane))));
  copy2(blk, ss + 2 * lane);
}

// ---- NVFP4: of each 16 elements, byte j holds elements j and j + 8 -----------------
// The file's 0x7F is a zero and the top bit means nothing, but 0xFF is 240 (nvfp4.h). Packed, a
// scale byte is 0..0x7F, zero is 0 and 0x7F is 240.

static void put_nvfp4(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 2; i++, q += 256, s += 32) {
    const uint8_t *a = blk + 4 + 16 * i, *b = a + 8;
    for (int v = 0; v < 4; v++) {
      int word = 4 * (v % 2), shift = 4 * (v / 2);
      wr(at(q, v, lane), (rd(a + word) >> shift & 0x0F0F0F0Fu) | (rd(b + word) >> shift & 0x0F0F0F0Fu) << 4);
    }
    for (int h = 0; h < 2; h++) {
      uint8_t x = blk[2 * i + h];
      s[16 * h + lane] = x == 0x7F ? 0 : x & 0x7F;
    }
  }
}
static void get_nvfp4(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  for (int i = 0; i < 2; i++, q += 256, s += 32) {
    for (int h = 0; h < 2; h++) {
      uint8_t *dst = blk + 4 + 16 * i + 8 * h;
      for (int v = 0; v < 2; v++)
        wr(dst + 4 * v, (rd(cat(q, v, lane)) >> 4 * h & 0x0F0F0F0Fu) | (rd(cat(q, v + 2, lane)) >> 4 * h & 0x0F0F0F0Fu) << 4);
      uint8_t x = s[16 * h + lane];
      blk[2 * i + h] = x == 0x7F ? 0xFF : x;
    }
  }
}

// ---- codebooks -------------------------------------------------------------------

// Place of the lane's index g (0..7).
static int index_at(int g, int lane) { return 64 * (g / 4) + 8 * (lane / 2) + 2 * (g % 4) + lane % 2; }
static void put_index(const uint8_t *src, int n, int lane, uint8_t *q) {
  for (int g = 0; g < n; g++) q[index_at(g, lane)] = src[g];
}
static void get_index(uint8_t *dst, int n, int lane, const uint8_t *q) {
  for (int g = 0; g < n; g++) dst[g] = q[index_at(g, lane)];
}

static void put_iq2_xxs(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 8; i++) {
    put_index(blk + 2 + 8 * i, 4, lane, q + 64 * i);
    memcpy(s + 64 * i + 4 * lane, blk + 6 + 8 * i, 4);
  }
  copy2(ss + 2 * lane, blk);
}
static void get_iq2_xxs(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  for (int i = 0; i < 8; i++) {
    get_index(blk + 2 + 8 * i, 4, lane, q + 64 * i);
    memcpy(blk + 6 + 8 * i, s + 64 * i + 4 * lane, 4);
  }
  copy2(blk, ss + 2 * lane);
}

static void put_iq2_xs(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 8; i++, q += 64, s += 80) {
    uint32_t w = 0;
    for (int g = 0; g < 4; g++) {
      uint32_t code = mtx_load_u16(blk + 2 + 8 * i + 2 * g);
      q[index_at(g, lane)] = (uint8_t)code;
      w |= code >> 9 << 7 * g | (code >> 8 & 1) << (28 + g);
    }
    wr(s + 4 * lane, w);
    s[64 + lane] = blk[66 + i];
  }
  copy2(ss + 2 * lane, blk);
}
static void get_iq2_xs(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  for (int i = 0; i < 8; i++, q += 64, s += 80) {
    uint32_t w = rd(s + 4 * lane);
    for (int g = 0; g < 4; g++)
      mtx_store_u16(blk + 2 + 8 * i + 2 * g,
                    (uint16_t)(q[index_at(g, lane)] | (w >> (28 + g) & 1) << 8 | (w >> 7 * g & 127) << 9));
    blk[66 + i] = s[64 + lane];
  }
  copy2(blk, ss + 2 * lane);
}

static void put_iq2_s(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 8; i++, q += 64, s += 96) {
    put_index(blk + 2 + 4 * i, 4, lane, q);
    memcpy(s + 4 * lane, blk + 34 + 4 * i, 4);
    s[64 + lane] = blk[66 + i];
    s[80 + lane] = blk[74 + i];
  }
  copy2(ss + 2 * lane, blk);
}
static void get_iq2_s(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  for (int i = 0; i < 8; i++, q += 64, s += 96) {
    get_index(blk + 2 + 4 * i, 4, lane, q);
    memcpy(blk + 34 + 4 * i, s + 4 * lane, 4);
    blk[66 + i] = s[64 + lane];
    blk[74 + i] = s[80 + lane];
  }
  copy2(blk, ss + 2 * lane);
}

static void put_iq3_xxs(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 8; i++) {
    put_index(blk + 2 + 8 * i, 8, lane, q + 128 * i);
    memcpy(s + 64 * i + 4 * lane, blk + 66 + 4 * i, 4);
  }
  copy2(ss + 2 * lane, blk);
}
static void get_iq3_xxs(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  for (int i = 0; i < 8; i++) {
    get_index(blk + 2 + 8 * i, 8, lane, q + 128 * i);
    memcpy(blk + 66 + 4 * i, s + 64 * i + 4 * lane, 4);
  }
  copy2(blk, ss + 2 * lane);
}

static void put_iq3_s(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 8; i++, q += 128, s += 96) {
    put_index(blk + 2 + 8 * i, 8, lane, q);
    memcpy(s + 4 * lane, blk + 74 + 4 * i, 4);
    s[64 + lane] = blk[66 + i];
    s[80 + lane] = blk[106 + i / 2] >> 4 * (i % 2) & 15;
  }
  copy2(ss + 2 * lane, blk);
}
static void get_iq3_s(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  memset(blk + 106, 0, 4);
  for (int i = 0; i < 8; i++, q += 128, s += 96) {
    get_index(blk + 2 + 8 * i, 8, lane, q);
    memcpy(blk + 74 + 4 * i, s + 4 * lane, 4);
    blk[66 + i] = s[64 + lane];
    blk[106 + i / 2] = (uint8_t)(blk[106 + i / 2] | s[80 + lane] << 4 * (i % 2));
  }
  copy2(blk, ss + 2 * lane);
}

static void put_iq1_s(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  for (int i = 0; i < 8; i++) {
    put_index(blk + 2 + 4 * i, 4, lane, q + 64 * i);
    copy2(s + 32 * i + 2 * lane, blk + 34 + 2 * i);
  }
  copy2(ss + 2 * lane, blk);
}
static void get_iq1_s(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  for (int i = 0; i < 8; i++) {
    get_index(blk + 2 + 4 * i, 4, lane, q + 64 * i);
    copy2(blk + 34 + 2 * i, s + 32 * i + 2 * lane);
  }
  copy2(blk, ss + 2 * lane);
}

// The f16 d is spread over the top four bits of the four words of scales.
static void put_iq1_m(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  uint32_t d = 0;
  for (int i = 0; i < 8; i++, q += 64, s += 48) {
    put_index(blk + 4 * i, 4, lane, q);
    copy2(s + 2 * lane, blk + 32 + 2 * i);
    uint32_t scales = mtx_load_u16(blk + 48 + 2 * (i / 2));
    s[32 + lane] = scales >> 6 * (i % 2) & 63;
    if (i % 2) d |= scales >> 12 << 2 * (i - 1);
  }
  mtx_store_u16(ss + 2 * lane, (uint16_t)d);
}
static void get_iq1_m(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  uint32_t d = mtx_load_u16(ss + 2 * lane);
  for (int i = 0; i < 8; i++, q += 64, s += 48) {
    get_index(blk + 4 * i, 4, lane, q);
    copy2(blk + 32 + 2 * i, s + 2 * lane);
    if (i % 2)
      mtx_store_u16(blk + 48 + i - 1, (uint16_t)(s[32 + lane - 48] | s[32 + lane] << 6 | (d >> 2 * (i - 1) & 15) << 12));
  }
}

static const mtx_pack_layout layouts[MTX_PACK_N] = {
#define X(KIND, kind, id, q, s, ss, file_bytes, blocks, bias, bits, two_scales) \
  [MTX_PACK_##KIND] = {id, q, s, ss, file_bytes, blocks, put_##kind, get_##kind},
#include "kern/rare.def"
#undef X
};

const mtx_pack_layout *mtx_pack_rare_layout_get(mtx_pack p) {
  return (unsigned)p < MTX_PACK_N && layouts[p].put ? &layouts[p] : NULL;
}
