// SPDX-License-Identifier: MIT
// afmoe: Arcee Trinity. Gated attention output, norms before and after each sub-block, sliding windows;
// global layers have no positions.
#include <math.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SIGMOID, false);
  mtx_layer l = mtx_layer_default(&rope);
  mtx_layer_post_norms(&l);
  l.qk_norm = MTX_QK_NORM_ROPE;
  l.out_gate = true;
  mtx_val x = mtx_block_embed(g, h, sqrtf((float)h->n_embd));
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    bool is_local = mtx_h_local(h, il, 4);
    l.rope = is_local ? &rope : NULL;
    l.attn.window = is_local ? h->window : 0;
    l.experts = il < e.n_dense ? NULL : &e;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_afmoe = {.names = {"afmoe"}, .build = build};
