// SPDX-License-Identifier: MIT
// stablelm: StableLM 1 and 2. Layer norms, a quarter of each head rotated; the 12B model puts
// attention and feed-forward side by side and normalises q and k.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  h->norm = MTX_NORM_LAYER;
  mtx_layer l = mtx_layer_default(&rope);
  if (mtx_h_bool(h, "use_parallel_residual", false)) {
    l.parallel = true;
    l.ffn_norm = NULL;
  }
  if (mtx_g_has(g, 0, "attn_q_norm")) l.qk_norm = MTX_QK_NORM_ROPE;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_stablelm = {.names = {"stablelm"}, .build = build};
