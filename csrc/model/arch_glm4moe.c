// SPDX-License-Identifier: MIT
// glm4moe: GLM-4.5 and 4.6. Leading dense layers, then experts chosen by sigmoid with a bias;
// the layers that predict further tokens are left out.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_h_drop_nextn(h);
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SIGMOID, false);
  mtx_layer l = mtx_layer_default(&rope);
  l.ffn_norm = "post_attention_norm";
  l.experts = &e;
  if (mtx_g_has(g, 0, "attn_q_norm")) l.qk_norm = MTX_QK_NORM_ROPE;  // the 355B model
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_glm4moe = {.names = {"glm4moe"}, .build = build};
