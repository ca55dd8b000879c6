// SPDX-License-Identifier: MIT
// A model: its file, its weights packed for this CPU, and its plan.
//
// Opening reads the header, refuses what cannot run (architecture, types,
// shapes, memory) before any weight is touched, builds the architecture's graph
// once, compiles it to a plan and packs the weights with all threads.
// An open model is immutable and may serve several contexts.
#ifndef MTX_MODEL_MODEL_H
#define MTX_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "gguf/gguf.h"
#include "graph/plan.h"
#include "kv/kv.h"

typedef struct mtx_model mtx_model;

typedef struct mtx_model_opts {
  int n_threads;           // 0 = usable cores
  bool no_memory_check;    // load even when memory looks too small
  int64_t n_ctx;           // tokens of context that memory must suffice for beside the weights; 0 = mtx_model_context's choice
  mtx_kv_type kv_type;     // in this form
  // Called from time to time while weights are packed, done of total bytes; may be NULL.
  void (*progress)(void *user, uint64_t done, uint64_t total);
  void *user;
  const _Atomic bool *stop;  // NULL, or: once true, opening ends with MTX_ECANCELLED
  // One line per thing worth knowing (unused tensors, odd values); may be NULL.
  void (*warn)(void *user, const char *line);
} mtx_model_opts;

mtx_code mtx_model_open(mtx_model **out, const char *path, const mtx_model_opts *opts, mtx_err *err);
// The same on an opened file, which the model owns from then on, also when this fails.
mtx_code mtx_model_open_file(mtx_model **out, mtx_gguf *file, const mtx_model_opts *opts, mtx_err *err);
void mtx_model_close(mtx_model *m);

typedef struct mtx_model_info {
  char arch[64];
  uint64_t n_params, file_bytes, weight_bytes;  // weight_bytes: packed, resident
  int32_t n_vocab, n_layer, n_embd, n_ctx_train;
  bool has_logits;         // false: an encoder, rows give embeddings of width n_out
  bool causal;             // false: a sequence must be evaluated whole, in one step
  bool recurrent;          // has recurrent state
  int32_t pooling;         // GGUF pooling_type: -1 unknown, 0 none, 1 mean, 2 cls, 3 last, 4 rank
  int32_t n_out;           // width of an output row (n_vocab or n_embd)
  int32_t n_embed;         // width of an embedding: of the hidden state, or of an encoder's row; 0 = neither
} mtx_model_info;

// The context of a model when nobody asks for one: what it was trained with, at most 4096 tokens.
int64_t mtx_model_context(int32_t n_ctx_train);
const mtx_model_info *mtx_model_get_info(const mtx_model *m);
// Differs for every model that this process opens, unlike its address.
uint64_t mtx_model_id(const mtx_model *m);
const mtx_gguf *mtx_model_gguf(const mtx_model *m);
const mtx_plan *mtx_model_plan(const mtx_model *m);
// Layout of the KV cache this model needs (type left at F16 for the caller to set).
const mtx_kv_layout *mtx_model_kv_layout(const mtx_model *m);

// Names of the architectures this build knows, NULL-terminated.
const char *const *mtx_model_architectures(void);

#endif
