// SPDX-License-Identifier: MIT
// Matrix products on tiles: included after tile.h (or a model of it) and kern/matmul_tpl.h with 16 lanes.
//
// A tile product is [columns, k] x [k, rows]. Its first factor is the int8 of 16 activation columns as they lie
// in memory, its second the unpacked bytes of a packed group, whose byte vectors are the rows that the
// instruction wants: 4 neighbouring elements of k of each of 16 weight rows. So the integers of a block of 32
// (or of its halves, where those have a scale each) are one product, exact as any other order of adding them;
// the float steps are those of all tiers (mm_steps), in the same order.
//
// Weights are unpacked once for a panel of columns. The tile unit works on the next 16 columns of a strip of
// blocks while the vector unit does the float steps of these: hence two sets of integers.
#ifndef MTX_KERN_AMX_MM_TILES_H
#define MTX_KERN_AMX_MM_TILES_H

enum {
  TILE_COLS = 16,     // activation columns: rows of the first factor and of the result
  TILE_PANEL = 64,    // columns that share an unpacked strip
  TILE_PRODUCTS = 8,  // of a strip: 8 blocks of one scale or 4 of two
};

typedef struct {
  _Alignas(64) int32_t dot[2][TILE_PRODUCTS][TILE_COLS][16];
  _Alignas(64) uint8_t weight[TILE_PRODUCTS * 512];  // signed bytes
  _Alignas(64) float sum[TILE_PANEL][16];
  mm_scales scale[TILE_PRODUCTS];
} tile_scratch;

// Products to a block of 32.
LANES_INLINE int tile_halves(const mtx_pack p) { return mm_two_scales(p) ? 2 : 1; }

// Two sets of tiles for whole products, so that one need not wait for the other, and one for the last
// `n_last` columns of a call: results in tiles 0, 3, 6, activations in 1, 4, 7, weights in 2, 5, 2.
LANES_INLINE void tile_begin(const mtx_pack p, int n_last) {
  const int k = 32 / tile_halves(p);
  tile_shapes t = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    const int rows = i == 2 || i == 5 ? k / 4 : i >= 6 ? n_last : TILE_COLS;
    t.rows[i] = (uint8_t)rows;
    t.row_bytes[i] = (uint16_t)(rows == 0 ? 0 : i % 3 == 1 ? k : 64);
  }
  tile_configure(&t);
}

// The integers of n blocks and up to 16 columns; x: the first block of the first column.
LANES_INLINE void tile_dots(const mtx_pack p, tile_scratch *t, int set, const uint8_t *x, size_t stride, int64_t n, bool last) {
  const int halves = tile_halves(p);
  const uint8_t *w = t->weight;
  for (int64_t i = 0; i < n * halves; i++, w += 512 / halves) {
    int32_t *dot = t->dot[set][i][0];
    if (last) tile_product(6, 7, 2, x, stride, w, dot);
    else if (i % 2) tile_product(3, 4, 5, x, stride, w, dot);
    else tile_product(0, 1, 2, x, stride, w, dot);
    x += halves == 1 ? sizeof(mtx_q8) : i % 2 ? sizeof(mtx_q8) - 16 : 16;
  }
}

LANES_INLINE void tile_floats(const mtx_pack p, const tile_scratch *t, int set, const uint8_t *act, size_t stride, const int64_t n,
                              float (*sum)[16], int64_t n_cols) {
  const int halves = tile_halves(p);
  for (int64_t c = 0; c < n_cols; c++, act += stride) {
    mf acc = mf_load(sum[c]);
    for (int64_t i = 0; i < n; i++) {
      mi lo = mi_load((const uint8_t *)t->dot[set][i * halves][c]);
      mi hi = halves == 2 ? mi_load((const uint8_t *)t->dot[set][i * halves + 1][c]) : lo;
      acc = mm_steps(p, lo, hi, &t->scale[i], (const mtx_q8 *)(const void *)act + i, acc);
    }
    mf_store(sum[c], acc);
  }
}

