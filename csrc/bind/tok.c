// SPDX-License-Identifier: MIT
// mtx.core.tokenizer: text to ids and back from Lua.
//
// Byte positions are Lua's: from 1, both ends included. Token ids are the
// model's own, from 0.
#include "bind/tok.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "bind/core.h"
#include "tok/pretok.h"
#include "tok/unicode.h"

#define TYPE "mtx.tokenizer"
#define STREAM "mtx.detokenizer"
#define BUFFER "mtx.tokenizer.buffer"

typedef struct { mtx_tok *t; bool owned; } handle;

// Scratch memory that a Lua error in the middle of a call must not leak.
typedef struct { mtx_ids ids; mtx_buf buf; mtx_span *spans; size_t cap_spans; } buffer;

static int l_buffer_gc(lua_State *L) {
  buffer *b = luaL_checkudata(L, 1, BUFFER);
  mtx_ids_fini(&b->ids);
  mtx_buf_fini(&b->buf);
  free(b->spans);
  return 0;
}

static buffer *push_buffer(lua_State *L) {
  buffer *b = lua_newuserdatauv(L, sizeof *b, 0);
  *b = (buffer){0};
  luaL_setmetatable(L, BUFFER);
  return b;
}

// The tokenizer at stack index `idx`; raises when it is none or closed. Borrowed.
static const mtx_tok *check(lua_State *L, int idx) {
  handle *h = luaL_checkudata(L, idx, TYPE);
  if (!h->t) luaL_argerror(L, idx, "the tokenizer is closed");
  return h->t;
}

void mtx_bind_push_tok(lua_State *L, mtx_tok *t, int owner) {
  owner = lua_absindex(L, owner);
  handle *h = lua_newuserdatauv(L, sizeof *h, 1);
  *h = (handle){t, false};
  luaL_setmetatable(L, TYPE);
  lua_pushvalue(L, owner);
  lua_setiuservalue(L, -2, 1);
}

