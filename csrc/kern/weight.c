// SPDX-License-Identifier: MIT
// Weights and columns of kern.h: sizes, packing, and the call into the tier's product.
//
// Types without a packed layout stay in file layout; their product unpacks parts
// of a group into a tile on the stack and uses it for many columns, with the
// running sums kept as f32, so the order of additions is that of the other types.
#include <string.h>

#include "kern/dispatch.h"
#include "kern/kern.h"
#include "quant/half.h"

enum { ROWS_BLOCKS = 32, ROWS_COLS = 64 };  // tile of 32 blocks: 24 KiB of stack; sums 4 KiB

static size_t round64(size_t n) { return (n + 63) & ~(size_t)63; }

static mtx_pack pack_of(const mtx_qtype *t) {
  if (!t || !t->decode) return MTX_PACK_NONE;
  switch (t->id) {
    case 0: return MTX_PACK_F32;
    case 1: return MTX_PACK_F16;
    case 30: return MTX_PACK_BF16;
  }
  for (int p = 0; p < MTX_PACK_N; p++) {
    const mtx_pack_layout *l = mtx_pack_layout_get((mtx_pack)p);
    if (l && l->type_id == t->id) return (mtx_pack)p;
  }
  return t->unpack ? MTX_PACK_ROWS : MTX_PACK_NONE;
}

static bool is_float(int pack) { return pack == MTX_PACK_F32 || pack == MTX_PACK_F16 || pack == MTX_PACK_BF16; }

// 0 when it does not fit.
static size_t group_bytes(mtx_pack pack, const mtx_qtype *t, int64_t k) {
  uint64_t row;
  size_t n;
  if (pack == MTX_PACK_NONE || k <= 0 || !mtx_qtype_row_bytes(t, (uint64_t)k, &row)) return 0;
  // A packed group is at most 4% larger than its 16 rows.
  if (__builtin_mul_overflow((size_t)row, (size_t)32, &n) || n > PTRDIFF_MAX) return 0;
  const mtx_pack_layout *l = mtx_pack_layout_get(pack);
  if (!l) return is_float(pack) || k % 32 == 0 ? round64(16 * (size_t)row) : 0;
  size_t nb = (size_t)k / 32;
  return round64(nb * (l->q_bytes + l->s_bytes) + nb / l->blocks * l->ss_bytes);
}

size_t mtx_weight_bytes(const mtx_qtype *type, int64_t n_out, int64_t k) {
  size_t n, g = group_bytes(pack_of(type), type, k);
  if (n_out <= 0 || n_out > INT64_MAX - MTX_GROUP) return 0;
  if (__builtin_mul_overflow(g, (size_t)((n_out + MTX_GROUP - 1) / MTX_GROUP), &n) || n > PTRDIFF_MAX) return 0;
  return n;
}

void mtx_weight_init(mtx_weight *w, const mtx_qtype *type, int64_t n_out, int64_t k, void *data) {
  mtx_pack pack = pack_of(type);
  *w = (mtx_weight){.type = type, .n_out = n_out, .k = k, .act = is_float(pack) ? MTX_ACT_F32 : MTX_ACT_Q8,
                    .pack = pack, .data = data, .group_bytes = group_bytes(pack, type, k)};
}

static uint8_t *group_at(const mtx_weight *w, int64_t g) { return (uint8_t *)w->data + (size_t)g * w->group_bytes; }

// The three parts of a packed group at file block b.
typedef struct { uint8_t *q, *s, *ss; } parts;
static parts parts_at(const mtx_weight *w, const mtx_pack_layout *l, int64_t g, int64_t b) {
  int64_t nb = w->k / 32, len = mtx_chunk(l->s_bytes, l->ss_bytes, l->blocks), first = b * l->blocks / len * len, i = b * l->blocks - first;
  int64_t n = nb - first < len ? nb - first : len;
  uint8_t *chunk = group_at(w, g) + first / len * l->ss_bytes + first * (l->q_bytes + l->s_bytes);
  uint8_t *s = chunk + l->ss_bytes;
  return (parts){s + n * l->s_bytes + i * l->q_bytes, s + i * l->s_bytes, chunk};
}

