// SPDX-License-Identifier: MIT
// llama4: Llama 4 Scout and Maverick. Three layers with rotated, normalised q and k that see their chunk of 8192
// tokens, then one without positions that sees all and grows sharper with length; experts that weigh their input.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  rope.factors = mtx_g_vector_opt(g, -1, "rope_freqs", rope.n_rot / 2);
  bool chunks = !mtx_h_has(h, "attention.sliding_window") || h->window > 0;
  h->window = chunks ? 8192 : 0;
  uint32_t every = mtx_h_need(h, "interleave_moe_layer_step", 0, MTX_MAX_LAYERS);
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SIGMOID, false);
  e.n_ff_shared = e.n_ff;
  e.route.gate = MTX_GATE_SIGMOID;
  e.route.weigh_input = true;
  mtx_layer l = mtx_layer_default(&rope);
  l.attn.scale = mtx_h_f32(h, "attention.scale", 0.0f);
  l.attn.chunked = true;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    bool rotated = !chunks || (il + 1) % 4;
    l.rope = rotated ? &rope : NULL;
    l.qk_norm = rotated && h->n_expert != 128 ? MTX_QK_ROPE_NORM_BARE : MTX_QK_AS_IS;  // not Maverick
    l.temperature = rotated ? (mtx_temperature){0} : (mtx_temperature){.scale = 0.1f, .every = 8192.0f, .offset = 1.0f};
    l.attn.window = mtx_h_local(h, il, 4) ? h->window : 0;
    l.experts = every > 0 && (uint32_t)(il + 1) % every == 0 ? &e : NULL;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_llama4 = {.names = {"llama4"}, .build = build};
