// SPDX-License-Identifier: MIT
// olmo2: OLMo 2 and 3. Norms behind attention and feed-forward instead of before, q and k
// normalised over all heads. OLMo 3 adds sliding windows; there YaRN is for global layers only.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope global = h->rope;
  global.mode = MTX_ROPE_NEOX;
  mtx_rope local = global;
  local.base = mtx_h_f32(h, "rope.freq_base_swa", global.base);
  local.scale = local.attn = 1.0f;
  local.ext = 0.0f;
  mtx_layer l = mtx_layer_default(&global);
  l.attn_norm = l.ffn_norm = NULL;
  mtx_layer_post_norms(&l);
  l.qk_norm = MTX_QK_NORM_ROPE;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer; il++) {
    bool is_local = mtx_h_local(h, il, 4);
    l.rope = is_local ? &local : &global;
    l.attn.window = is_local ? h->window : 0;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_olmo2 = {.names = {"olmo2"}, .build = build};
