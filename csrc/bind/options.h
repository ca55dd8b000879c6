// SPDX-License-Identifier: MIT
// Reading option tables: field of the table at `idx` with its type checked; a
// field of the wrong type raises and names itself. Absent (nil): the default.
#ifndef MTX_BIND_OPTIONS_H
#define MTX_BIND_OPTIONS_H

#include <lauxlib.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "kv/kv.h"
#include "sample/sample.h"

int64_t mtx_opt_integer(lua_State *L, int idx, const char *name, int64_t def);
double mtx_opt_number(lua_State *L, int idx, const char *name, double def);
bool mtx_opt_bool(lua_State *L, int idx, const char *name, bool def);
// Borrowed while the table holds it; NULL when absent.
const char *mtx_opt_string(lua_State *L, int idx, const char *name, size_t *len);
// The field kv_type, MTX_KV_F16 when absent. MTX_EINVAL.
mtx_code mtx_opt_kv_type(lua_State *L, int idx, mtx_kv_type *out, mtx_err *err);

// Pushes a userdata of n bytes: scratch memory that survives an error raised later.
void *mtx_scratch(lua_State *L, size_t n);
// The list of token ids at `idx` as int32; scratch stays on the stack (one value pushed).
const int32_t *mtx_check_ids(lua_State *L, int idx, int64_t *n);
// Sampler options from the table at `idx` (nil = defaults). Pushes what they borrow.
void mtx_check_sampler(lua_State *L, int idx, mtx_sampler_opts *o);

#endif
