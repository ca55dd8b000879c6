// SPDX-License-Identifier: MIT
// Low-rank additions to the weights of a plan (LoRA; Hu et al. 2021, arXiv:2106.09685).
//
// A weight W [n_out, k] with adapters gives W x + sum_j s_j B_j (A_j x). Which adapters, and how strongly, is
// chosen per sequence; the rows of one step may differ in it. A backend adds to the rows that have some
// and does to the others exactly what it does without.
#ifndef MTX_GRAPH_LORA_H
#define MTX_GRAPH_LORA_H

#include <stdatomic.h>
#include <stdbool.h>

#include "kern/kern.h"

enum {
  MTX_LORA_MAX = 16,        // adapters of one sequence
  MTX_LORA_MAX_RANK = 1024,
  MTX_LORA_LABEL_BYTES = MTX_LORA_MAX * 26 + 2,
  MTX_LORA_MARK = 0x1f,     // first byte of a label; cache keys cannot hold it
};

// What one adapter adds to one weight. Both matrices are packed floats (F32, F16 or BF16).
typedef struct mtx_lora_pair {
  mtx_weight a;             // [rank, k]; of an embedding table: [rows of the table, rank]
  mtx_weight b;             // [n_out, rank]; of an embedding table: [floats of a row, rank]
  int rank;                 // 0 = nothing
  float scale;              // alpha / rank
} mtx_lora_pair;

typedef struct mtx_lora_part {
  struct mtx_adapter *adapter;
  const mtx_lora_pair *pair;  // one for each weight of the plan
  float scale;                // the user's
} mtx_lora_part;

// The adapters of a sequence in an order that does not depend on how they were named, so that equal sets give
// equal bits. Immutable, counted (model/adapter.h).
typedef struct mtx_lora {
  atomic_int refs;
  uint64_t model_id;        // mtx_model_id of the model they fit
  int n;
  mtx_lora_part part[MTX_LORA_MAX];
  int64_t row_floats;       // the most floats of A x of one row in one plan step
  char label[MTX_LORA_LABEL_BYTES];  // which adapters and scales, for what is remembered of a sequence
} mtx_lora;

// Do both stand for the same additions? NULL = none.
static inline bool mtx_lora_same(const mtx_lora *a, const mtx_lora *b) {
  if (a == b) return true;
  if (!a || !b || a->n != b->n) return false;
  for (int i = 0; i < a->n; i++)
    if (a->part[i].pair != b->part[i].pair || a->part[i].scale != b->part[i].scale) return false;
  return true;
}

#endif
