// SPDX-License-Identifier: MIT
// dbrx: DBRX. Layer norms without bias, clamped q, k, v, experts in every layer.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  h->norm = MTX_NORM_LAYER;
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, true);
  mtx_layer l = mtx_layer_default(&rope);
  l.ffn_norm = "attn_output_norm";
  l.clamp_qkv = mtx_h_f32(h, "attention.clamp_kqv", 0.0f);
  l.experts = &e;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_dbrx = {.names = {"dbrx"}, .build = build};