// Blocks [b0, b0 + n) of a group of nb.
LANES_INLINE void tile_unpack(const mtx_pack p, tile_scratch *t, const uint8_t *group, int64_t nb, int64_t b0, int64_t n) {
  const uint32_t bias = mm_bias(p) < 0 ? 0 : 1u << mm_bias(p);
  for (int64_t i = 0; i < n; i++) {
    const int64_t first = (b0 + i) / mm_chunk(p) * mm_chunk(p), in_chunk = b0 + i - first;
    const int64_t len = nb - first < mm_chunk(p) ? nb - first : mm_chunk(p);
    const uint8_t *ss = group + first / mm_chunk(p) * mm_ss_bytes(p) + first * (mm_s_bytes(p) + mm_q_bytes(p));
    const uint8_t *s = ss + mm_ss_bytes(p) + in_chunk * mm_s_bytes(p);
    const uint8_t *q = ss + mm_ss_bytes(p) + len * mm_s_bytes(p) + in_chunk * mm_q_bytes(p);
    mb w[8];
    if (mm_is_rare(p)) mm_rare_unpack(p, q, s, 0, w);
    else mm_unpack(p, q, w);
    for (int v = 0; v < 8; v++) {
      if (bias) w[v] = mb_add(w[v], mb_of(mi_set1((int32_t)(0x01010101u * (256 - bias)))));
      memcpy(t->weight + 512 * i + 64 * v, &w[v], 64);
    }
    t->scale[i] = mm_load_scales(p, s, ss, 0);
  }
}

// Up to TILE_PANEL columns of one group, of which n_lanes rows exist. Fewer than 16 are left over only
// where a call ends.
LANES_INLINE void tile_panel(const mtx_pack p, tile_scratch *t, const mtx_mm_args *a, const uint8_t *group, const uint8_t *act,
                             float *y, int64_t n_cols, int64_t n_lanes) {
  const int64_t nb = a->k / 32, strip = TILE_PRODUCTS / tile_halves(p);
  for (int64_t c = 0; c < n_cols; c++) mf_store(t->sum[c], p == MTX_PACK_TILE && a->resume ? mf_load(y + c * a->ldy) : mf_zero());
  for (int64_t b = 0; b < nb; b += strip, act += strip * (int64_t)sizeof(mtx_q8)) {
    const int64_t n = nb - b < strip ? nb - b : strip;
    tile_unpack(p, t, group, nb, b, n);
    for (int64_t c = 0, now = -TILE_COLS; now < n_cols; now = c, c += TILE_COLS) {
      if (c < n_cols) tile_dots(p, t, c / TILE_COLS % 2, act + c * (int64_t)a->act_stride, a->act_stride, n, n_cols - c < TILE_COLS);
      if (now < 0) continue;
      const uint8_t *x = act + now * (int64_t)a->act_stride;
      const int64_t m = n_cols - now < TILE_COLS ? n_cols - now : TILE_COLS;
      if (n == strip) tile_floats(p, t, now / TILE_COLS % 2, x, a->act_stride, strip, t->sum + now, m);
      else tile_floats(p, t, now / TILE_COLS % 2, x, a->act_stride, n, t->sum + now, m);
    }
  }
  for (int64_t c = 0; c < n_cols; c++) mm_finish(y + c * a->ldy, mf_load(t->sum[c]), n_lanes, a->accumulate);
}

// `below` serves calls of fewer columns than a whole tile has.
LANES_INLINE void tile_run(const mtx_pack p, const mtx_mm_args *a, mtx_mm_fn below) {
  if (a->n_cols < TILE_COLS) {
    below(a);
    return;
  }
  tile_scratch t;
  int64_t part = MM_CACHE_BYTES / (int64_t)a->act_stride / TILE_PANEL * TILE_PANEL;
  if (part < TILE_PANEL) part = TILE_PANEL;
  tile_begin(p, (int)(a->n_cols % TILE_COLS));
  for (int64_t c0 = 0; c0 < a->n_cols; c0 += part) {
    int64_t c1 = c0 + part < a->n_cols ? c0 + part : a->n_cols;
    for (int64_t g = 0; g < a->n_groups; g++)
      for (int64_t c = c0; c < c1; c += TILE_PANEL)
        tile_panel(p, &t, a, a->data + g * a->group_bytes, a->act + c * (int64_t)a->act_stride, a->y + g * 16 + c * a->ldy,
                   c1 - c < TILE_PANEL ? c1 - c : TILE_PANEL, a->n_rows - g * 16);
  }
  tile_release();
}

#endif
