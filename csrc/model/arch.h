// SPDX-License-Identifier: MIT
// What an architecture file exports, and the blocks most of them share.
//
// A new architecture is one file csrc/model/arch_NAME.c that defines
//   const mtx_arch mtx_arch_NAME = {.names = {"name"}, .build = build};
// The build finds it by its file name; nothing else is edited.
#ifndef MTX_MODEL_ARCH_H
#define MTX_MODEL_ARCH_H

#include "graph/graph.h"
#include "model/hparams.h"

typedef struct mtx_arch {
  const char *names[8];  // values of general.architecture, NULL-terminated
  // Builds the graph and returns the result value: logits, or embeddings when it
  // sets h->has_logits = false. Sets h->causal = false for encoders.
  mtx_val (*build)(mtx_graph *g, mtx_hparams *h);
} mtx_arch;

// Token embeddings [n_embd], times `scale`.
mtx_val mtx_block_embed(mtx_graph *g, mtx_hparams *h, float scale);
// Wanted rows -> rms norm "output_norm" -> "output" (or the tied embedding table).
mtx_val mtx_block_head(mtx_graph *g, mtx_hparams *h, mtx_val x);
// The projection part of the head alone.
mtx_val mtx_block_logits(mtx_graph *g, mtx_hparams *h, mtx_val x);

typedef struct mtx_qkv {
  mtx_val q, k, v;  // [n_head*dk], [n_head_kv*dk], [n_head_kv*dv]
} mtx_qkv;
// "attn_q", "attn_k", "attn_v" with optional biases.
mtx_qkv mtx_block_qkv(mtx_graph *g, mtx_hparams *h, int il, mtx_val x);
// Rotates q and k over whole heads (dk apart, from 0).
void mtx_block_rope_qk(mtx_graph *g, mtx_hparams *h, int il, mtx_qkv *a, const mtx_rope *r);
// Plain causal attention of layer il; scale 0 = 1/sqrt(dk).
mtx_attn mtx_block_attn_params(const mtx_hparams *h, int il, float scale, int window);
// "attn_output" with optional bias.
mtx_val mtx_block_attn_out(mtx_graph *g, mtx_hparams *h, int il, mtx_val x);
// down(f(gate x) * up x), tensors "ffn_gate", "ffn_up", "ffn_down".
mtx_val mtx_block_ffn(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, mtx_unary f);
// The same with "ffn_gate_shexp" and so on, n_ff wide: the expert every token uses.
mtx_val mtx_block_shared_expert(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, int n_ff, mtx_unary f);
// Routed experts "ffn_gate_inp", "ffn_{gate,up,down}_exps" (or joined "ffn_gate_up_exps") of n_ff floats.
mtx_val mtx_block_moe(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, int n_ff, mtx_unary f, mtx_moe m);
// rms norm of the whole row with "blk.il.NAME.weight".
mtx_val mtx_block_norm(mtx_graph *g, mtx_hparams *h, int il, const char *name, mtx_val x);

#endif
