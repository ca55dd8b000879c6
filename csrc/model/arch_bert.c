// SPDX-License-Identifier: MIT
// bert: BERT, MiniLM, BGE and other encoders with learned positions.
//
// Every token sees every other, so a sequence is read in one step; the result is
// the last hidden state of each wanted token, not pooled.
#include "model/arch.h"

static mtx_val norm(mtx_graph *g, mtx_hparams *h, int il, const char *name, mtx_val x) {
  return mtx_g_layer_norm(g, x, 0, mtx_g_vector(g, il, name, h->n_embd), mtx_g_bias(g, il, name, h->n_embd), h->ln_eps);
}

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  h->causal = h->has_logits = false;
  // The original function is the exact one; llama.cpp, whose files say nothing of it, computes the tanh form.
  mtx_unary f = mtx_h_bool(h, "mtx.gelu_erf", false) ? MTX_UNARY_GELU_ERF : MTX_UNARY_GELU;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  const mtx_gguf_tensor *types = mtx_gguf_tensor_find(h->file, "token_types.weight");
  if (types)  // all tokens are of the first type
    x = mtx_g_add_vec(g, x, mtx_g_vector(g, -1, "token_types", h->n_embd * (int64_t)types->ne[1]), h->n_embd);
  x = mtx_g_add(g, x, mtx_g_embed_pos(g, mtx_g_table(g, -1, "position_embd", h->n_ctx_train, h->n_embd), 0));
  x = norm(g, h, -1, "token_embd_norm", x);
  for (int il = 0; il < h->n_layer; il++) {
    mtx_qkv a = mtx_block_qkv(g, h, il, x);
    mtx_attn p = mtx_block_attn_params(h, il, 0.0f, 0);
    p.causal = false;
    x = norm(g, h, il, "attn_output_norm", mtx_g_add(g, x, mtx_block_attn_out(g, h, il, mtx_g_attention(g, a.q, a.k, a.v, &p))));
    mtx_val up = mtx_g_matmul(g, mtx_g_matrix(g, il, "ffn_up", h->n_ff[il], h->n_embd), x, mtx_g_bias(g, il, "ffn_up", h->n_ff[il]));
    mtx_val down = mtx_g_matmul(g, mtx_g_matrix(g, il, "ffn_down", h->n_embd, h->n_ff[il]), mtx_g_unary(g, f, up),
                                mtx_g_bias(g, il, "ffn_down", h->n_embd));
    x = norm(g, h, il, "layer_output_norm", mtx_g_add(g, x, down));
  }
  return mtx_g_select(g, x);
}

const mtx_arch mtx_arch_bert = {.names = {"bert"}, .build = build};
