// SPDX-License-Identifier: MIT
// The mixers of Mamba-1 and Mamba-2: a convolution over time and a selective scan with a fixed-size state. See arch.h.
#include "model/arch.h"

mtx_val mtx_block_mamba2(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, bool has_norm) {
  int n_inner = (int)mtx_h_need(h, "ssm.inner_size", 1, 1 << 20), n_state = (int)mtx_h_need(h, "ssm.state_size", 1, 4096);
  int n_taps = (int)mtx_h_need(h, "ssm.conv_kernel", 2, 16), n_head = (int)mtx_h_need(h, "ssm.time_step_rank", 1, 1 << 16);
  int n_group = (int)mtx_h_need(h, "ssm.group_count", 1, 1 << 16);
  if (h->err.code) return 0;
  int64_t n_bc = (int64_t)n_group * n_state, n_conv = n_inner + 2 * n_bc;
  mtx_val in = mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_in", n_inner + n_conv + n_head, h->n_embd), x, 0);
  mtx_val z = mtx_g_view(g, in, 0, n_inner), dt = mtx_g_view(g, in, n_inner + n_conv, n_head);
  mtx_val c = mtx_g_conv(g, mtx_g_view(g, in, n_inner, n_conv), mtx_g_vector(g, il, "ssm_conv1d", n_taps * n_conv), n_taps,
                         mtx_g_bias(g, il, "ssm_conv1d", n_conv), true);
  mtx_val y = mtx_g_ssm_scan(g, mtx_g_view(g, c, 0, n_inner), dt, mtx_g_view(g, c, n_inner, n_bc), mtx_g_view(g, c, n_inner + n_bc, n_bc),
                             mtx_g_floats(g, il, "ssm_a", n_head, true), mtx_g_floats(g, il, "ssm_d", n_head, true),
                             mtx_g_bias(g, il, "ssm_dt", n_head), n_head, n_group, n_state);
  y = mtx_g_glu(g, MTX_UNARY_SILU, z, y);
  if (has_norm) y = mtx_g_rms_norm(g, y, n_inner / n_group, mtx_g_vector(g, il, "ssm_norm", n_inner), h->rms_eps);
  return mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_out", h->n_embd, n_inner), y, 0);
}

static mtx_val normed(mtx_graph *g, mtx_hparams *h, int il, const char *name, mtx_val x, mtx_mamba_norm norm) {
  if (norm == MTX_MAMBA_AS_IS) return x;
  return mtx_g_rms_norm(g, x, 0, norm == MTX_MAMBA_NORM ? mtx_g_vector(g, il, name, mtx_g_width(g, x)) : 0, h->rms_eps);
}

mtx_val mtx_block_mamba1(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, mtx_mamba_norm norm) {
  int n_inner = (int)mtx_h_need(h, "ssm.inner_size", 1, 1 << 20), n_state = (int)mtx_h_need(h, "ssm.state_size", 1, 4096);
  int n_taps = (int)mtx_h_need(h, "ssm.conv_kernel", 2, 16), rank = (int)mtx_h_need(h, "ssm.time_step_rank", 1, 1 << 16);
  if (h->err.code) return 0;
  mtx_val in = mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_in", 2 * (int64_t)n_inner, h->n_embd), x, 0);
  mtx_val z = mtx_g_view(g, in, n_inner, n_inner);
  mtx_val c = mtx_g_conv(g, mtx_g_view(g, in, 0, n_inner), mtx_g_vector(g, il, "ssm_conv1d", (int64_t)n_taps * n_inner), n_taps,
                         mtx_g_bias(g, il, "ssm_conv1d", n_inner), true);
  mtx_val parts = mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_x", rank + 2 * n_state, n_inner), c, 0);
  mtx_val dt = normed(g, h, il, "ssm_dt_norm", mtx_g_view(g, parts, 0, rank), norm);
  mtx_val B = normed(g, h, il, "ssm_b_norm", mtx_g_view(g, parts, rank, n_state), norm);
  mtx_val C = normed(g, h, il, "ssm_c_norm", mtx_g_view(g, parts, rank + n_state, n_state), norm);
  dt = mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_dt", n_inner, rank), dt, mtx_g_bias(g, il, "ssm_dt", n_inner));
  mtx_val y = mtx_g_ssm_scan(g, c, dt, B, C, mtx_g_floats(g, il, "ssm_a", (int64_t)n_inner * n_state, true),
                             mtx_g_floats(g, il, "ssm_d", n_inner, true), 0, n_inner, 1, n_state);
  return mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_out", h->n_embd, n_inner), mtx_g_glu(g, MTX_UNARY_SILU, z, y), 0);
}
