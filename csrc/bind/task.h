// SPDX-License-Identifier: MIT
// Loading and closing of models on threads of their own: see task.c.
#ifndef MTX_BIND_TASK_H
#define MTX_BIND_TASK_H

#include <lua.h>

int mtx_bind_task_load(lua_State *L);   // core.model.start
int mtx_bind_task_drop(lua_State *L);   // core.model.drop
void mtx_bind_task_type(lua_State *L);

#endif
