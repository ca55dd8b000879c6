// SPDX-License-Identifier: MIT
// The bytes of saved state: the tokens of one sequence and what the model made of them.
//
//   0  "mtxstate"                          24  u64 tokens             48  u64 bytes of the label
//   8  u32 version, u32 0                   32  u64 of them evaluated  56  u64 0
//  16  u64 checksum of the model's files    40  u64 bytes of the image
//  64  the label, the tokens (i32), the image (kv/image.h), u64 checksum of all before it
//
// Little-endian. It is restored only into the model, KV type and layout it came from;
// every size is checked against that of the whole and against what the reader allows.
// The label says whose it is (the prefix index's key).
#ifndef MTX_KV_SAVED_H
#define MTX_KV_SAVED_H

#include "kv/image.h"

typedef struct mtx_saved {
  const char *label; uint64_t label_bytes;
  int32_t *tokens; int64_t n_tokens;  // owned
  int64_t n_stored;        // tokens that the image holds
  const uint8_t *image; uint64_t image_bytes;
} mtx_saved;

typedef struct mtx_saved_for {  // who wants to read
  const mtx_kv_layout *layout;
  uint64_t model;          // mtx_gguf_checksum
  int64_t n_ctx;
  int32_t n_vocab;
} mtx_saved_for;

// Reads bytes[0..n), which must outlive *out. Errors: MTX_EFORMAT (no saved state, or damaged),
// MTX_EUNSUPPORTED (version, another model, KV type or shape), MTX_ELIMIT (longer than the
// context). On failure *out is empty.
mtx_code mtx_saved_open(mtx_saved *out, const uint8_t *bytes, uint64_t n, const mtx_saved_for *who, mtx_err *err);
// The same without the checksum, so that only the first pages are read: it may still be damaged. who NULL: of
// whatever model, only label and tokens come back.
mtx_code mtx_saved_peek(mtx_saved *out, const uint8_t *bytes, uint64_t n, const mtx_saved_for *who, mtx_err *err);
void mtx_saved_close(mtx_saved *s);

// Gives all bytes in order to put(ctx, ...), which returns false to end it (MTX_EIO, err is the
// caller's to fill). *n_bytes: how many.
mtx_code mtx_saved_write(const mtx_saved *s, uint64_t model, bool (*put)(void *ctx, const void *bytes, uint64_t n), void *ctx, uint64_t *n_bytes, mtx_err *err);

#endif
