// SPDX-License-Identifier: MIT
// gemma3: Gemma 3. Five sliding-window layers for each global one, two rotary
// bases, norms before and after each sub-block, tied output.
#include <math.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope global = h->rope;
  global.mode = MTX_ROPE_NEOX;
  mtx_rope local = global;
  local.base = mtx_h_f32(h, "rope.freq_base_swa", 10000.0f);
  local.scale = 1.0f;
  // llama.cpp takes the scale from the layer count: the 27B model (62 layers) divides by its hidden size per head.
  float scale = h->n_layer == 62 ? 1.0f / sqrtf((float)(h->n_embd / h->n_head[0])) : 0.0f;
  float softcap = mtx_h_f32(h, "final_logit_softcapping", 0.0f);
  uint32_t period = mtx_h_u32(h, "attention.sliding_window_pattern", 6);

  mtx_val x = mtx_block_embed(g, h, sqrtf((float)h->n_embd));
  for (int il = 0; il < h->n_layer; il++) {
    bool is_local = h->window > 0 && period > 0 && (uint32_t)il % period < period - 1;
    mtx_qkv a = mtx_block_qkv(g, h, il, mtx_block_norm(g, h, il, "attn_norm", x));
    a.q = mtx_g_rms_norm(g, a.q, h->dk, mtx_g_vector(g, il, "attn_q_norm", h->dk), h->rms_eps);
    a.k = mtx_g_rms_norm(g, a.k, h->dk, mtx_g_vector(g, il, "attn_k_norm", h->dk), h->rms_eps);
    mtx_block_rope_qk(g, h, il, &a, is_local ? &local : &global);
    mtx_attn p = mtx_block_attn_params(h, il, scale, is_local ? h->window : 0);
    mtx_val y = mtx_block_attn_out(g, h, il, mtx_g_attention(g, a.q, a.k, a.v, &p));
    x = mtx_g_add(g, x, mtx_block_norm(g, h, il, "post_attention_norm", y));
    y = mtx_block_ffn(g, h, il, mtx_block_norm(g, h, il, "ffn_norm", x), MTX_UNARY_GELU);
    x = mtx_g_add(g, x, mtx_block_norm(g, h, il, "post_ffw_norm", y));
  }
  mtx_val logits = mtx_block_head(g, h, x);
  return softcap != 0.0f ? mtx_g_softcap(g, logits, softcap) : logits;
}

const mtx_arch mtx_arch_gemma3 = {.names = {"gemma3"}, .build = build};
