// SPDX-License-Identifier: MIT
// llama: Llama 1-3, Mistral, Mixtral, SmolLM, TinyLlama and their kin.
//
// Pre-norm decoder, rotary pairs interleaved, gated SiLU or Mixtral's experts.
// Llama-3 scaling comes as the tensor rope_freqs (divisors of the frequencies).
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  rope.factors = mtx_g_vector_opt(g, -1, "rope_freqs", rope.n_rot / 2);
  float scale = mtx_h_f32(h, "attention.scale", 0.0f);
  mtx_moe moe = {.gate = MTX_GATE_SOFTMAX, .norm = true, .scale = 1.0f};

  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer; il++) {
    mtx_qkv a = mtx_block_qkv(g, h, il, mtx_block_norm(g, h, il, "attn_norm", x));
    mtx_block_rope_qk(g, h, il, &a, &rope);
    mtx_attn p = mtx_block_attn_params(h, il, scale, 0);
    x = mtx_g_add(g, x, mtx_block_attn_out(g, h, il, mtx_g_attention(g, a.q, a.k, a.v, &p)));
    mtx_val n = mtx_block_norm(g, h, il, "ffn_norm", x);
    x = mtx_g_add(g, x, h->n_expert ? mtx_block_moe(g, h, il, n, h->n_ff[il], MTX_UNARY_SILU, moe) : mtx_block_ffn(g, h, il, n, MTX_UNARY_SILU));
    mtx_g_ignore(g, il, "attn_rot_embd");
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_llama = {.names = {"llama"}, .build = build};
