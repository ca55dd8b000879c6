// SPDX-License-Identifier: MIT
// falcon-h1: Falcon-H1. Attention and a Mamba-2 mixer side by side in every layer.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_layer l = mtx_layer_default(&rope);
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    mtx_val n = mtx_block_norm(g, h, il, "attn_norm", x);
    mtx_val y = mtx_block_mamba2(g, h, il, n, mtx_g_has(g, il, "ssm_norm"));
    x = mtx_g_add(g, mtx_g_add(g, x, y), mtx_block_attention(g, h, il, n, &l));
    // Its files name this norm without ".weight".
    n = mtx_g_rms_norm(g, x, 0, mtx_g_floats(g, il, "ffn_norm", h->n_embd, true), h->rms_eps);
    x = mtx_g_add(g, x, mtx_block_ffn(g, h, il, n, MTX_FFN_GATED, MTX_UNARY_SILU));
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_falcon_h1 = {.names = {"falcon-h1"}, .build = build};
