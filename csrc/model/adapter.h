// SPDX-License-Identifier: MIT
// LoRA adapters: GGUF files whose tensors NAME.lora_a and NAME.lora_b belong to the weight NAME of a base model.
//
// Format as llama.cpp's convert_lora_to_gguf.py writes it (general.type "adapter", adapter.type "lora"). An adapter is
// checked against one model when it is opened and holds memory of its own, so it may outlive the model; it is used
// with that model only. Open adapters are immutable.
#ifndef MTX_MODEL_ADAPTER_H
#define MTX_MODEL_ADAPTER_H

#include "graph/lora.h"
#include "model/model.h"

typedef struct mtx_adapter mtx_adapter;

typedef struct mtx_adapter_info {
  char *path, *name, *task_name, *prompt_prefix;  // "" when the file does not say
  float alpha;              // 0: the file has none, and products are not scaled by it
  int max_rank, n_pairs;
  int n_unused;             // norms of the adapter's own, which mtx (like llama.cpp) does not use
  uint64_t file_bytes, weight_bytes;  // weight_bytes: resident
  uint64_t checksum;        // of the file
} mtx_adapter_info;

// Reads and packs the file. Q8_0 tensors become F32. Errors: MTX_EFORMAT (no adapter, a half of a pair is missing, a
// shape or rank that does not fit the model), MTX_EUNSUPPORTED (another architecture or kind of adapter, a tensor that
// mtx cannot add to, a type), MTX_ENOMEM, MTX_EIO; all name the tensor or key.
mtx_code mtx_adapter_open(mtx_adapter **out, const mtx_model *m, const char *path, const mtx_model_opts *opts, mtx_err *err);
// The same from an open file, which stays the caller's.
mtx_code mtx_adapter_read(mtx_adapter **out, const mtx_model *m, const mtx_gguf *file, const mtx_model_opts *opts, mtx_err *err);
mtx_adapter *mtx_adapter_ref(mtx_adapter *a);
void mtx_adapter_unref(mtx_adapter *a);  // NULL is fine; on any thread
const mtx_adapter_info *mtx_adapter_get_info(const mtx_adapter *a);

// A set of n adapters of the model with their scales; those of scale 0 are left out, and *out is NULL when none is
// left: that is the base model. Refs what it needs. MTX_EINVAL: more than MTX_LORA_MAX, one named twice, of another
// model, a scale that is no number.
mtx_code mtx_lora_new(mtx_lora **out, const mtx_model *m, mtx_adapter *const *adapter, const float *scale, int n, mtx_err *err);
mtx_lora *mtx_lora_ref(mtx_lora *l);     // NULL is fine
void mtx_lora_unref(mtx_lora *l);        // NULL is fine; on any thread

#endif
