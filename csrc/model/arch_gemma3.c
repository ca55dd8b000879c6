// SPDX-License-Identifier: MIT
// gemma3: Gemma 3. Five sliding-window layers for each global one, two rotary bases, norms before and after
// each sub-block, tied output. gemma-embedding: EmbeddingGemma, the same as an encoder with symmetric windows; result as in bert.
#include <math.h>
#include <string.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  bool encoder = strcmp(h->arch, "gemma-embedding") == 0;
  if (encoder) h->causal = h->has_logits = false;
  mtx_rope global = h->rope;
  global.mode = MTX_ROPE_NEOX;
  mtx_rope local = global;
  local.base = mtx_h_f32(h, "rope.freq_base_swa", 10000.0f);
  local.scale = 1.0f;
  mtx_layer l = mtx_layer_default(&global);
  mtx_layer_post_norms(&l);
  l.qk_norm = MTX_QK_NORM_ROPE;
  l.act = MTX_UNARY_GELU;
  // llama.cpp takes the scale from the layer count: the 27B model (62 layers) divides by its hidden size per head.
  // Model folders say it (query_pre_attn_scalar).
  l.attn.scale = mtx_h_f32(h, "attention.scale", h->n_layer == 62 && h->n_head[0] ? 1.0f / sqrtf((float)(h->n_embd / h->n_head[0])) : 0.0f);
  float softcap = mtx_h_f32(h, "final_logit_softcapping", 0.0f);

  mtx_val x = mtx_block_embed(g, h, sqrtf((float)h->n_embd));
  for (int il = 0; il < h->n_layer; il++) {
    bool is_local = mtx_h_local(h, il, 6);
    l.rope = is_local ? &local : &global;
    l.attn.window = is_local ? h->window : 0;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  if (encoder) return mtx_block_norm(g, h, -1, "output_norm", mtx_g_select(g, x));
  mtx_val logits = mtx_block_head(g, h, x);
  return softcap != 0.0f ? mtx_g_softcap(g, logits, softcap) : logits;
}

const mtx_arch mtx_arch_gemma3 = {.names = {"gemma3", "gemma-embedding"}, .build = build};