// `size` is a constant in every call, so that an element is one load and one store.
static inline __attribute__((always_inline)) void transpose(const size_t size, const uint8_t *rows, size_t row, int64_t k, int64_t n, uint8_t *dst) {
  for (int64_t i = 0; i < k; i++)
    for (int64_t r = 0; r < n; r++) memcpy(dst + (size_t)(i * MTX_GROUP + r) * size, rows + (size_t)r * row + (size_t)i * size, size);
}

static void pack_floats(const mtx_weight *w, const uint8_t *rows, int64_t n, uint8_t *dst) {
  size_t size = w->type->block_bytes, row = (size_t)w->k * size;
  if (n < MTX_GROUP) memset(dst, 0, w->group_bytes);
  if (n == MTX_GROUP && size == 2) transpose(2, rows, row, w->k, MTX_GROUP, dst);
  else if (n == MTX_GROUP) transpose(4, rows, row, w->k, MTX_GROUP, dst);
  else transpose(size, rows, row, w->k, n, dst);
}

static void pack_blocks(const mtx_weight *w, const mtx_pack_layout *l, const uint8_t *rows, int64_t n, int64_t g) {
  static const uint8_t zeros[512];
  int64_t blocks = w->k / 32 / l->blocks;
  size_t row = (size_t)blocks * l->file_block_bytes;
  for (int64_t b = 0; b < blocks; b++) {
    parts p = parts_at(w, l, g, b);
    for (int r = 0; r < MTX_GROUP; r++)
      l->put(r < n ? rows + (size_t)r * row + (size_t)b * l->file_block_bytes : zeros, r, p.q, p.s, p.ss);
  }
}

void mtx_weight_pack(const mtx_weight *w, const void *src, int64_t g0, int64_t g1) {
  const mtx_pack_layout *l = mtx_pack_layout_get((mtx_pack)w->pack);
  size_t row = (size_t)w->k / w->type->block * w->type->block_bytes;
  for (int64_t g = g0; g < g1; g++) {
    const uint8_t *rows = (const uint8_t *)src + (size_t)g * MTX_GROUP * row;
    int64_t n = w->n_out - g * MTX_GROUP;
    if (n > MTX_GROUP) n = MTX_GROUP;
    if (l) {
      pack_blocks(w, l, rows, n, g);
    } else if (is_float(w->pack)) {
      pack_floats(w, rows, n, group_at(w, g));
    } else {
      memcpy(group_at(w, g), rows, (size_t)n * row);
      memset(group_at(w, g) + (size_t)n * row, 0, w->group_bytes - (size_t)n * row);
    }
  }
}

void mtx_weight_row(const mtx_weight *w, int64_t i, float *dst) {
  const mtx_pack_layout *l = mtx_pack_layout_get((mtx_pack)w->pack);
  int64_t g = i / MTX_GROUP;
  int lane = (int)(i % MTX_GROUP);
  if (l) {
    uint8_t blk[256];
    for (int64_t b = 0; b < w->k / 32 / l->blocks; b++) {
      parts p = parts_at(w, l, g, b);
      l->get(blk, lane, p.q, p.s, p.ss);
      w->type->decode(blk, dst + b * w->type->block, w->type->block);
    }
  } else if (is_float(w->pack)) {
    size_t size = w->type->block_bytes;
    for (int64_t k = 0; k < w->k; k++) w->type->decode(group_at(w, g) + (size_t)(k * MTX_GROUP + lane) * size, dst + k, 1);
  } else {
    w->type->decode(group_at(w, g) + (size_t)lane * ((size_t)w->k / w->type->block * w->type->block_bytes), dst, w->k);
  }
}

size_t mtx_act_bytes(mtx_act_format f, int64_t k) {
  return round64(f == MTX_ACT_F32 ? (size_t)k * sizeof(float) : (size_t)k / 32 * sizeof(mtx_q8));
}

