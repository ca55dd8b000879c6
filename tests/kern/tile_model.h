// SPDX-License-Identifier: MIT
// A model of AMX's tiles in plain C: configuration, loads, stores, byte products (palette 1).
//
// Written from Intel's SDM (vol. 1, chapter 18; vol. 2, LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBSSD and
// its neighbours, TILERELEASE). What a CPU answers with an exception ends the program with a message: a kernel
// that does so is wrong. One machine a thread, as in hardware.
#ifndef MTX_TEST_TILE_MODEL_H
#define MTX_TEST_TILE_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILE_MODEL_TILES = 8, TILE_MODEL_ROWS = 16, TILE_MODEL_BYTES = 64 };

typedef struct {
  bool configured;
  int rows[TILE_MODEL_TILES], row_bytes[TILE_MODEL_TILES];
  uint8_t data[TILE_MODEL_TILES][TILE_MODEL_ROWS][TILE_MODEL_BYTES];
  long n_products;
} tile_machine;

static _Thread_local tile_machine tile_model;

static inline void tile_model_need(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "tile model: %s\n", what);
  abort();
}

static inline void tile_model_release(void) {
  long n = tile_model.n_products;
  memset(&tile_model, 0, sizeof tile_model);
  tile_model.n_products = n;
}

// cfg: palette, start row, 14 bytes of zeros, 16 row lengths (u16, little-endian), 16 row counts.
static inline void tile_model_configure(const void *cfg64) {
  const uint8_t *cfg = (const uint8_t *)cfg64;
  tile_model_release();
  if (cfg[0] == 0) return;
  tile_model_need(cfg[0] == 1, "no such palette");
  tile_model_need(cfg[1] == 0, "a start row is for interrupted loads only");
  for (int i = 2; i < 16; i++) tile_model_need(cfg[i] == 0, "reserved byte set");
  for (int t = 0; t < 16; t++) {
    int bytes = cfg[16 + 2 * t] | cfg[17 + 2 * t] << 8, rows = cfg[48 + t];
    tile_model_need(t < TILE_MODEL_TILES || (bytes == 0 && rows == 0), "a tile above the eighth has a shape");
    tile_model_need(bytes <= TILE_MODEL_BYTES && rows <= TILE_MODEL_ROWS, "tile too large");
    tile_model_need((bytes == 0) == (rows == 0), "rows without bytes or bytes without rows");
    if (t < TILE_MODEL_TILES) tile_model.rows[t] = rows, tile_model.row_bytes[t] = bytes;
  }
  tile_model.configured = true;
}

static inline void tile_model_ready(int t) {
  tile_model_need(t >= 0 && t < TILE_MODEL_TILES, "no such tile");
  tile_model_need(tile_model.configured, "tiles not configured");
  tile_model_need(tile_model.rows[t] > 0, "this tile has no shape");
}

static inline void tile_model_zero(int t) {
  tile_model_ready(t);
  memset(tile_model.data[t], 0, sizeof tile_model.data[t]);
}

static inline void tile_model_load(int t, const void *base, int64_t stride) {
  tile_model_zero(t);
  for (int r = 0; r < tile_model.rows[t]; r++)
    memcpy(tile_model.data[t][r], (const uint8_t *)base + r * stride, (size_t)tile_model.row_bytes[t]);
}

static inline void tile_model_store(int t, void *base, int64_t stride) {
  tile_model_ready(t);
  for (int r = 0; r < tile_model.rows[t]; r++)
    memcpy((uint8_t *)base + r * stride, tile_model.data[t][r], (size_t)tile_model.row_bytes[t]);
}

// c[m][n] += sum over k, j of a[m][4k + j] * b[k][4n + j], modulo 2^32.
static inline void tile_model_dot(int c, int a, int b, bool a_signed, bool b_signed) {
  tile_machine *t = &tile_model;
  tile_model_ready(c), tile_model_ready(a), tile_model_ready(b);
  tile_model_need(c != a && c != b && a != b, "a product needs three different tiles");
  tile_model_need(t->row_bytes[a] % 4 == 0 && t->row_bytes[b] % 4 == 0 && t->row_bytes[c] % 4 == 0, "rows are no multiple of four bytes");
  tile_model_need(t->rows[a] == t->rows[c], "rows of the first factor and of the result differ");
  tile_model_need(t->row_bytes[a] / 4 == t->rows[b], "k of the two factors differs");
  tile_model_need(t->row_bytes[b] == t->row_bytes[c], "columns of the second factor and of the result differ");
  for (int m = 0; m < t->rows[c]; m++)
    for (int n = 0; n < t->row_bytes[c] / 4; n++) {
      uint32_t sum;
      memcpy(&sum, t->data[c][m] + 4 * n, 4);
      for (int k = 0; k < t->rows[b]; k++)
        for (int j = 0; j < 4; j++) {
          uint8_t x = t->data[a][m][4 * k + j], y = t->data[b][k][4 * n + j];
          sum += (uint32_t)((a_signed ? (int8_t)x : x) * (b_signed ? (int8_t)y : y));
        }
      memcpy(t->data[c][m] + 4 * n, &sum, 4);
    }
  t->n_products++;
}

#endif
