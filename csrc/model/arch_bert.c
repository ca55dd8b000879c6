// SPDX-License-Identifier: MIT
// bert, nomic-bert, nomic-bert-moe and jina-bert-v2: BERT, MiniLM, BGE, Nomic Embed and Jina Embeddings 2.
// Norms behind each sub-block; positions are learned, rotated in (Nomic) or ALiBi's (Jina).
// 
// Every token sees every other, so a sequence is read in one step; the result is
// the last hidden state of each wanted token, not pooled.
#include <string.h>

#include "model/arch.h"

static mtx_val feed_forward(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) {
  uint32_t every = mtx_h_u32(h, "moe_every_n_layers", 0);
  if (every > 0 && (uint32_t)il % every == 1) {
    mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, false);
    e.no_gate = true;
    return mtx_block_experts(g, h, il, x, &e, MTX_UNARY_GELU);
  }
  if (strcmp(h->arch, "nomic-bert") == 0) return mtx_block_ffn(g, h, il, x, MTX_FFN_GATED, MTX_UNARY_SILU);
  if (strcmp(h->arch, "jina-bert-v2") == 0)
    return mtx_block_ffn(g, h, il, x, mtx_g_has(g, il, "ffn_gate") ? MTX_FFN_GATED : MTX_FFN_JOINED, MTX_UNARY_GELU);
  // BERT's own function is the exact one; llama.cpp, whose files say nothing of it, computes the tanh form.
  return mtx_block_ffn(g, h, il, x, MTX_FFN_PLAIN, mtx_h_bool(h, "mtx.gelu_erf", false) ? MTX_UNARY_GELU_ERF : MTX_UNARY_GELU);
}

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  bool nomic = strncmp(h->arch, "nomic", 5) == 0, jina = strncmp(h->arch, "jina", 4) == 0;
  h->causal = h->has_logits = false;
  h->norm = MTX_NORM_LAYER;
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_layer l = mtx_layer_default(nomic ? &rope : NULL);
  if (jina) l.attn.alibi_max_bias = 8.0f;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  const mtx_gguf_tensor *types = mtx_gguf_tensor_find(h->file, "token_types.weight");
  if (types)  // all tokens are of the first type
    x = mtx_g_add_vec(g, x, mtx_g_vector(g, -1, "token_types", h->n_embd * (int64_t)types->ne[1]), h->n_embd);
  if (!nomic && !jina) x = mtx_block_add_positions(g, h, x);
  x = mtx_block_norm(g, h, -1, "token_embd_norm", x);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    if (mtx_g_has(g, il, "attn_q_norm")) l.qk_norm = MTX_QK_NORM_ROPE;
    mtx_val y = mtx_block_norm(g, h, il, "attn_output_norm", mtx_g_add(g, x, mtx_block_attention(g, h, il, x, &l)));
    if (jina && mtx_g_has(g, il, "attn_norm_2")) y = mtx_block_norm(g, h, il, "attn_norm_2", mtx_g_add(g, x, y));
    x = mtx_block_norm(g, h, il, "layer_output_norm", mtx_g_add(g, y, feed_forward(g, h, il, y)));
  }
  return mtx_g_select(g, x);
}

const mtx_arch mtx_arch_bert = {.names = {"bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2"}, .build = build};
