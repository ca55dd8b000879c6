// SPDX-License-Identifier: MIT
// command-r and cohere2: Command R, R+, R7B, A and Aya. Attention and feed-forward side by side
// on one layer norm without bias, scaled logits, tied output. Cohere 2's global layers have no positions.
#include <string.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  h->norm = MTX_NORM_LAYER;
  bool second = strcmp(h->arch, "cohere2") == 0;
  float logit_scale = mtx_h_f32(h, "logit_scale", 1.0f);
  if (second && !mtx_h_has(h, "attention.sliding_window")) h->window = 4096;
  mtx_layer l = mtx_layer_default(&rope);
  l.ffn_norm = NULL;
  l.parallel = true;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer; il++) {
    bool is_local = second && mtx_h_local(h, il, 4);
    l.rope = is_local || !second ? &rope : NULL;
    l.attn.window = is_local ? h->window : 0;
    l.qk_norm = mtx_g_has(g, il, "attn_q_norm") ? MTX_QK_NORM_ROPE : MTX_QK_AS_IS;  // Command R+
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_g_scale(g, mtx_block_head(g, h, x), logit_scale, 0.0f);
}

const mtx_arch mtx_arch_command_r = {.names = {"command-r", "cohere2"}, .build = build};
