// SPDX-License-Identifier: MIT
// plamo2: PLaMo 2. Mamba mixers of its own kind (scalar decay per head, normalised dt, B and C) and attention in turn, norms
// before and behind each sub-block. Some of its norms have no ".weight" in their names.
#include "model/arch.h"

static mtx_val norm(mtx_graph *g, mtx_hparams *h, int il, const char *name, mtx_val x) {
  return mtx_g_rms_norm(g, x, 0, mtx_g_floats(g, il, name, mtx_g_width(g, x), true), h->rms_eps);
}

static mtx_val product(mtx_graph *g, int il, const char *name, int64_t n_out, mtx_val x) {
  return mtx_g_matmul(g, mtx_g_matrix(g, il, name, n_out, mtx_g_width(g, x)), x, mtx_g_bias(g, il, name, n_out));
}

static mtx_val mamba(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) {
  int n_inner = (int)mtx_h_need(h, "ssm.inner_size", 1, 1 << 20), n_state = (int)mtx_h_need(h, "ssm.state_size", 1, 4096);
  int n_taps = (int)mtx_h_need(h, "ssm.conv_kernel", 2, 16), n_head = (int)mtx_h_need(h, "ssm.time_step_rank", 1, 1 << 16);
  if (n_inner % n_head) mtx_h_fail(h, MTX_EFORMAT, "ssm.time_step_rank", "%d heads do not divide %d floats", n_head, n_inner);
  if (h->err.code) return 0;
  int head = n_inner / n_head, n_dt = h->n_embd / 16 > 64 ? h->n_embd / 16 : 64;
  // Of each head first z, then x.
  mtx_val both = product(g, il, "ssm_in", 2 * (int64_t)n_inner, x), z = mtx_g_alloc(g, n_inner), u = mtx_g_alloc(g, n_inner);
  mtx_g_copy_into(g, z, head, 0, both, 2 * head, head, n_head);
  mtx_g_copy_into(g, u, head, 0, mtx_g_view(g, both, head, 2 * (int64_t)n_inner - head), 2 * head, head, n_head);
  u = mtx_g_conv(g, u, mtx_g_vector(g, il, "ssm_conv1d", (int64_t)n_taps * n_inner), n_taps, mtx_g_bias(g, il, "ssm_conv1d", n_inner), true);
  mtx_val parts = product(g, il, "ssm_x", 2 * n_state + n_dt, u);
  mtx_val B = norm(g, h, il, "ssm_b_norm", mtx_g_view(g, parts, 0, n_state)), C = norm(g, h, il, "ssm_c_norm", mtx_g_view(g, parts, n_state, n_state));
  mtx_val dt = product(g, il, "ssm_dt", n_head, norm(g, h, il, "ssm_dt_norm", mtx_g_view(g, parts, 2 * n_state, n_dt)));
  mtx_val y = mtx_g_ssm_scan(g, u, dt, B, C, mtx_g_floats(g, il, "ssm_a", n_head, true), mtx_g_floats(g, il, "ssm_d", n_head, true), 0, n_head, 1, n_state);
  return product(g, il, "ssm_out", h->n_embd, mtx_g_glu(g, MTX_UNARY_SILU, z, y));
}

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_layer l = mtx_layer_default(&rope);
  l.qk_norm = MTX_QK_NORM_ROPE;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    mtx_val n = mtx_block_norm(g, h, il, "attn_norm", x);
    n = h->n_head_kv[il] ? mtx_block_attention(g, h, il, n, &l) : mamba(g, h, il, n);
    x = mtx_g_add(g, x, norm(g, h, il, "post_attention_norm", n));
    n = mtx_block_ffn(g, h, il, mtx_block_norm(g, h, il, "ffn_norm", x), MTX_FFN_JOINED, MTX_UNARY_SILU);
    x = mtx_g_add(g, x, norm(g, h, il, "post_ffw_norm", n));
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_plamo2 = {.names = {"plamo2"}, .build = build};
