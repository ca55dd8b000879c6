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

// ---- pieces -------------------------------------------------------------------

// Token embeddings [n_embd], times `scale`.
mtx_val mtx_block_embed(mtx_graph *g, mtx_hparams *h, float scale);
// Adds row pos of the table "position_embd" (learned positions).
mtx_val mtx_block_add_positions(mtx_graph *g, mtx_hparams *h, mtx_val x);
// Wanted rows -> norm "output_norm" -> "output" (or the tied embedding table).
mtx_val mtx_block_head(mtx_graph *g, mtx_hparams *h, mtx_val x);
// The projection part of the head alone.
mtx_val mtx_block_logits(mtx_graph *g, mtx_hparams *h, mtx_val x);

typedef struct mtx_qkv {
  mtx_val q, k, v;  // [n_head*dk], [n_head_kv*dk], [n_head_kv*dv]
} mtx_qkv;
// "attn_q", "attn_k", "attn_v", or all three as "attn_qkv"; optional biases.
mtx_qkv mtx_block_qkv(mtx_graph *g, mtx_hparams *h, int il, mtx_val x);
// Rotates q and k over whole heads (dk apart, from 0).
void mtx_block_rope_qk(mtx_graph *g, mtx_hparams *h, int il, mtx_qkv *a, const mtx_rope *r);
// Plain causal attention of layer il; scale 0 = 1/sqrt(dk).
mtx_attn mtx_block_attn_params(const mtx_hparams *h, int il, float scale, int window);
// "attn_output" with optional bias.
mtx_val mtx_block_attn_out(mtx_graph *g, mtx_hparams *h, int il, mtx_val x);
// Norm (h->norm) of the whole row with "blk.il.NAME.weight" and, if there is one, its bias.
mtx_val mtx_block_norm(mtx_graph *g, mtx_hparams *h, int il, const char *name, mtx_val x);

typedef enum {
  MTX_FFN_GATED,   // down(f(gate x) * up x)
  MTX_FFN_JOINED,  // the same, "ffn_up" holds the rows of gate, then those of up
  MTX_FFN_PLAIN,   // down(f(up x))
} mtx_ffn_kind;
// Tensors "ffn_gate", "ffn_up", "ffn_down" with optional biases, n_ff[il] wide.
mtx_val mtx_block_ffn(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, mtx_ffn_kind kind, mtx_unary f);

// Experts of a layer: "ffn_gate_inp" routes to "ffn_{gate,up,down}_exps" (or joined "ffn_gate_up_exps");
// "ffn_{gate,up,down}_shexp" are used by every token.
typedef struct mtx_experts {
  mtx_moe route;           // experts and biases are filled in by the block
  int n_ff, n_ff_shared;   // floats of an expert and of the shared ones together (0 = none)
  int n_dense;             // leading layers that have none
  bool no_gate;            // plain feed-forward: down(f(up x))
  bool latent;             // routed ones work between "ffn_latent_down" and "ffn_latent_up" (Nemotron)
} mtx_experts;
// The usual keys (expert_*, leading_dense_block_count), nothing where the file has no experts; gate and norm are what a file without those keys means.
mtx_experts mtx_experts_read(mtx_hparams *h, mtx_gate gate, bool norm);
// The routed ones alone, for logits [n_expert] made elsewhere.
mtx_val mtx_block_routed(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, mtx_val logits, const mtx_experts *e, mtx_unary f);
mtx_val mtx_block_experts(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, const mtx_experts *e, mtx_unary f);

// ---- recurrent layers -----------------------------------------------------------

// Mamba-2 and Mamba-1 mixers of layer il, settings from ssm.*; "ssm_norm" is a norm in groups.
mtx_val mtx_block_mamba2(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, bool has_norm);
// Mamba-1's norms of dt, B and C: none, with weights (Jamba), without (Falcon Mamba).
typedef enum { MTX_MAMBA_AS_IS, MTX_MAMBA_NORM, MTX_MAMBA_NORM_BARE } mtx_mamba_norm;
mtx_val mtx_block_mamba1(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, mtx_mamba_norm norm);

// ---- a whole layer in switches ----------------------------------------------------

typedef enum { MTX_QK_AS_IS, MTX_QK_NORM_ROPE, MTX_QK_ROPE_NORM, MTX_QK_ROPE_NORM_BARE } mtx_qk_norm;  // bare: without weights

// x + post(attention or mixer(norm x)), then the same with the feed-forward network.
typedef struct mtx_layer {
  const char *attn_norm, *attn_post_norm, *ffn_norm, *ffn_post_norm;  // tensors; NULL = no such norm
  bool parallel;            // the feed-forward network reads the layer's input too (without ffn_norm: attn_norm's output)
  float residual_scale;     // of what is added to x
  const mtx_rope *rope;     // NULL = positions are not rotated in
  mtx_qk_norm qk_norm;      // "attn_q_norm", "attn_k_norm": over heads or whole rows, as the tensor is wide
  float clamp_qkv;          // 0 = off
  mtx_temperature temperature;  // of queries; scale 0 = off
  bool out_gate;            // what attention gives is multiplied by sigmoid("attn_gate" of its input)
  mtx_attn attn;            // scale (0 = 1/sqrt(dk)), softcap, alibi_max_bias, window, chunked, sinks; the rest is filled in
  // Instead of attention: a recurrent mixer; NULL = none.
  mtx_val (*mixer)(mtx_graph *g, mtx_hparams *h, int il, mtx_val x);
  mtx_ffn_kind ffn;
  mtx_unary act;
  const mtx_experts *experts;  // NULL = dense
} mtx_layer;
// Llama's: norms "attn_norm" and "ffn_norm" in front, gated SiLU.
mtx_layer mtx_layer_default(const mtx_rope *rope);
// Norms behind attention and the feed-forward network, by their usual names.
void mtx_layer_post_norms(mtx_layer *l);
mtx_val mtx_block_attention(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, const mtx_layer *l);
mtx_val mtx_block_layer(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, const mtx_layer *l);
// All layers alike (the leading ones dense, if experts say so), then the head.
mtx_val mtx_block_decoder(mtx_graph *g, mtx_hparams *h, mtx_val x, const mtx_layer *l);

#endif
