// SPDX-License-Identifier: MIT
// Float tensors as Lua values: what bindings push and take.
#ifndef MTX_BIND_TENSOR_H
#define MTX_BIND_TENSOR_H

#include <lua.h>
#include <stdint.h>

// rows x cols floats that live in the userdata itself; one row is a vector.
typedef struct mtx_tensor {
  int64_t rows, cols;
  float data[];
} mtx_tensor;

// Pushes a tensor with undefined contents; raises when Lua has no memory.
mtx_tensor *mtx_bind_push_tensor(lua_State *L, int64_t rows, int64_t cols);
mtx_tensor *mtx_bind_check_tensor(lua_State *L, int idx);

#endif
