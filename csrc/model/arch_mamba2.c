// SPDX-License-Identifier: MIT
// mamba2: Mamba-2 and Codestral Mamba. No attention: each layer is a convolution
// over time and a selective scan with a fixed-size state.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  int n_inner = (int)mtx_h_need(h, "ssm.inner_size", 1, 1 << 20), n_state = (int)mtx_h_need(h, "ssm.state_size", 1, 4096);
  int n_taps = (int)mtx_h_need(h, "ssm.conv_kernel", 2, 16), n_head = (int)mtx_h_need(h, "ssm.time_step_rank", 1, 1 << 16);
  int n_group = (int)mtx_h_need(h, "ssm.group_count", 1, 1 << 16);
  if (h->err.code) return 0;
  int64_t n_bc = (int64_t)n_group * n_state, n_conv = n_inner + 2 * n_bc;

  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer; il++) {
    mtx_val n = mtx_block_norm(g, h, il, "attn_norm", x);
    mtx_val in = mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_in", n_inner + n_conv + n_head, h->n_embd), n, 0);
    mtx_val z = mtx_g_view(g, in, 0, n_inner), dt = mtx_g_view(g, in, n_inner + n_conv, n_head);
    mtx_val c = mtx_g_conv(g, mtx_g_view(g, in, n_inner, n_conv), mtx_g_vector(g, il, "ssm_conv1d", n_taps * n_conv), n_taps,
                           mtx_g_bias(g, il, "ssm_conv1d", n_conv), true);
    mtx_val y = mtx_g_ssm_scan(g, mtx_g_view(g, c, 0, n_inner), dt, mtx_g_view(g, c, n_inner, n_bc), mtx_g_view(g, c, n_inner + n_bc, n_bc),
                               mtx_g_floats(g, il, "ssm_a", n_head, true), mtx_g_floats(g, il, "ssm_d", n_head, true),
                               mtx_g_bias(g, il, "ssm_dt", n_head), n_head, n_group, n_state);
    y = mtx_g_rms_norm(g, mtx_g_glu(g, MTX_UNARY_SILU, z, y), n_inner / n_group, mtx_g_vector(g, il, "ssm_norm", n_inner), h->rms_eps);
    x = mtx_g_add(g, x, mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_out", h->n_embd, n_inner), y, 0));
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_mamba2 = {.names = {"mamba2"}, .build = build};
