// SPDX-License-Identifier: MIT
// The builder an architecture file uses: names tensors, strings ops together.
//
// Errors stick: after the first one every call returns 0 and does nothing, and
// mtx_graph_finish reports it, so architecture files need no checks of their own.
// Shapes are checked at every call. Layer numbers: il >= 0 names "blk.<il>.NAME",
// il < 0 names "NAME".
#ifndef MTX_GRAPH_GRAPH_H
#define MTX_GRAPH_GRAPH_H

#include "base/err.h"
#include "gguf/gguf.h"
#include "graph/plan.h"

typedef struct mtx_graph mtx_graph;

// ---- weights ---------------------------------------------------------------
// "NAME.weight" as a matrix of n_out rows of k; the _opt forms return 0 when absent.
mtx_wid mtx_g_matrix(mtx_graph *g, int il, const char *name, int64_t n_out, int64_t k);
mtx_wid mtx_g_matrix_opt(mtx_graph *g, int il, const char *name, int64_t n_out, int64_t k);
// A stack of n matrices (experts, heads): dims [k, n_out, n].
mtx_wid mtx_g_matrices(mtx_graph *g, int il, const char *name, int64_t n_mats, int64_t n_out, int64_t k);
// "NAME.weight" / "NAME.bias" as n floats; bias is optional: 0 when absent.
mtx_wid mtx_g_vector(mtx_graph *g, int il, const char *name, int64_t n);
mtx_wid mtx_g_vector_opt(mtx_graph *g, int il, const char *name, int64_t n);
mtx_wid mtx_g_bias(mtx_graph *g, int il, const char *name, int64_t n);
// A tensor by its exact suffix ("ssm_a", no ".weight" added), n floats in all.
mtx_wid mtx_g_floats(mtx_graph *g, int il, const char *name, int64_t n, bool required);
// The one number of a tensor by its exact suffix, read now; absent: `def`.
float mtx_g_number(mtx_graph *g, int il, const char *name, float def);
// An embedding table [n_rows, n]: looked up by row, and usable as matrix (tied output).
mtx_wid mtx_g_table(mtx_graph *g, int il, const char *name, int64_t n_rows, int64_t n);
bool mtx_g_has(mtx_graph *g, int il, const char *name);  // is "NAME.weight" in the file?
// Marks a tensor of the file as known but not needed, so that no warning names it.
void mtx_g_ignore(mtx_graph *g, int il, const char *name);
// Fails the build: the file asks for something this architecture's code does not do.
void mtx_g_fail(mtx_graph *g, mtx_code code, const char *key, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

// ---- ops: widths are floats per row -----------------------------------------
mtx_val mtx_g_embed(mtx_graph *g, mtx_wid table, float scale);
mtx_val mtx_g_embed_pos(mtx_graph *g, mtx_wid table, int offset);   // learned positions
mtx_val mtx_g_view(mtx_graph *g, mtx_val x, int64_t off, int64_t n);
mtx_val mtx_g_matmul(mtx_graph *g, mtx_wid w, mtx_val x, mtx_wid bias);
// Head h (of n_mats): out[h*n_out ..] = mat h * x[h*head_n + head_off ..+ k].
mtx_val mtx_g_matmul_heads(mtx_graph *g, mtx_wid w, mtx_val x, int64_t head_n, int64_t head_off);
// chunk = floats normalised together (0 = the whole row); w, b have chunk or the row's length.
mtx_val mtx_g_rms_norm(mtx_graph *g, mtx_val x, int64_t chunk, mtx_wid w, float eps);
mtx_val mtx_g_layer_norm(mtx_graph *g, mtx_val x, int64_t chunk, mtx_wid w, mtx_wid b, float eps);
mtx_val mtx_g_l2_norm(mtx_graph *g, mtx_val x, int64_t chunk, float eps);
mtx_val mtx_g_unary(mtx_graph *g, mtx_unary f, mtx_val x);
mtx_val mtx_g_glu(mtx_graph *g, mtx_unary f, mtx_val gate, mtx_val up);
// gpt-oss: f(min(gate, limit)) * (clamp(up, -limit, limit) + 1).
mtx_val mtx_g_glu_clamped(mtx_graph *g, mtx_unary f, mtx_val gate, mtx_val up, float limit);
mtx_val mtx_g_add(mtx_graph *g, mtx_val a, mtx_val b);
mtx_val mtx_g_mul(mtx_graph *g, mtx_val a, mtx_val b);        // b may be heads wide: one factor per chunk of a
mtx_val mtx_g_scale(mtx_graph *g, mtx_val x, float mul, float add);
mtx_val mtx_g_softcap(mtx_graph *g, mtx_val x, float cap);
mtx_val mtx_g_clamp(mtx_graph *g, mtx_val x, float lo, float hi);
// xIELU: pos x^2 + linear x above 0, neg (exp(min(x, eps)) - 1 - x) + linear x below.
typedef struct mtx_xielu { float pos, neg, linear, eps; } mtx_xielu;
mtx_val mtx_g_xielu(mtx_graph *g, mtx_val x, const mtx_xielu *c);
mtx_val mtx_g_mul_vec(mtx_graph *g, mtx_val x, mtx_wid v, int64_t chunk);
mtx_val mtx_g_add_vec(mtx_graph *g, mtx_val x, mtx_wid v, int64_t chunk);
// A fresh row of n floats to be filled piecewise with mtx_g_copy_into (each float once).
mtx_val mtx_g_alloc(mtx_graph *g, int64_t n);
// For h < heads: dst[h*dst_head + dst_off ..+n] = x[h*x_head ..+n]; x_head 0 = the same n floats for all.
void mtx_g_copy_into(mtx_graph *g, mtx_val dst, int64_t dst_head, int64_t dst_off, mtx_val x, int64_t x_head, int64_t n, int64_t heads);
// Rotates r->n_rot floats of each head from head_off on; heads lie head_n apart.
mtx_val mtx_g_rope(mtx_graph *g, mtx_val x, int64_t heads, int64_t head_n, int64_t head_off, const mtx_rope *r);
// Queries made sharper with their position, for long contexts: x * (1 + scale * log(1 + floor((pos + offset) / every))).
typedef struct mtx_temperature { float scale, every, offset; } mtx_temperature;
mtx_val mtx_g_temperature(mtx_graph *g, mtx_val x, const mtx_temperature *t);
// Stores k, v and attends: q [n_head*dk], k [n_head_kv*dk], v [n_head_kv*dv] -> [n_head*dv].
mtx_val mtx_g_attention(mtx_graph *g, mtx_val q, mtx_val k, mtx_val v, const mtx_attn *a);
// Attends to what an earlier attention stored: `nth` of them, counted from 0.
mtx_val mtx_g_attention_shared(mtx_graph *g, mtx_val q, int nth, const mtx_attn *a);
mtx_val mtx_g_select(mtx_graph *g, mtx_val x);                // wanted rows only, from here on
void mtx_g_hidden(mtx_graph *g, mtx_val x);                   // x is the last hidden state: what follows makes logits of it
// Experts: stacks of matrices (mtx_g_matrices) and optional biases [n_expert, n_out]. gate 0: up holds gate and up
// rows (n_out twice down's k), or there is no gate: unary(up).
typedef struct mtx_expert_weights { mtx_wid gate, up, down, gate_bias, up_bias, down_bias; } mtx_expert_weights;
mtx_val mtx_g_moe(mtx_graph *g, mtx_val x, mtx_val router_logits, const mtx_moe *m, mtx_unary f, const mtx_expert_weights *w);
// Recurrent ops take their part of the sequence's state on their own.
mtx_val mtx_g_conv(mtx_graph *g, mtx_val x, mtx_wid taps, int n_taps, mtx_wid bias, bool silu);
// Mamba scan: x [n_head*head_n], dt [n_head], B and C [n_group*n_state]; A has a value per head (Mamba-2) or per
// head and state (Mamba-1, whose heads are single floats).
mtx_val mtx_g_ssm_scan(mtx_graph *g, mtx_val x, mtx_val dt, mtx_val B, mtx_val C, mtx_wid A, mtx_wid D, mtx_wid dt_bias,
                       int n_head, int n_group, int n_state);
// Gated delta rule per head: S = exp(gate) S; S += k (beta (v - S^T k))^T; out = S^T q.
// q, k [n_head*dk] (already normalised, q scaled), v [n_head*dv], gate, beta [n_head].
mtx_val mtx_g_delta_rule(mtx_graph *g, mtx_val q, mtx_val k, mtx_val v, mtx_val gate, mtx_val beta, int n_head, int dk, int dv);

int64_t mtx_g_width(const mtx_graph *g, mtx_val x);

// ---- whole graphs ------------------------------------------------------------
mtx_graph *mtx_graph_new(const mtx_gguf *f);
// Declares the result and compiles: merges, lifetimes, offsets. On success *out owns
// everything; on failure it is NULL. The graph is freed either way. unused (may be
// NULL) is called with the name of every tensor of the file that no weight refers to.
mtx_code mtx_graph_finish(mtx_graph *g, mtx_val result, bool causal, void (*unused)(void *user, mtx_str name), void *user,
                          mtx_plan **out, mtx_err *err);

#endif
