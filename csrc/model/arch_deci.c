// SPDX-License-Identifier: MIT
// deci: DeciLM, Nemotron 51B, 49B and 253B. Llama's shape after a search: some layers have a matrix instead of attention,
// no attention, no feed-forward network, or nothing at all.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  rope.factors = mtx_g_vector_opt(g, -1, "rope_freqs", rope.n_rot / 2);
  mtx_layer l = mtx_layer_default(&rope);
  l.attn.scale = mtx_h_f32(h, "attention.scale", 0.0f);
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    if (h->n_head[il]) {
      mtx_val n = mtx_block_norm(g, h, il, "attn_norm", x);
      x = mtx_g_add(g, x, h->n_head_kv[il] ? mtx_block_attention(g, h, il, n, &l) : mtx_block_attn_out(g, h, il, n));
    }
    if (h->n_ff[il]) x = mtx_g_add(g, x, mtx_block_ffn(g, h, il, mtx_block_norm(g, h, il, "ffn_norm", x), MTX_FFN_GATED, MTX_UNARY_SILU));
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_deci = {.names = {"deci"}, .build = build};
