// SPDX-License-Identifier: MIT
// apertus: Apertus 8B and 70B. Llama's shape with q and k normalised per head, and xIELU (Huang & Schlag 2024), whose
// curve every layer has learned, instead of a gate.
#include <math.h>

#include "model/arch.h"

// "xielu.NAME", which its files write without the architecture in front: a number, or one per layer.
static float curve(mtx_hparams *h, const char *key, int il) {
  const mtx_gguf_kv *kv = mtx_gguf_find(h->file, key);
  double v = NAN;
  if (kv && kv->type == MTX_GGUF_ARRAY && (kv->item_type == MTX_GGUF_F32 || kv->item_type == MTX_GGUF_F64) && kv->n >= (uint64_t)h->n_layer)
    v = mtx_gguf_item_f64(kv, (uint64_t)il);
  else if (kv && (kv->type == MTX_GGUF_F32 || kv->type == MTX_GGUF_F64)) v = mtx_gguf_item_f64(kv, 0);
  if (!isfinite(v)) mtx_h_fail(h, MTX_EFORMAT, key, "should be a number or a list of one per layer");
  return (float)v;
}

static float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  rope.factors = mtx_g_vector_opt(g, -1, "rope_freqs", rope.n_rot / 2);
  mtx_layer l = mtx_layer_default(&rope);
  l.qk_norm = MTX_QK_NORM_ROPE;
  l.attn.scale = mtx_h_f32(h, "attention.scale", 0.0f);
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    x = mtx_g_add(g, x, mtx_block_attention(g, h, il, mtx_block_norm(g, h, il, "attn_norm", x), &l));
    float beta = curve(h, "xielu.beta", il);
    mtx_xielu c = {softplus(curve(h, "xielu.alpha_p", il)), beta + softplus(curve(h, "xielu.alpha_n", il)), beta, curve(h, "xielu.eps", il)};
    mtx_val n = mtx_block_norm(g, h, il, "ffn_norm", x);
    mtx_val up = mtx_g_matmul(g, mtx_g_matrix(g, il, "ffn_up", h->n_ff[il], h->n_embd), n, 0);
    x = mtx_g_add(g, x, mtx_g_matmul(g, mtx_g_matrix(g, il, "ffn_down", h->n_embd, h->n_ff[il]), mtx_g_xielu(g, up, &c), 0));
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_apertus = {.names = {"apertus"}, .build = build};
