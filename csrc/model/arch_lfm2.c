// SPDX-License-Identifier: MIT
// lfm2 and lfm2moe: LFM 2. Gated short convolutions, attention in a few layers; experts behind the leading
// dense layers.
#include "model/arch.h"

// One projection gives B, C and x: C * conv(B * x).
static mtx_val short_conv(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) {
  int64_t n = h->n_embd;
  int n_taps = (int)mtx_h_need(h, "shortconv.l_cache", 2, 16);
  mtx_val in = mtx_g_matmul(g, mtx_g_matrix(g, il, "shortconv.in_proj", 3 * n, n), x, 0);
  mtx_val bx = mtx_g_mul(g, mtx_g_view(g, in, 0, n), mtx_g_view(g, in, 2 * n, n));
  mtx_val y = mtx_g_conv(g, bx, mtx_g_vector(g, il, "shortconv.conv", n_taps * n), n_taps, 0, false);
  return mtx_g_matmul(g, mtx_g_matrix(g, il, "shortconv.out_proj", n, n), mtx_g_mul(g, mtx_g_view(g, in, n, n), y), 0);
}

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SIGMOID, true);
  mtx_layer l = mtx_layer_default(&rope);
  l.qk_norm = MTX_QK_NORM_ROPE;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    l.mixer = h->n_head_kv[il] ? NULL : short_conv;
    l.experts = h->n_expert && il >= e.n_dense ? &e : NULL;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  mtx_val last = mtx_block_norm(g, h, -1, mtx_g_has(g, -1, "output_norm") ? "output_norm" : "token_embd_norm", mtx_g_select(g, x));
  mtx_g_hidden(g, last);
  return mtx_block_logits(g, h, last);
}

const mtx_arch mtx_arch_lfm2 = {.names = {"lfm2", "lfm2moe"}, .build = build};
