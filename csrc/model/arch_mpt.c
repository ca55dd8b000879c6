// SPDX-License-Identifier: MIT
// mpt: MPT. ALiBi instead of positions, clamped q, k, v, layer norms, plain GELU, tied output.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  h->norm = MTX_NORM_LAYER;
  mtx_layer l = mtx_layer_default(NULL);
  l.clamp_qkv = mtx_h_f32(h, "attention.clamp_kqv", 0.0f);
  l.ffn = MTX_FFN_PLAIN;
  l.act = MTX_UNARY_GELU;
  l.attn.alibi_max_bias = mtx_h_f32(h, "attention.max_alibi_bias", 0.0f);
  if (mtx_g_has(g, 0, "attn_q_norm")) l.qk_norm = MTX_QK_NORM_ROPE;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  return mtx_block_decoder(g, h, mtx_g_has(g, -1, "position_embd") ? mtx_block_add_positions(g, h, x) : x, &l);
}

const mtx_arch mtx_arch_mpt = {.names = {"mpt"}, .build = build};
