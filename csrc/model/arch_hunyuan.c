// SPDX-License-Identifier: MIT
// hunyuan-dense and hunyuan-moe: Hunyuan. Queries and keys are normalised per head after rotation;
// the large ones have routed experts and one that every token uses.
#include <string.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_experts e = {.route = {.gate = MTX_GATE_SOFTMAX, .norm = true, .scale = 1.0f}, .n_ff = h->n_ff[0]};
  mtx_layer l = mtx_layer_default(&rope);
  l.qk_norm = MTX_QK_ROPE_NORM;
  if (strcmp(h->arch, "hunyuan-moe") == 0) {
    e.n_ff_shared = (int)mtx_h_u32(h, "expert_shared_feed_forward_length", (uint32_t)h->n_ff[0]);
    l.experts = &e;
  }
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_hunyuan = {.names = {"hunyuan-dense", "hunyuan-moe"}, .build = build};
