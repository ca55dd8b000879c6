// SPDX-License-Identifier: MIT
// olmo: OLMo 1. Llama's shape with layer norms that have no weights, and clamped q, k, v.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  h->norm = MTX_NORM_LAYER_BARE;
  mtx_layer l = mtx_layer_default(&rope);
  l.clamp_qkv = mtx_h_f32(h, "attention.clamp_kqv", 0.0f);
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_olmo = {.names = {"olmo"}, .build = build};
