// SPDX-License-Identifier: MIT
// The plan of a model: flat steps, buffers and weights; what a backend runs.
//
// A value is a slice [off, off+n) of the rows of a buffer. A buffer has a domain
// that says how many rows it has in a step: every row, only the wanted rows, one
// row per (row, chosen expert), or those wanted rows that want logits (they come
// first among the wanted ones; the others want the hidden state only). The number of rows is a run-time argument, so
// a plan is compiled once per model. Built with graph.h; see ops.def for the ops.
#ifndef MTX_GRAPH_PLAN_H
#define MTX_GRAPH_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/gguf.h"
#include "kern/kern.h"
#include "kern/vec.h"
#include "kv/kv.h"

typedef enum {
#define X(name, text) MTX_OP_##name,
#include "graph/ops.def"
#undef X
  MTX_OP_COUNT
} mtx_op;

const char *mtx_op_name(mtx_op op);

typedef enum { MTX_DOM_ROWS, MTX_DOM_OUTS, MTX_DOM_SLOTS, MTX_DOM_HEAD, MTX_DOM_COUNT } mtx_domain;

typedef int mtx_val;  // index into mtx_plan.val; 0 = none
typedef int mtx_wid;  // index into mtx_plan.weight; 0 = none

typedef struct mtx_plan_buf {
  mtx_domain dom;
  int64_t n;              // floats in a row (also the row stride)
  int first, last;        // steps that write it first and touch it last
  int64_t off;            // float offset of a row block: address = base + off * rows capacity
  bool output, hidden;    // the plan's result, the state before the head: live in the caller's memory
} mtx_plan_buf;

typedef struct mtx_plan_val {
  int buf;
  int32_t off, n;
} mtx_plan_val;

typedef enum { MTX_WEIGHT_MATRIX = 1, MTX_WEIGHT_VECTOR = 2, MTX_WEIGHT_ROWS = 4 } mtx_weight_use;

// A tensor as the plan uses it. Matrices are packed (a 3-D tensor is n_mats of
// them: experts or heads), vectors are decoded to f32, embedding rows are read
// from the file's own bytes.
typedef struct mtx_plan_weight {
  const mtx_gguf_tensor *tensor;
  const mtx_qtype *type;
  unsigned use;
  int64_t n_out, k;
  int n_mats;
  mtx_weight *mat;        // n_mats entries, filled by the model when it packs
  float *vec;             // all elements as f32, ditto
} mtx_plan_weight;

typedef enum { MTX_ROPE_NORM, MTX_ROPE_NEOX } mtx_rope_mode;

// Rotary embedding. theta_i = pos * base^(-2i/n_rot) / factor_i, scaled as YaRN
// says (Peng et al. 2023, "YaRN"); ext = 0 leaves plain linear scaling.
typedef struct mtx_rope {
  mtx_rope_mode mode;
  int n_rot;              // rotated floats of a head (even)
  float base, scale;      // scale multiplies positions (1 / linear factor)
  float ext, attn, beta_fast, beta_slow;
  int n_ctx_orig;
  mtx_wid factors;        // n_rot/2 divisors, or none
} mtx_rope;

typedef struct mtx_attn {
  int n_head, n_head_kv, dk, dv;
  float scale;            // multiplies scores
  float softcap;          // 0 = off: s = c * tanh(s / c)
  float alibi_max_bias;   // 0 = off
  int window;             // 0 = all; else a row sees the last `window` tokens, itself included
  bool chunked;           // windows stand side by side instead of sliding: a row sees its own down to its first token
  bool causal;
  mtx_wid sinks;          // [n_head] extra logits in the softmax's sum, or none
} mtx_attn;

typedef enum { MTX_GATE_SOFTMAX, MTX_GATE_SIGMOID, MTX_GATE_SOFTMAX_SELECTED } mtx_gate;

typedef struct mtx_moe {
  int n_expert, n_used;
  mtx_gate gate;
  bool norm;              // divide chosen weights by their sum
  float scale;            // multiplies them afterwards (1 = none)
  mtx_wid select_bias;    // [n_expert] added for choosing only, or none
  mtx_wid expert_scale;   // [n_expert] multiplies the weight of each in the end, or none
  int n_group, n_group_used;  // group-limited choice (DeepSeek-V3): 0 = off
  float glu_limit;        // gpt-oss: see mtx_g_glu_clamped; 0 = off
  bool weigh_input;       // Llama 4: weights multiply what goes into an expert, not what comes out
} mtx_moe;

enum { MTX_STEP_MAX_IN = 8, MTX_STEP_MAX_W = 4 };

typedef struct mtx_step_desc {
  mtx_op op;
  mtx_val in[MTX_STEP_MAX_IN];
  mtx_val out[MTX_STEP_MAX_W];   // one, except merged matmuls
  mtx_wid w[MTX_STEP_MAX_W], b[MTX_STEP_MAX_W];
  bool accumulate[MTX_STEP_MAX_W];
  int n_w;                       // merged matmuls
  mtx_val glu;                   // matmul of two: unary(out[0]) * out[1], or none
  mtx_val encoded;               // the output (glu's, if there is one) encoded as MTX_ACT_Q8, or none
  // Work that need not wait for all threads (compile.c finds it, a backend may use it): a step whose result only
  // the matmul behind it reads, so that with few rows every thread can make that for itself; a step that gives
  // every head of the attention behind it what the same head needs, so that with single rows it is done head by
  // head there. An attention step has n_own_heads of these right before it.
  bool own_rows, own_heads;
  int n_own_heads;
  mtx_unary unary;
  int64_t n, m, heads, head_n, head_off;  // per op, see ops.def
  float f[4];
  int flag;
  int kv_layer;                  // attention steps
  int64_t state_off;             // recurrent steps: byte offset in the sequence's state
  union { mtx_rope rope; mtx_attn attn; mtx_moe moe; } u;
} mtx_step_desc;

typedef struct mtx_plan {
  int n_steps, n_vals, n_bufs, n_weights;
  mtx_step_desc *step;
  mtx_plan_val *val;
  mtx_plan_buf *buf;
  mtx_plan_weight *weight;
  int64_t floats[MTX_DOM_COUNT]; // floats a row of each domain needs, lifetimes shared
  int n_slots;                   // slots per row (experts used), 0 = no experts
  mtx_val output;                // [outs or head rows, n_out]
  mtx_val hidden;                // [outs, n_embd] what the vocabulary head reads; 0 = no such head
  mtx_kv_layout kv;
  bool causal, recurrent;
} mtx_plan;

void mtx_plan_free(mtx_plan *p);

#endif
