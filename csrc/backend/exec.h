// SPDX-License-Identifier: MIT
// What one step hands to a backend: the plan, the rows, where their memory is.
#ifndef MTX_BACKEND_EXEC_H
#define MTX_BACKEND_EXEC_H

#include <stdint.h>

#include "base/err.h"
#include "graph/lora.h"
#include "graph/plan.h"

// The rows of one sequence in this step: [row0, row0 + n_rows), positions from pos0.
typedef struct mtx_exec_seq {
  int row0, n_rows;
  int64_t pos0;
  uint8_t *const *pages[MTX_KV_MAX_GROUPS];
  uint8_t *state;                  // recurrent state, or NULL
  const mtx_lora *lora;            // its adapters, or NULL
} mtx_exec_seq;

typedef struct mtx_exec {
  int n_rows, n_outs, n_head, n_seqs;
  bool lora;                       // some sequence has adapters
  const int32_t *token, *pos;      // [n_rows]
  const int32_t *row_seq;          // [n_rows] index into seq
  const mtx_exec_seq *seq;
  const int32_t *out_row;          // [n_outs] rows whose result is wanted; the first n_head want logits
  float *outputs;                  // [n_head (plans without hidden: n_outs), width of plan->output]
  float *hidden;                   // [n_outs, width of plan->hidden]
} mtx_exec;

typedef struct mtx_backend mtx_backend;

// One profile entry per op kind.
typedef struct mtx_backend_profile { uint64_t ns[MTX_OP_COUNT], calls[MTX_OP_COUNT], bytes[MTX_OP_COUNT]; } mtx_backend_profile;

struct mtx_backend {
  const char *name;
  // Runs the whole plan. The arguments are already checked; cannot fail.
  void (*run)(mtx_backend *b, const mtx_exec *x);
  void (*set_threads)(mtx_backend *b, int n);
  // Before a run in which some sequence has adapters; row_floats: the most of them (mtx_lora).
  mtx_code (*use_lora)(mtx_backend *b, int64_t row_floats, mtx_err *err);
  void (*close)(mtx_backend *b);
  uint64_t bytes;                  // buffers held
  mtx_backend_profile *profile;    // NULL = off; owned by the caller
};

// Buffers for up to max_rows rows. The plan must outlive the backend.
mtx_code mtx_backend_open_cpu(mtx_backend **out, const mtx_plan *p, int max_rows, int n_threads, mtx_err *err);

#endif
