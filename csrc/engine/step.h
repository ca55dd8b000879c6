// SPDX-License-Identifier: MIT
// One step: rows of many sequences through the plan, in one pass.
//
// A context is a model with a KV cache, activation buffers and threads. It is
// used by one thread at a time (the engine's). There is no single-sequence path
// beside this one. The output of a row is bit-identical whatever else shares
// its step, however its sequence was cut into steps, and whatever n_threads is.
#ifndef MTX_ENGINE_STEP_H
#define MTX_ENGINE_STEP_H

#include "base/err.h"
#include "kv/kv.h"
#include "model/adapter.h"
#include "model/model.h"

typedef struct mtx_context mtx_context;

typedef struct mtx_context_opts {
  int64_t n_ctx;       // longest sequence, tokens; 0 = the smaller of 4096 and the trained length
  int64_t kv_tokens;   // budget of cached tokens over all sequences; 0 = n_ctx
  int max_seqs;        // sequences alive at once; 0 = 16
  int max_rows;        // rows in one step; 0 = 512 (encoders: at least n_ctx)
  int n_threads;       // 0 = usable cores
  mtx_kv_type kv_type;
} mtx_context_opts;

mtx_code mtx_context_open(mtx_context **out, const mtx_model *m, const mtx_context_opts *opts, mtx_err *err);
void mtx_context_close(mtx_context *c);

mtx_kv *mtx_context_kv(mtx_context *c);   // sequences are made, forked, cut and freed there
int64_t mtx_context_n_ctx(const mtx_context *c);
int mtx_context_max_rows(const mtx_context *c);
void mtx_context_set_threads(mtx_context *c, int n_threads);

typedef struct mtx_row {
  int32_t token;
  int32_t seq;         // rows of one sequence stand together, in order of position,
                       // starting at mtx_kv_seq_len(seq)
  uint8_t want;        // mtx_want: what is wanted of it
  const mtx_lora *lora;  // adapters of its sequence, NULL = none; the same in all rows a sequence ever has
} mtx_row;

// An encoder's output is its hidden state: there MTX_WANT_OUTPUT is the only want.
typedef enum { MTX_WANT_NOTHING, MTX_WANT_OUTPUT, MTX_WANT_HIDDEN } mtx_want;

// Evaluates rows and appends them to their sequences. `*outputs` points to the
// wanted rows in order, n_out floats each, valid until the next call. Nothing is
// changed on error: MTX_ELIMIT (rows, context length or pages; says which with
// numbers), MTX_EINVAL (token or sequence out of range, rows out of order). MTX_EIO:
// the model's file was cut short while mapped; the step's rows are worthless.
mtx_code mtx_context_step(mtx_context *c, const mtx_row *rows, int n_rows, const float **outputs, mtx_err *err);
// The rows of the last step that wanted the hidden state (what the vocabulary head
// reads: after the last norm), in order, n_embed floats each; valid as `outputs` are.
const float *mtx_context_hidden(const mtx_context *c);

// Profile: nanoseconds spent per op kind since the last take (as thread 0 saw
// them), for `mtx bench --profile`. Names are static strings.
typedef struct mtx_profile_row { const char *op; uint64_t ns, calls, bytes; } mtx_profile_row;
void mtx_context_profile(mtx_context *c, bool on);
int mtx_context_profile_take(mtx_context *c, mtx_profile_row *rows, int cap);

#endif
