// SPDX-License-Identifier: MIT
// grok: Grok 1 and 2. Norms before and after each sub-block, capped scores, GELU experts and (Grok 2) a
// dense network beside them. Defaults are Grok 1's, whose files lack the keys.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  float softcap = mtx_h_f32(h, "final_logit_softcapping", 0.0f), logit_scale = mtx_h_f32(h, "logit_scale", 0.57735027f);
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, true);
  mtx_layer l = mtx_layer_default(&rope);
  l.attn.scale = mtx_h_f32(h, "attention.output_scale", 0.08838835f);
  l.attn.softcap = mtx_h_f32(h, "attn_logit_softcapping", 30.0f);
  mtx_val x = mtx_block_embed(g, h, mtx_h_f32(h, "embedding_scale", 78.38367f));
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    mtx_val a = mtx_block_attention(g, h, il, mtx_block_norm(g, h, il, "attn_norm", x), &l);
    x = mtx_g_add(g, x, mtx_block_norm(g, h, il, "attn_output_norm", a));
    mtx_val n = mtx_block_norm(g, h, il, "ffn_norm", x), y = mtx_block_experts(g, h, il, n, &e, MTX_UNARY_GELU);
    if (mtx_g_has(g, il, "ffn_up")) y = mtx_g_scale(g, mtx_g_add(g, y, mtx_block_ffn(g, h, il, n, MTX_FFN_GATED, MTX_UNARY_GELU)), 0.70710678f, 0.0f);
    x = mtx_g_add(g, x, mtx_block_norm(g, h, il, mtx_g_has(g, il, "layer_output_norm") ? "layer_output_norm" : "post_ffw_norm", y));
  }
  mtx_val logits = mtx_g_scale(g, mtx_block_head(g, h, x), logit_scale, 0.0f);
  return softcap != 0.0f ? mtx_g_softcap(g, logits, softcap) : logits;
}

const mtx_arch mtx_arch_grok = {.names = {"grok"}, .build = build};
