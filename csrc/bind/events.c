// SPDX-License-Identifier: MIT
// engine:drain: the engine's events as tables.
#include <lauxlib.h>

#include "bind/core.h"
#include "bind/engine.h"

#define TYPE "mtx.events"

static void push_top(lua_State *L, const mtx_event *ev, const mtx_token_logprob *t) {
  lua_createtable(L, t->n_top, 0);
  for (int32_t i = 0; i < t->n_top; i++) {
    const mtx_logprob *p = &ev->top[t->top + (size_t)i];
    lua_createtable(L, 0, 2);
    mtx_bind_set_integer(L, "id", p->id);
    mtx_bind_set_number(L, "logprob", p->logprob);
    lua_rawseti(L, -2, i + 1);
  }
}

static void push_logprobs(lua_State *L, const mtx_event *ev) {
  lua_createtable(L, (int)ev->n_logprobs, 0);
  for (size_t i = 0; i < ev->n_logprobs; i++) {
    lua_createtable(L, 0, 3);
    mtx_bind_set_integer(L, "id", ev->logprobs[i].id);
    mtx_bind_set_number(L, "logprob", ev->logprobs[i].logprob);
    push_top(L, ev, &ev->logprobs[i]);
    lua_setfield(L, -2, "top");
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

static void push_done(lua_State *L, const mtx_event *ev) {
  lua_pushstring(L, mtx_done_reason_name(ev->reason));
  lua_setfield(L, -2, "reason");
  mtx_bind_set_integer(L, "n_generated", ev->n_generated);
  if (ev->n_drafted) {
    mtx_bind_set_integer(L, "n_drafted", ev->n_drafted);
    mtx_bind_set_integer(L, "n_draft_accepted", ev->n_draft_accepted);
  }
  mtx_bind_set_number(L, "t_queue_ms", ev->t_queue_ms);
  mtx_bind_set_number(L, "t_prefill_ms", ev->t_prefill_ms);
  mtx_bind_set_number(L, "t_decode_ms", ev->t_decode_ms);
  if (ev->vectors && ev->reason == MTX_DONE_STOP) {
    mtx_bind_push_vectors(L, ev->vectors, ev->n_vectors, ev->vector_len);
    lua_setfield(L, -2, "vectors");
  }
  if (ev->reason == MTX_DONE_STOP_STRING) {
    lua_pushlstring(L, ev->text.ptr ? ev->text.ptr : "", ev->text.len);
    lua_setfield(L, -2, "stop_string");
  }
  if (ev->text.len && (ev->reason == MTX_DONE_LENGTH || ev->reason == MTX_DONE_CANCELLED)) {
    lua_pushlstring(L, ev->text.ptr, ev->text.len);
    lua_setfield(L, -2, "rest");
  }
  if (ev->reason == MTX_DONE_ERROR) {
    lua_pushstring(L, ev->message);
    lua_setfield(L, -2, "message");
    lua_pushstring(L, ev->code ? ev->code : "internal");
    lua_setfield(L, -2, "code");
  }
}

static void push_event(lua_State *L, const mtx_event *ev) {
  static const char *const kinds[] = {[MTX_EVENT_START] = "start", [MTX_EVENT_PROGRESS] = "progress", [MTX_EVENT_TOKEN] = "token", [MTX_EVENT_DONE] = "done"};
  lua_createtable(L, 0, ev->kind == MTX_EVENT_TOKEN ? 4 : 8);  // what most events of the kind hold
  mtx_bind_set_integer(L, "id", ev->id);
  lua_pushstring(L, kinds[ev->kind]);
  lua_setfield(L, -2, "kind");
  if (ev->kind == MTX_EVENT_TOKEN) {
    lua_pushlstring(L, ev->text.ptr ? ev->text.ptr : "", ev->text.len);
    lua_setfield(L, -2, "text");
    lua_createtable(L, (int)ev->tokens.len, 0);
    for (size_t i = 0; i < ev->tokens.len; i++) {
      lua_pushinteger(L, ev->tokens.ptr[i]);
      lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "tokens");
  } else {
    mtx_bind_set_integer(L, "n_prompt", ev->n_prompt);
    mtx_bind_set_integer(L, "n_cached", ev->n_cached);
  }
  if (ev->kind == MTX_EVENT_START) mtx_bind_set_number(L, "t_queue_ms", ev->t_queue_ms);
  if (ev->kind == MTX_EVENT_PROGRESS) {
    mtx_bind_set_integer(L, "n_processed", ev->n_processed);
    mtx_bind_set_number(L, "t_prefill_ms", ev->t_prefill_ms);
  }
  if (ev->n_logprobs) {
    push_logprobs(L, ev);
    lua_setfield(L, -2, "logprobs");
  }
  if (ev->kind == MTX_EVENT_DONE) push_done(L, ev);
}

// Owns a list of events while they become tables, which may raise.
static int l_events_gc(lua_State *L) {
  mtx_event **list = lua_touserdata(L, 1);
  mtx_event *ev = *list;
  *list = NULL;
  mtx_event_free(ev);
  return 0;
}

// drain() -> list of events since last time, maybe empty.
int mtx_bind_engine_drain(lua_State *L) {
  mtx_bind_engine *h = mtx_bind_check_engine(L, 1);
  mtx_event **owned = lua_newuserdatauv(L, sizeof *owned, 0);
  *owned = NULL;
  luaL_setmetatable(L, TYPE);
  lua_newtable(L);
  *owned = mtx_engine_take(h->engine);
  lua_Integer n = 0;
  for (const mtx_event *ev = *owned; ev; ev = ev->next) {
    push_event(L, ev);
    lua_rawseti(L, -2, ++n);
  }
  mtx_event *ev = *owned;
  *owned = NULL;
  mtx_event_free(ev);
  return 1;
}

void mtx_bind_events_type(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_events_gc}, {NULL, NULL}};
  mtx_bind_new_type(L, TYPE, meta, NULL);
}
