// SPDX-License-Identifier: MIT
// mamba: Mamba-1 and Falcon Mamba. No attention: each layer is a convolution over time and a selective scan.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_mamba_norm norm = mtx_h_bool(h, "ssm.dt_b_c_rms", false) ? MTX_MAMBA_NORM_BARE : MTX_MAMBA_AS_IS;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) x = mtx_g_add(g, x, mtx_block_mamba1(g, h, il, mtx_block_norm(g, h, il, "attn_norm", x), norm));
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_mamba = {.names = {"mamba"}, .build = build};
