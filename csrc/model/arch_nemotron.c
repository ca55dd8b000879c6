// SPDX-License-Identifier: MIT
// nemotron: Nemotron 3 and 4, Minitron. Layer norms, half of each head rotated, squared ReLU without a gate.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  h->norm = MTX_NORM_LAYER;
  mtx_layer l = mtx_layer_default(&rope);
  l.ffn = MTX_FFN_PLAIN;
  l.act = MTX_UNARY_RELU2;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_nemotron = {.names = {"nemotron"}, .build = build};
