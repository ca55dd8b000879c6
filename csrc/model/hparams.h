// SPDX-License-Identifier: MIT
// Hyperparameters of a model, read from "<architecture>.KEY" metadata.
//
// The ones most architectures share are read and checked once, in open; the rest
// an architecture asks for by key. Errors stick, as in graph.h.
#ifndef MTX_MODEL_HPARAMS_H
#define MTX_MODEL_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "gguf/gguf.h"
#include "graph/graph.h"

enum { MTX_MAX_LAYERS = 512 };

typedef enum { MTX_NORM_RMS, MTX_NORM_LAYER, MTX_NORM_LAYER_BARE } mtx_norm_kind;  // bare: without weights

typedef struct mtx_hparams {
  const mtx_gguf *file;
  mtx_err err;                    // sticky
  char arch[64];
  int n_layer, n_embd, n_vocab, n_ctx_train;
  int n_head[MTX_MAX_LAYERS];     // 0 in layers without attention
  int n_head_kv[MTX_MAX_LAYERS];
  int n_ff[MTX_MAX_LAYERS];
  int dk, dv;                     // floats per head of keys and values
  float rms_eps, ln_eps;          // 0 when absent
  int n_expert, n_expert_used;
  int window;                     // attention.sliding_window, 0 = none
  mtx_rope rope;                  // mode left to the architecture
  // What an architecture declares about itself while it builds.
  bool causal, has_logits;
  mtx_norm_kind norm;             // of its rows; RMS unless set
} mtx_hparams;

mtx_code mtx_hparams_read(mtx_hparams *h, const mtx_gguf *file, mtx_err *err);

// "<arch>.KEY"; absent: `def`. Wrong type: sticky error, returns `def`.
uint32_t mtx_h_u32(mtx_hparams *h, const char *key, uint32_t def);
float mtx_h_f32(mtx_hparams *h, const char *key, float def);
bool mtx_h_bool(mtx_hparams *h, const char *key, bool def);
// Required, within [lo, hi].
uint32_t mtx_h_need(mtx_hparams *h, const char *key, uint32_t lo, uint32_t hi);
// A scalar for all layers or an array with one entry per layer (numbers or bools).
int64_t mtx_h_layer(mtx_hparams *h, const char *key, int il, int64_t def);
// Does layer il see only h->window tokens? attention.sliding_window_pattern: a list of bools, or a period (else
// `period`), the last layer of which sees all.
bool mtx_h_local(mtx_hparams *h, int il, uint32_t period);
// Leaves out the last layers of the file that predict further tokens (nextn_predict_layers).
void mtx_h_drop_nextn(mtx_hparams *h);
bool mtx_h_has(const mtx_hparams *h, const char *key);
void mtx_h_fail(mtx_hparams *h, mtx_code code, const char *key, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
