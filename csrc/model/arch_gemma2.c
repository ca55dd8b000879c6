// SPDX-License-Identifier: MIT
// gemma2: Gemma 2. Sliding-window and global layers in turn, norms before and after
// each sub-block, scores and logits capped by tanh.
#include <math.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_layer l = mtx_layer_default(&rope);
  mtx_layer_post_norms(&l);
  l.act = MTX_UNARY_GELU;
  // As in gemma3, the 27B model (46 layers) divides by its hidden size per head.
  l.attn.scale = mtx_h_f32(h, "attention.scale", h->n_layer == 46 && h->n_head[0] ? 1.0f / sqrtf((float)(h->n_embd / h->n_head[0])) : 0.0f);
  l.attn.softcap = mtx_h_f32(h, "attn_logit_softcapping", 50.0f);
  float softcap = mtx_h_f32(h, "final_logit_softcapping", 30.0f);
  if (!mtx_h_has(h, "attention.sliding_window")) h->window = 4096;

  mtx_val x = mtx_block_embed(g, h, sqrtf((float)h->n_embd));
  for (int il = 0; il < h->n_layer; il++) {
    l.attn.window = mtx_h_local(h, il, 2) ? h->window : 0;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  mtx_val logits = mtx_block_head(g, h, x);
  return softcap != 0.0f ? mtx_g_softcap(g, logits, softcap) : logits;
}

const mtx_arch mtx_arch_gemma2 = {.names = {"gemma2"}, .build = build};
