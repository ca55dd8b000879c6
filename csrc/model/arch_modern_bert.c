// SPDX-License-Identifier: MIT
// modern-bert: ModernBERT. An encoder with rotation, gated GELU, and a symmetric window in two of three
// layers, with a rotary base of its own. Result as in bert.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  h->causal = h->has_logits = false;
  h->norm = MTX_NORM_LAYER;
  mtx_rope global = h->rope;
  global.mode = MTX_ROPE_NEOX;
  mtx_rope local = global;
  local.base = mtx_h_f32(h, "rope.freq_base_swa", global.base);
  uint32_t period = mtx_h_u32(h, "attention.sliding_window_pattern", 3);
  mtx_layer l = mtx_layer_default(&global);
  l.ffn = MTX_FFN_JOINED;
  l.act = MTX_UNARY_GELU;
  mtx_val x = mtx_block_norm(g, h, -1, "token_embd_norm", mtx_block_embed(g, h, 1.0f));
  for (int il = 0; il < h->n_layer; il++) {
    bool is_local = h->window > 0 && period > 0 && (uint32_t)il % period != 0;
    l.attn_norm = il > 0 ? "attn_norm" : NULL;  // the embeddings are normalised already
    l.rope = is_local ? &local : &global;
    l.attn.window = is_local ? h->window : 0;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_block_norm(g, h, -1, "output_norm", mtx_g_select(g, x));
}

const mtx_arch mtx_arch_modern_bert = {.names = {"modern-bert"}, .build = build};