void mtx_act_encode(mtx_act_format f, const float *x, int64_t k, int64_t b0, int64_t b1, void *dst) {
  if (f == MTX_ACT_F32) {
    int64_t end = 32 * b1 < k ? 32 * b1 : k;
    if (32 * b0 < end) memcpy((float *)dst + 32 * b0, x + 32 * b0, (size_t)(end - 32 * b0) * sizeof(float));
    return;
  }
  mtx_mm.encode(x + 32 * b0, b1 - b0, (mtx_q8 *)dst + b0);
}

// Blocks [b0, b0 + n) of a group in file layout -> tile.
static void rows_unpack(const mtx_weight *w, const uint8_t *group, int64_t b0, int64_t n, uint8_t *tile) {
  size_t row = (size_t)w->k / w->type->block * w->type->block_bytes;
  for (int64_t b = 0; b < n; b++, tile += MTX_TILE_S_BYTES + MTX_TILE_Q_BYTES)
    for (int r = 0; r < MTX_GROUP; r++) {
      int8_t q[32];
      uint8_t *tq = tile + MTX_TILE_S_BYTES;
      float scale[2], min[2], *s = (float *)(void *)tile + r;
      w->type->unpack(group + (size_t)r * row, b0 + b, q, scale, min);
      s[0] = scale[0], s[16] = scale[1], s[32] = min[0], s[48] = min[1];
      for (int v = 0; v < 8; v++) {
        uint32_t u;
        memcpy(&u, q + 4 * v, 4);
        u ^= 0x80808080u;
        memcpy(tq + 64 * v + 4 * r, &u, 4);
      }
    }
}

// A product by a type in file layout.
static void rows_matmul(const mtx_weight *w, const mtx_mm_args *a) {
  _Alignas(64) uint8_t tile[ROWS_BLOCKS * (MTX_TILE_Q_BYTES + MTX_TILE_S_BYTES)];
  _Alignas(64) float sums[ROWS_COLS * 16];
  int64_t nb = a->k / 32;
  for (int64_t g = 0; g < a->n_groups; g++)
    for (int64_t c0 = 0; c0 < a->n_cols; c0 += ROWS_COLS) {
      int64_t n_cols = a->n_cols - c0 < ROWS_COLS ? a->n_cols - c0 : ROWS_COLS;
      for (int64_t b0 = 0; b0 < nb; b0 += ROWS_BLOCKS) {
        int64_t n = nb - b0 < ROWS_BLOCKS ? nb - b0 : ROWS_BLOCKS;
        rows_unpack(w, a->data + (size_t)g * a->group_bytes, b0, n, tile);
        mtx_mm_args t = {.data = tile, .n_groups = 1, .k = 32 * n, .act = a->act + (size_t)c0 * a->act_stride + (size_t)b0 * sizeof(mtx_q8),
                         .act_stride = a->act_stride, .n_cols = n_cols, .y = sums, .ldy = 16, .n_rows = 16, .resume = b0 > 0};
        mtx_mm.fn[MTX_PACK_TILE](&t);
      }
      int64_t n_rows = a->n_rows - g * MTX_GROUP < MTX_GROUP ? a->n_rows - g * MTX_GROUP : MTX_GROUP;
      for (int64_t c = 0; c < n_cols; c++) {
        float *y = a->y + (c0 + c) * a->ldy + g * MTX_GROUP;
        for (int64_t r = 0; r < n_rows; r++) y[r] = a->accumulate ? y[r] + sums[16 * c + r] : sums[16 * c + r];
      }
    }
}

void mtx_matmul(const mtx_weight *w, int64_t g0, int64_t g1, const void *act, size_t act_stride,
                int64_t n_cols, float *y, int64_t ldy, bool accumulate) {
  if (g0 >= g1 || n_cols <= 0) return;
  mtx_mm_args a = {.data = group_at(w, g0), .group_bytes = w->group_bytes, .n_groups = g1 - g0, .k = w->k,
                   .act = act, .act_stride = act_stride, .n_cols = n_cols, .y = y + g0 * MTX_GROUP, .ldy = ldy,
                   .n_rows = w->n_out - g0 * MTX_GROUP, .accumulate = accumulate};
  if (w->pack == MTX_PACK_ROWS) rows_matmul(w, &a);
  else mtx_mm.fn[w->pack](&a);
}
