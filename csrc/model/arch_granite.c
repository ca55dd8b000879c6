// SPDX-License-Identifier: MIT
// granite and granitemoe: Granite 3; granitehybrid: Granite 4, with Mamba-2 mixers in most layers; minicpm: MiniCPM
// 1 and 2. Llama's shape with scales for embeddings, residuals, scores and logits.
#include <math.h>
#include <string.h>

#include "model/arch.h"

static mtx_val mamba2(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) { return mtx_block_mamba2(g, h, il, x, true); }

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  rope.factors = mtx_g_vector_opt(g, -1, "rope_freqs", rope.n_rot / 2);
  bool minicpm = strcmp(h->arch, "minicpm") == 0;
  // MiniCPM's files before these keys existed: its published constants (scale_emb 12, scale_depth 1.4, dim_model_base 256: the
  // head's input is divided by n_embd / 256). llama.cpp had these too until it gave MiniCPM Granite's graph, which divides by
  // their default 256 / n_embd and so turns that scale upside down.
  float embed_scale = mtx_h_f32(h, "embedding_scale", minicpm ? 12.0f : 1.0f);
  float logit_scale = mtx_h_f32(h, "logit_scale", minicpm ? (float)h->n_embd / 256.0f : 1.0f);
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, true);
  mtx_layer l = mtx_layer_default(mtx_h_bool(h, "rope.scaling.finetuned", true) ? &rope : NULL);
  l.residual_scale = mtx_h_f32(h, "residual_scale", minicpm ? 1.4f / sqrtf((float)h->n_layer) : 1.0f);
  l.attn.scale = mtx_h_f32(h, "attention.scale", 0.0f);
  if (h->n_expert) l.experts = &e;
  if (logit_scale == 0.0f) mtx_h_fail(h, MTX_EFORMAT, "logit_scale", "logits cannot be divided by 0");
  mtx_val x = mtx_block_embed(g, h, embed_scale);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    l.mixer = h->n_head_kv[il] ? NULL : mamba2;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_g_scale(g, mtx_block_head(g, h, x), 1.0f / logit_scale, 0.0f);
}

const mtx_arch mtx_arch_granite = {.names = {"granite", "granitemoe", "granitehybrid", "minicpm"}, .build = build};
