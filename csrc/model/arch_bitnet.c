// SPDX-License-Identifier: MIT
// bitnet: BitNet b1.58. Weights of -1, 0 and 1 with one scale per matrix; norms inside attention and feed-forward,
// before their last product; tied output.
#include "model/arch.h"

#include <stdio.h>

// The product with "NAME.weight" times the number "NAME.scale", if there is one.
static mtx_val scaled(mtx_graph *g, int il, const char *name, int64_t n_out, mtx_val x) {
  char scale_name[64];
  snprintf(scale_name, sizeof scale_name, "%s.scale", name);
  mtx_val y = mtx_g_matmul(g, mtx_g_matrix(g, il, name, n_out, mtx_g_width(g, x)), x, 0);
  float scale = mtx_g_number(g, il, scale_name, 1.0f);
  return scale != 1.0f ? mtx_g_scale(g, y, scale, 0.0f) : y;
}

static mtx_val attention(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, const mtx_rope *rope) {
  int64_t n_kv = (int64_t)h->n_head_kv[il] * h->dk;
  mtx_qkv a = {scaled(g, il, "attn_q", (int64_t)h->n_head[il] * h->dk, x), scaled(g, il, "attn_k", n_kv, x), scaled(g, il, "attn_v", n_kv, x)};
  mtx_block_rope_qk(g, h, il, &a, rope);
  mtx_attn p = mtx_block_attn_params(h, il, 0.0f, 0);
  mtx_val y = mtx_block_norm(g, h, il, "attn_sub_norm", mtx_g_attention(g, a.q, a.k, a.v, &p));
  return scaled(g, il, "attn_output", h->n_embd, y);
}

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    x = mtx_g_add(g, x, attention(g, h, il, mtx_block_norm(g, h, il, "attn_norm", x), &rope));
    mtx_val n = mtx_block_norm(g, h, il, "ffn_norm", x);
    mtx_val y = mtx_g_glu(g, MTX_UNARY_SILU, scaled(g, il, "ffn_gate", h->n_ff[il], n), scaled(g, il, "ffn_up", h->n_ff[il], n));
    x = mtx_g_add(g, x, scaled(g, il, "ffn_down", h->n_embd, mtx_block_norm(g, h, il, "ffn_sub_norm", y)));
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_bitnet = {.names = {"bitnet"}, .build = build};