static int l_tokenizer_open(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  handle *h = lua_newuserdatauv(L, sizeof *h, 1);
  *h = (handle){NULL, true};
  luaL_setmetatable(L, TYPE);
  mtx_err err;
  mtx_gguf *g;
  if (mtx_gguf_open(&g, path, MTX_GGUF_VOCAB_ONLY, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  mtx_code rc = mtx_tok_open(&h->t, g, &err);
  mtx_gguf_close(g);
  return rc == MTX_OK ? 1 : mtx_bind_fail(L, &err);
}

// open_bytes(gguf) -> tokenizer, from the bytes of a GGUF file that is in memory.
static int l_tokenizer_open_bytes(lua_State *L) {
  size_t n;
  const char *bytes = luaL_checklstring(L, 1, &n);
  handle *h = lua_newuserdatauv(L, sizeof *h, 1);
  *h = (handle){NULL, true};
  luaL_setmetatable(L, TYPE);
  mtx_err err;
  mtx_gguf *g;
  if (mtx_gguf_open_mem(&g, bytes, n, MTX_GGUF_VOCAB_ONLY, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  mtx_code rc = mtx_tok_open(&h->t, g, &err);
  mtx_gguf_close(g);
  return rc == MTX_OK ? 1 : mtx_bind_fail(L, &err);
}

static int l_tokenizer_close(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  mtx_tok *t = h->t;
  h->t = NULL;
  if (h->owned) mtx_tok_close(t);
  return 0;
}

static int l_tokenizer_tostring(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  if (h->t) lua_pushfstring(L, "tokenizer (%s, %d tokens)", mtx_tok_model(h->t), (int)mtx_tok_n_tokens(h->t));
  else lua_pushliteral(L, "tokenizer (closed)");
  return 1;
}

static bool flag(lua_State *L, int idx, const char *name, bool fallback) {
  if (!lua_istable(L, idx)) return fallback;
  lua_getfield(L, idx, name);
  bool v = lua_isnil(L, -1) ? fallback : lua_toboolean(L, -1);
  lua_pop(L, 1);
  return v;
}

// opts.spans: a list of {first, last}, bytes of the text that the template wrote.
static size_t read_spans(lua_State *L, int opts, buffer *b) {
  if (lua_getfield(L, opts, "spans") == LUA_TNIL) {
    lua_pop(L, 1);
    return SIZE_MAX;
  }
  luaL_argcheck(L, lua_istable(L, -1), opts, "spans must be a list of {first, last}");
  size_t n = (size_t)luaL_len(L, -1);
  if (mtx_grow(&b->spans, &b->cap_spans, n + 1, sizeof *b->spans, NULL) != MTX_OK) luaL_error(L, "not enough memory");
  for (size_t i = 0; i < n; i++) {
    luaL_argcheck(L, lua_rawgeti(L, -1, (lua_Integer)i + 1) == LUA_TTABLE, opts, "a span must be {first, last}");
    lua_rawgeti(L, -1, 1);
    lua_rawgeti(L, -2, 2);
    lua_Integer first = lua_tointeger(L, -2), last = lua_tointeger(L, -1);
    luaL_argcheck(L, first >= 1 && last >= first - 1, opts, "a span must be {first, last} with first from 1");
    b->spans[i] = (mtx_span){(size_t)first - 1, (size_t)last};
    lua_pop(L, 3);
  }
  lua_pop(L, 1);
  return n;
}

// encode(text [, {add_special, parse_special, spans, bos_once, continue}]) -> ids
static int l_tokenizer_encode(lua_State *L) {
  const mtx_tok *t = check(L, 1);
  size_t n, n_spans = SIZE_MAX;
  const char *text = luaL_checklstring(L, 2, &n);
  if (!lua_isnoneornil(L, 3)) luaL_checktype(L, 3, LUA_TTABLE);
  lua_settop(L, 3);
  buffer *b = push_buffer(L);
  unsigned flags = (flag(L, 3, "add_special", false) ? MTX_TOK_ADD_SPECIAL : 0) | (flag(L, 3, "parse_special", false) ? MTX_TOK_PARSE_SPECIAL : 0) |
                   (flag(L, 3, "bos_once", false) ? MTX_TOK_BOS_ONCE : 0) | (flag(L, 3, "continue", false) ? MTX_TOK_CONTINUE : 0);
  if (lua_istable(L, 3)) n_spans = read_spans(L, 3, b);
  if (n_spans == 0) flags &= ~(unsigned)MTX_TOK_PARSE_SPECIAL;  // spans given, and none of the text is trusted
  mtx_err err;
  if (mtx_tok_encode(t, text, n, flags, n_spans == SIZE_MAX ? NULL : b->spans, n_spans == SIZE_MAX ? 0 : n_spans, &b->ids, &err) != MTX_OK)
    return mtx_bind_fail(L, &err);
  lua_createtable(L, b->ids.len < (1 << 24) ? (int)b->ids.len : 0, 0);
  for (size_t i = 0; i < b->ids.len; i++) {
    lua_pushinteger(L, b->ids.ptr[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

// decode(ids [, {remove_special, special, raw}]) -> text; `special` (default
// true) shows control tokens as their text.
static int l_tokenizer_decode(lua_State *L) {
  const mtx_tok *t = check(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 3);
  buffer *b = push_buffer(L);
  mtx_err err;
  size_t n = (size_t)luaL_len(L, 2);
  if (mtx_ids_reserve(&b->ids, n, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  for (size_t i = 0; i < n; i++) {
    int is_int;
    lua_rawgeti(L, 2, (lua_Integer)i + 1);
    lua_Integer id = lua_tointegerx(L, -1, &is_int);
    luaL_argcheck(L, is_int, 2, "token ids must be integers");
    b->ids.ptr[b->ids.len++] = id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
    lua_pop(L, 1);
  }
  unsigned flags = (flag(L, 3, "remove_special", false) ? MTX_TOK_REMOVE_SPECIAL : 0) | (flag(L, 3, "special", true) ? MTX_TOK_UNPARSE_SPECIAL : 0) |
                   (flag(L, 3, "raw", false) ? MTX_TOK_RAW : 0);
  if (mtx_tok_decode(t, b->ids.ptr, n, flags, &b->buf, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushlstring(L, b->buf.ptr ? b->buf.ptr : "", b->buf.len);
  return 1;
}

// piece(id [, special = true]) -> bytes; nothing for an id out of range.
static int l_tokenizer_piece(lua_State *L) {
  const mtx_tok *t = check(L, 1);
  lua_Integer id = luaL_checkinteger(L, 2);
  const char *p;
  size_t n;
  bool special = lua_isnoneornil(L, 3) || lua_toboolean(L, 3);
  if (id < 0 || id > INT32_MAX || !mtx_tok_piece(t, (int32_t)id, special, &p, &n)) return 0;
  lua_pushlstring(L, p, n);
  return 1;
}

static int l_tokenizer_n_tokens(lua_State *L) {
  lua_pushinteger(L, mtx_tok_n_tokens(check(L, 1)));
  return 1;
}

// special() -> table: model, pre, add_bos, add_eos, add_sep, and the ids that exist.
static int l_tokenizer_special(lua_State *L) {
  const mtx_tok *t = check(L, 1);
  lua_newtable(L);
  lua_pushstring(L, mtx_tok_model(t));
  lua_setfield(L, -2, "model");
  lua_pushstring(L, mtx_tok_pre(t));
  lua_setfield(L, -2, "pre");
  lua_pushboolean(L, mtx_tok_add_bos(t));
  lua_setfield(L, -2, "add_bos");
  lua_pushboolean(L, mtx_tok_add_eos(t));
  lua_setfield(L, -2, "add_eos");
  lua_pushboolean(L, mtx_tok_add_sep(t));
  lua_setfield(L, -2, "add_sep");
  for (int i = 0; i < MTX_TOK_N_SPECIAL; i++) {
    int32_t id = mtx_tok_special_id(t, (mtx_tok_special)i);
    if (id < 0) continue;
    lua_pushinteger(L, id);
    lua_setfield(L, -2, mtx_tok_special_name((mtx_tok_special)i));
  }
  return 1;
}

static int32_t check_id(lua_State *L, int idx) {
  lua_Integer id = luaL_checkinteger(L, idx);
  return id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
}

static int l_tokenizer_is_eog(lua_State *L) {
  const mtx_tok *t = check(L, 1);
  lua_pushboolean(L, mtx_tok_is_eog(t, check_id(L, 2)));
  return 1;
}

// attr(id) -> set of names: {control = true, ...}
static int l_tokenizer_attr(lua_State *L) {
  static const char *const names[] = {"unknown", "unused", "normal", "control", "user", "byte", "lstrip", "rstrip"};
  const mtx_tok *t = check(L, 1);
  unsigned a = mtx_tok_attr(t, check_id(L, 2));
  lua_newtable(L);
  for (int i = 0; i < 8; i++) {
    if (!(a >> i & 1)) continue;
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, names[i]);
  }
  return 1;
}

// find(text) -> id of the token spelt so in the vocabulary; nothing if none.
static int l_tokenizer_find(lua_State *L) {
  const mtx_tok *t = check(L, 1);
  size_t n;
  const char *text = luaL_checklstring(L, 2, &n);
  int32_t id = mtx_tok_find(t, text, n);
  if (id < 0) return 0;
  lua_pushinteger(L, id);
  return 1;
}

// containing(text) -> ids of the ordinary tokens whose bytes hold this text
static int l_tokenizer_containing(lua_State *L) {
  const mtx_tok *t = check(L, 1);
  size_t n, len;
  const char *text = luaL_checklstring(L, 2, &n), *p;
  luaL_argcheck(L, n > 0, 2, "an empty text is in all of them");
  lua_newtable(L);
  lua_Integer k = 0;
  for (int32_t id = 0; id < mtx_tok_n_tokens(t); id++) {
    if (!mtx_tok_piece(t, id, false, &p, &len) || len < n || !memmem(p, len, text, n)) continue;
    lua_pushinteger(L, id);
    lua_rawseti(L, -2, ++k);
  }
  return 1;
}

// stream{special = false, at_start = false} -> detokenizer with feed(id) and flush()
static int l_tokenizer_stream(lua_State *L) {
  const mtx_tok *t = check(L, 1);
  lua_settop(L, 2);
  mtx_detok *d = lua_newuserdatauv(L, sizeof *d, 1);
  mtx_detok_init(d, t, flag(L, 2, "special", false), flag(L, 2, "at_start", false));
  luaL_setmetatable(L, STREAM);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  return 1;
}

static int stream_out(lua_State *L, mtx_code rc, buffer *b, mtx_err *err) {
  if (rc != MTX_OK) return mtx_bind_fail(L, err);
  lua_pushlstring(L, b->buf.ptr ? b->buf.ptr : "", b->buf.len);
  return 1;
}

static mtx_detok *check_stream(lua_State *L) {
  mtx_detok *d = luaL_checkudata(L, 1, STREAM);
  lua_getiuservalue(L, 1, 1);
  check(L, -1);  // raises if closed meanwhile
  lua_pop(L, 1);
  return d;
}

static int l_stream_feed(lua_State *L) {
  mtx_detok *d = check_stream(L);
  int32_t id = check_id(L, 2);
  buffer *b = push_buffer(L);
  mtx_err err;
  return stream_out(L, mtx_detok_feed(d, id, &b->buf, &err), b, &err);
}

static int l_stream_flush(lua_State *L) {
  mtx_detok *d = check_stream(L);
  buffer *b = push_buffer(L);
  mtx_err err;
  return stream_out(L, mtx_detok_flush(d, &b->buf, &err), b, &err);
}

// valid_utf8(text) -> true | false, position of the first bad byte
static int l_tokenizer_valid_utf8(lua_State *L) {
  size_t n, bad = 0;
  const char *text = luaL_checklstring(L, 1, &n);
  bool ok = mtx_utf8_valid(text, n, &bad);
  lua_pushboolean(L, ok);
  if (ok) return 1;
  lua_pushinteger(L, (lua_Integer)bad + 1);
  return 2;
}

// repair_utf8(bytes) -> text with every broken sequence as one U+FFFD
static int l_tokenizer_repair_utf8(lua_State *L) {
  size_t n;
  const char *bytes = luaL_checklstring(L, 1, &n);
  buffer *b = push_buffer(L);
  mtx_err err;
  return stream_out(L, mtx_utf8_repair(bytes, n, &b->buf, &err), b, &err);
}

// presplit(name, text) -> the pieces that pre-tokenizer `name` cuts a text into.
static int l_tokenizer_presplit(lua_State *L) {
  size_t n_name, n;
  const char *name = luaL_checklstring(L, 1, &n_name), *text = luaL_checklstring(L, 2, &n);
  buffer *b = push_buffer(L);
  mtx_err err;
  const mtx_pretok *p = mtx_pretok_find(name, n_name);
  mtx_code rc = p ? mtx_pretok_text(p, text, n, &b->ids, &err) : mtx_fail(&err, MTX_EUNSUPPORTED, "unknown pre-tokenizer '%s'", name);
  if (rc != MTX_OK) return mtx_bind_fail(L, &err);
  lua_newtable(L);
  for (size_t i = 0; i < b->ids.len; i++) {
    int32_t from = i ? b->ids.ptr[i - 1] : 0;
    lua_pushlstring(L, text + from, (size_t)(b->ids.ptr[i] - from));
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

// presplit_names() -> every name that `tokenizer.ggml.pre` may have.
static int l_tokenizer_presplit_names(lua_State *L) {
  lua_newtable(L);
  const mtx_pretok *p;
  for (size_t i = 0; (p = mtx_pretok_at(i)); i++) {
    lua_pushstring(L, p->name);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

int mtx_bind_tok(lua_State *L) {
  static const luaL_Reg meta[] = {
    {"__gc", l_tokenizer_close}, {"__close", l_tokenizer_close}, {"__tostring", l_tokenizer_tostring}, {NULL, NULL},
  };
  static const luaL_Reg methods[] = {
    {"encode", l_tokenizer_encode},   {"decode", l_tokenizer_decode}, {"piece", l_tokenizer_piece}, {"n_tokens", l_tokenizer_n_tokens},
    {"special", l_tokenizer_special}, {"is_eog", l_tokenizer_is_eog}, {"attr", l_tokenizer_attr},   {"find", l_tokenizer_find},
    {"containing", l_tokenizer_containing}, {"stream", l_tokenizer_stream},   {"close", l_tokenizer_close},   {NULL, NULL},
  };
  static const luaL_Reg stream[] = {{"feed", l_stream_feed}, {"flush", l_stream_flush}, {NULL, NULL}};
  static const luaL_Reg buffer_meta[] = {{"__gc", l_buffer_gc}, {NULL, NULL}};
  static const luaL_Reg functions[] = {
    {"open", l_tokenizer_open}, {"open_bytes", l_tokenizer_open_bytes}, {"valid_utf8", l_tokenizer_valid_utf8}, {"repair_utf8", l_tokenizer_repair_utf8},
    {"presplit", l_tokenizer_presplit}, {"presplit_names", l_tokenizer_presplit_names}, {NULL, NULL},
  };
  mtx_bind_new_type(L, TYPE, meta, methods);
  mtx_bind_new_type(L, STREAM, NULL, stream);
  mtx_bind_new_type(L, BUFFER, buffer_meta, NULL);
  luaL_newlib(L, functions);
  return 1;
}
