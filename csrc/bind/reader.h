// SPDX-License-Identifier: MIT
// Opening a model through Lua on a thread of its own.
#ifndef MTX_BIND_READER_H
#define MTX_BIND_READER_H

#include <stdbool.h>

#include "bind/chunk.h"
#include "gguf/gguf.h"

// Runs the chunk in a new Lua state with the standard libraries and mtx.core; it returns an mtx.gguf, which moves
// to *out, or nil, message, code. Once *stop is true it ends with MTX_ECANCELLED. On any thread.
mtx_code mtx_bind_reader_run(const mtx_chunk *c, const _Atomic bool *stop, mtx_gguf **out, mtx_err *err);

#endif
