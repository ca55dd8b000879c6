// SPDX-License-Identifier: MIT
// exaone4: EXAONE 4. Norms behind each sub-block, q and k normalised per head. The 32B model (64 layers)
// has sliding windows; its global layers have no positions.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  rope.factors = mtx_g_vector_opt(g, -1, "rope_freqs", rope.n_rot / 2);
  if (h->n_layer != 64) h->window = 0;
  else if (!mtx_h_has(h, "attention.sliding_window")) h->window = 4096;
  mtx_layer l = mtx_layer_default(&rope);
  l.attn_norm = l.ffn_norm = NULL;
  mtx_layer_post_norms(&l);
  l.qk_norm = MTX_QK_NORM_ROPE;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer; il++) {
    bool is_local = mtx_h_local(h, il, 4);
    l.rope = is_local || !h->window ? &rope : NULL;
    l.attn.window = is_local ? h->window : 0;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_exaone4 = {.names = {"exaone4"}, .build = build};
