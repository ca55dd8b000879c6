// SPDX-License-Identifier: MIT
// mamba2: Mamba-2 and Codestral Mamba. No attention: each layer is a convolution over time and a selective
// scan with a fixed-size state.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) x = mtx_g_add(g, x, mtx_block_mamba2(g, h, il, mtx_block_norm(g, h, il, "attn_norm", x), true));
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_mamba2 = {.names = {"mamba2"}, .build = build};
