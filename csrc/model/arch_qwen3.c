// SPDX-License-Identifier: MIT
// qwen3 and qwen3moe: Qwen 3, dense and with experts. Queries and keys are
// normalised per head before rotation.
#include <string.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  bool experts = strcmp(h->arch, "qwen3moe") == 0;
  int n_ff = experts ? (int)mtx_h_u32(h, "expert_feed_forward_length", h->n_expert_used ? (uint32_t)(h->n_ff[0] / h->n_expert_used) : 0) : 0;
  mtx_moe moe = {.gate = MTX_GATE_SOFTMAX, .norm = true, .scale = 1.0f};
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer; il++) {
    mtx_qkv a = mtx_block_qkv(g, h, il, mtx_block_norm(g, h, il, "attn_norm", x));
    a.q = mtx_g_rms_norm(g, a.q, h->dk, mtx_g_vector(g, il, "attn_q_norm", h->dk), h->rms_eps);
    a.k = mtx_g_rms_norm(g, a.k, h->dk, mtx_g_vector(g, il, "attn_k_norm", h->dk), h->rms_eps);
    mtx_block_rope_qk(g, h, il, &a, &rope);
    mtx_attn p = mtx_block_attn_params(h, il, 0.0f, 0);
    x = mtx_g_add(g, x, mtx_block_attn_out(g, h, il, mtx_g_attention(g, a.q, a.k, a.v, &p)));
    mtx_val n = mtx_block_norm(g, h, il, "ffn_norm", x);
    x = mtx_g_add(g, x, experts ? mtx_block_moe(g, h, il, n, n_ff, MTX_UNARY_SILU, moe) : mtx_block_ffn(g, h, il, n, MTX_UNARY_SILU));
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_qwen3 = {.names = {"qwen3", "qwen3moe"}, .build = build};
