// SPDX-License-Identifier: MIT
// Matrix products for AMX: the quantised types, on tiles. AVX-512 unpacks, scales, and serves few columns.
#include "kern/avx512/dot_vnni.h"
#include "kern/avx512/codebook_vbmi.h"
#include "tile.h"

#include "kern/matmul_tpl.h"
#include "kern/tiers.h"
#include "mm_tiles.h"

static mtx_mm_fn below(mtx_pack p) { return mtx_mm_avx512_vbmi.fn[p] ? mtx_mm_avx512_vbmi.fn[p] : mtx_mm_avx512_vnni.fn[p]; }

#define MM_DEFINE_TILES(T) static void mm_##T(const mtx_mm_args *a) { tile_run(MTX_PACK_##T, a, below(MTX_PACK_##T)); }
MM_INT_TYPES(MM_DEFINE_TILES)

const mtx_mm_ops mtx_mm_amx = { .fn = { MM_INT_TYPES(MM_ENTRY) }, .encode = mm_encode };
