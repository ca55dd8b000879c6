// SPDX-License-Identifier: MIT
// The amx tier's products compiled a second time: plain C for the lanes, the model for the tiles.
//
// Runs on every CPU, of whatever kind.
#ifndef MTX_TEST_TILE_MATMUL_H
#define MTX_TEST_TILE_MATMUL_H

#include "kern/scalar/mm_grid.h"

#include "kern/amx/shape.h"
#include "kern/matmul_tpl.h"
#include "kern/tiers.h"
#include "tile_model.h"

#define tile_configure(shapes) tile_model_configure(shapes)
#define tile_release() tile_model_release()
#define tile_product(Z, X, W, x, x_stride, w, z)  \
  do {                                            \
    tile_model_zero(Z);                           \
    tile_model_load(X, x, (int64_t)(x_stride));   \
    tile_model_load(W, w, 64);                    \
    tile_model_dot(Z, X, W, true, true);          \
    tile_model_store(Z, z, 64);                   \
  } while (0)
#include "kern/amx/mm_tiles.h"

// One function for all kinds: specialised ones would take half a minute to compile.
static __attribute__((noinline)) void mm_tiles(volatile mtx_pack kind, const mtx_mm_args *a) {
  const mtx_pack p = kind;
  tile_run(p, a, mtx_mm_scalar.fn[p]);
}
#define MM_DEFINE_TILES(T) static void mm_##T(const mtx_mm_args *a) { mm_tiles(MTX_PACK_##T, a); }
MM_INT_TYPES(MM_DEFINE_TILES)

static const mtx_mm_ops mm_on_tile_model = { .fn = { MM_INT_TYPES(MM_ENTRY) }, .encode = mm_encode };

#endif
