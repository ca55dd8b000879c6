// SPDX-License-Identifier: MIT
// Loading and closing of models, and other long work, on threads of their own: see task.c.
#ifndef MTX_BIND_TASK_H
#define MTX_BIND_TASK_H

#include <lua.h>

int mtx_bind_task_load(lua_State *L);   // core.model.start
int mtx_bind_task_drop(lua_State *L);   // core.model.drop

typedef struct mtx_bind_work {
  void (*run)(void *self);                 // on the thread
  int (*push)(lua_State *L, void *self);   // what take() gives
} mtx_bind_work;
// Pushes a task that runs `work` on the userdata `self`, on top of the stack, and keeps it and the value at index 1 alive.
// *n_users is one higher until it has ended and been taken. On failure pushes nil, message, code.
int mtx_bind_task_work(lua_State *L, const mtx_bind_work *work, void *self, int *n_users);
void mtx_bind_task_type(lua_State *L);

#endif
