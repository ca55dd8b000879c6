// SPDX-License-Identifier: MIT
// qwen2: Qwen 1.5, 2 and 2.5. Llama's shape with biases on q, k, v and rotary halves.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer; il++) {
    mtx_qkv a = mtx_block_qkv(g, h, il, mtx_block_norm(g, h, il, "attn_norm", x));
    mtx_block_rope_qk(g, h, il, &a, &rope);
    mtx_attn p = mtx_block_attn_params(h, il, 0.0f, 0);
    x = mtx_g_add(g, x, mtx_block_attn_out(g, h, il, mtx_g_attention(g, a.q, a.k, a.v, &p)));
    x = mtx_g_add(g, x, mtx_block_ffn(g, h, il, mtx_block_norm(g, h, il, "ffn_norm", x), MTX_UNARY_SILU));
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_qwen2 = {.names = {"qwen2"}, .build = build};
