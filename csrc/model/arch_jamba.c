// SPDX-License-Identifier: MIT
// jamba: Jamba. Mamba-1 mixers, attention without positions in every eighth layer, experts in some.
#include "model/arch.h"

static mtx_val mamba1(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) { return mtx_block_mamba1(g, h, il, x, MTX_MAMBA_NORM); }

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, false);
  mtx_layer l = mtx_layer_default(NULL);
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    l.mixer = h->n_head_kv[il] ? NULL : mamba1;
    l.experts = mtx_g_has(g, il, "ffn_gate_inp") ? &e : NULL;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_jamba = {.names = {"jamba"}, .build = build};
