// SPDX-License-Identifier: MIT
// Inside the builder: shared by graph.c (weights, values), graph_*.c (ops) and
// compile.c (plan). Not for anyone else.
#ifndef MTX_GRAPH_GRAPH_BUILD_H
#define MTX_GRAPH_GRAPH_BUILD_H

#include "graph/graph.h"

struct mtx_graph {
  const mtx_gguf *file;
  mtx_plan *plan;
  mtx_err err;              // sticky: err.code != 0 once something failed
  int cap_steps, cap_vals, cap_bufs, cap_weights;
  uint8_t *tensor_used;     // one flag per tensor of the file
  int rope_steps[8], n_rope_steps;  // ROPE_TABLE steps made so far, one per distinct setting
};

// A fresh buffer and the value that covers it.
mtx_val mtx_gb_new(mtx_graph *g, mtx_domain dom, int64_t n);
// Appends a zeroed step; returns a scratch step after an error, so callers may fill it.
mtx_step_desc *mtx_gb_step(mtx_graph *g, mtx_op op);
mtx_domain mtx_gb_domain(mtx_graph *g, mtx_val v);
bool mtx_gb_bad(const mtx_graph *g);
// False, with an error that names the op, when its shapes do not fit; false after any earlier error.
bool mtx_gb_check(mtx_graph *g, bool ok, const char *what);
// Appends a one-input step whose output is a fresh row of n floats in x's domain.
mtx_step_desc *mtx_gb_step1(mtx_graph *g, mtx_op op, mtx_val x, int64_t n, mtx_val *out);
// The form in which w multiplies; x in that form: x itself, or its (cached) encoding.
mtx_act_format mtx_gb_act(mtx_graph *g, mtx_wid w);
mtx_val mtx_gb_encoded(mtx_graph *g, mtx_val x, mtx_act_format act);

mtx_code mtx_plan_compile(mtx_plan *p, mtx_err *err);

#endif
