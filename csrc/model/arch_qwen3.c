// SPDX-License-Identifier: MIT
// qwen3 and qwen3moe: Qwen 3, dense and with experts; qwen3vl and qwen3vlmoe: the language part of Qwen 3 VL.
// Queries and keys are normalised per head before rotation.
#include <string.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_layer l = mtx_layer_default(&rope);
  l.qk_norm = MTX_QK_NORM_ROPE;
  mtx_experts e = {.route = {.gate = MTX_GATE_SOFTMAX, .norm = true, .scale = 1.0f}};
  if (strstr(h->arch, "moe")) {
    e.n_ff = (int)mtx_h_u32(h, "expert_feed_forward_length", h->n_expert_used ? (uint32_t)(h->n_ff[0] / h->n_expert_used) : 0);
    l.experts = &e;
  }
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_qwen3 = {.names = {"qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe"}, .build = build};
