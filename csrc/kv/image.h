// SPDX-License-Identifier: MIT
// A sequence as bytes: its pages, recurrent state and snapshots as they lie in memory.
//
// An image belongs to one layout; what it says of its own is compared with the layout
// that reads it, so a reader copies whole pages and can never be led astray.
#ifndef MTX_KV_IMAGE_H
#define MTX_KV_IMAGE_H

#include "kv/kv.h"

uint64_t mtx_kv_image_bytes(const mtx_kv *kv, int seq);
void mtx_kv_image_write(mtx_kv *kv, int seq, uint8_t *dst);

// Checks without reading page data: MTX_EFORMAT (damaged, with the reason), MTX_EUNSUPPORTED
// (another layout: KV type, layers, windows). src may have any alignment.
mtx_code mtx_kv_image_check(const mtx_kv_layout *l, const uint8_t *src, uint64_t n_bytes, int64_t n_tokens, mtx_err *err);
// A new sequence from an image that was checked. MTX_ELIMIT: too few pages are free.
mtx_code mtx_kv_image_read(mtx_kv *kv, const uint8_t *src, int64_t n_tokens, int *seq, mtx_err *err);

#endif
