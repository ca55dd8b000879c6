// SPDX-License-Identifier: MIT
// mtx.core.json_decoder(shapes) -> decode(text): the fast half of lua/mtx/json.lua, which
// says what the values look like and why lua-cjson's would not do.
//
// shapes: {array = metatable, bigint = metatable, null = value, pairs = f, newindex = f}.
// decode(text, max_depth) -> value | nil, message, position (1-based byte). RFC 8259,
// nothing more; the text must be UTF-8 already. C recursion is bounded by max_depth.
#include <lauxlib.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "bind/core.h"

enum { UP_ARRAY = 1, UP_BIGINT, UP_NULL, UP_PAIRS, UP_NEWINDEX };

typedef struct {
  lua_State *L;
  const char *at, *end;
  int left;             // nesting that is still allowed
  int max_depth;
  const char *message;  // NULL: well so far
} reader;

static bool read_value(reader *r);

static bool fail(reader *r, const char *at, const char *message) {
  r->at = at;
  r->message = message;
  return false;
}

static void skip_blanks(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

static bool is_digit(const reader *r, const char *p) { return p < r->end && *p >= '0' && *p <= '9'; }

// ---- strings ---------------------------------------------------------------------------------

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The code of \uXXXX's digits at p, or -1.
static int32_t hex4(const reader *r, const char *p) {
  if (r->end - p < 4) return -1;
  int32_t code = 0;
  for (int i = 0; i < 4; i++) {
    int d = hex_digit(p[i]);
    if (d < 0) return -1;
    code = code << 4 | d;
  }
  return code;
}

static void add_utf8(luaL_Buffer *b, uint32_t c) {
  if (c < 0x80) {
    luaL_addchar(b, (char)c);
    return;
  }
  if (c < 0x800) {
    luaL_addchar(b, (char)(0xC0 | c >> 6));
  } else {
    if (c < 0x10000) {
      luaL_addchar(b, (char)(0xE0 | c >> 12));
    } else {
      luaL_addchar(b, (char)(0xF0 | c >> 18));
      luaL_addchar(b, (char)(0x80 | (c >> 12 & 0x3F)));
    }
    luaL_addchar(b, (char)(0x80 | (c >> 6 & 0x3F)));
  }
  luaL_addchar(b, (char)(0x80 | (c & 0x3F)));
}

// r->at is behind the backslash of an escape.
static bool read_escape(reader *r, luaL_Buffer *b) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  const char *backslash = r->at - 1, *hit = r->at < r->end && *r->at ? strchr(from, *r->at) : NULL;
  if (hit) {
    luaL_addchar(b, to[hit - from]);
    r->at++;
    return true;
  }
  if (r->at >= r->end || *r->at != 'u') return fail(r, backslash, "unknown escape in string");
  int32_t code = hex4(r, r->at + 1);
  if (code < 0) return fail(r, backslash, "\\u needs four hexadecimal digits");
  r->at += 5;
  if (code >= 0xD800 && code < 0xDC00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
    int32_t low = hex4(r, r->at + 2);
    if (low >= 0xDC00 && low < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      r->at += 6;
    }
  }
  add_utf8(b, code >= 0xD800 && code < 0xE000 ? 0xFFFD : (uint32_t)code);  // a lone surrogate is no character
  return true;
}

static const char *plain_end(const reader *r, const char *p) {
  while (p < r->end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20) p++;
  return p;
}

// Pushes the string whose opening quote is at r->at.
static bool read_string(reader *r) {
  const char *quote = r->at++, *p = plain_end(r, r->at);
  if (p < r->end && *p == '"') {
    lua_pushlstring(r->L, r->at, (size_t)(p - r->at));
    r->at = p + 1;
    return true;
  }
  luaL_Buffer b;
  luaL_buffinit(r->L, &b);
  for (;;) {
    p = plain_end(r, r->at);
    luaL_addlstring(&b, r->at, (size_t)(p - r->at));
    r->at = p;
    if (p >= r->end) return fail(r, quote, "string without an end");
    if (*p == '"') break;
    if (*p != '\\') return fail(r, p, "control character in string must be escaped");
    r->at++;
    if (!read_escape(r, &b)) return false;
  }
  r->at++;
  luaL_pushresult(&b);
  return true;
}

// ---- numbers and words -----------------------------------------------------------------------

static void push_number(reader *r, const char *start, bool is_integer) {
  lua_State *L = r->L;
  lua_pushlstring(L, start, (size_t)(r->at - start));  // lua_stringtonumber wants a terminator
  const int digits = lua_gettop(L);
  if (!lua_stringtonumber(L, lua_tostring(L, digits))) lua_pushnumber(L, 0);  // cannot be: the syntax was checked
  if (is_integer && !lua_isinteger(L, -1)) {
    lua_pop(L, 1);
    lua_createtable(L, 0, 1);
    lua_pushvalue(L, digits);
    lua_setfield(L, -2, "digits");
    lua_pushvalue(L, lua_upvalueindex(UP_BIGINT));
    lua_setmetatable(L, -2);
  }
  lua_remove(L, digits);
}

static bool read_number(reader *r) {
  const char *start = r->at, *p = start + (*start == '-'), *first = p;
  while (is_digit(r, p)) p++;
  if (p == first) return fail(r, start, "expected a value");
  if (*first == '0' && p > first + 1) return fail(r, start, "a number must not start with 0");
  bool is_integer = true;
  if (p < r->end && *p == '.') {
    const char *dot = p++;
    while (is_digit(r, p)) p++;
    if (p == dot + 1) return fail(r, dot, "digits must follow the point");
    is_integer = false;
  }
  if (p < r->end && (*p == 'e' || *p == 'E')) {
    const char *e = p++;
    if (p < r->end && (*p == '+' || *p == '-')) p++;
    const char *exponent = p;
    while (is_digit(r, p)) p++;
    if (p == exponent) return fail(r, e, "digits must follow the exponent");
    is_integer = false;
  }
  r->at = p;
  push_number(r, start, is_integer);
  return true;
}

static bool read_word(reader *r, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n)) return fail(r, r->at, "unknown word");
  r->at += n;
  return true;
}

// ---- containers ---------------------------------------------------------------------------------

// Pushes an object's table, and its metatable: {kind, __pairs, __newindex, keys in order}.
static void new_object(lua_State *L) {
  lua_newtable(L);
  lua_createtable(L, 4, 3);
  lua_pushliteral(L, "object");
  lua_setfield(L, -2, "kind");
  lua_pushvalue(L, lua_upvalueindex(UP_PAIRS));
  lua_setfield(L, -2, "__pairs");
  lua_pushvalue(L, lua_upvalueindex(UP_NEWINDEX));
  lua_setfield(L, -2, "__newindex");
}

static bool read_member(reader *r, lua_Integer *n, int object) {
  lua_State *L = r->L;
  if (r->at >= r->end || *r->at != '"') return fail(r, r->at, "expected a key in double quotes");
  if (!read_string(r)) return false;
  skip_blanks(r);
  if (r->at >= r->end || *r->at != ':') return fail(r, r->at, "expected ':' after a key");
  r->at++;
  // A repeated key keeps its first place and takes the last value, as in Python.
  lua_pushvalue(L, -1);
  if (lua_rawget(L, object) == LUA_TNIL) {
    lua_pushvalue(L, -2);
    lua_rawseti(L, object + 1, ++*n);
  }
  lua_pop(L, 1);
  if (!read_value(r)) return false;
  lua_rawset(L, object);
  return true;
}

static bool read_object(reader *r) {
  new_object(r->L);
  const int object = lua_gettop(r->L) - 1;
  lua_Integer n = 0;
  r->at++;
  skip_blanks(r);
  if (r->at >= r->end || *r->at != '}') {
    for (;;) {
      if (!read_member(r, &n, object)) return false;
      skip_blanks(r);
      if (r->at < r->end && *r->at == '}') break;
      if (r->at >= r->end || *r->at != ',') return fail(r, r->at, "expected ',' or '}'");
      r->at++;
      skip_blanks(r);
    }
  }
  r->at++;
  lua_setmetatable(r->L, object);
  return true;
}

static bool read_array(reader *r) {
  lua_State *L = r->L;
  lua_newtable(L);
  lua_pushvalue(L, lua_upvalueindex(UP_ARRAY));
  lua_setmetatable(L, -2);
  r->at++;
  skip_blanks(r);
  if (r->at < r->end && *r->at == ']') {
    r->at++;
    return true;
  }
  for (lua_Integer n = 1;; n++) {
    if (!read_value(r)) return false;
    lua_rawseti(L, -2, n);
    skip_blanks(r);
    if (r->at < r->end && *r->at == ']') break;
    if (r->at >= r->end || *r->at != ',') return fail(r, r->at, "expected ',' or ']'");
    r->at++;
  }
  r->at++;
  return true;
}

static bool read_value(reader *r) {
  lua_State *L = r->L;
  skip_blanks(r);
  if (r->at >= r->end) return fail(r, r->at, "expected a value, found the end");
  switch (*r->at) {
    case '"': return read_string(r);
    case '{':
    case '[': {
      if (r->left == 0 || !lua_checkstack(L, 16)) return fail(r, r->at, lua_pushfstring(L, "nested deeper than %d", r->max_depth));
      r->left--;
      const bool ok = *r->at == '{' ? read_object(r) : read_array(r);
      r->left++;
      return ok;
    }
    case 't':
    case 'f': {
      const bool yes = *r->at == 't';
      if (!read_word(r, yes ? "true" : "false")) return false;
      lua_pushboolean(L, yes);
      return true;
    }
    case 'n':
      if (!read_word(r, "null")) return false;
      lua_pushvalue(L, lua_upvalueindex(UP_NULL));
      return true;
    default: return read_number(r);
  }
}

static int l_decode(lua_State *L) {
  size_t n;
  const char *text = luaL_checklstring(L, 1, &n);
  const int max_depth = (int)luaL_checkinteger(L, 2);
  reader r = {.L = L, .at = text, .end = text + n, .left = max_depth, .max_depth = max_depth};
  luaL_checkstack(L, 32, "JSON");
  if (read_value(&r)) {
    skip_blanks(&r);
    if (r.at == r.end) return 1;
    fail(&r, r.at, "something follows the value");
  }
  lua_pushnil(L);
  lua_pushstring(L, r.message);
  lua_pushinteger(L, r.at - text + 1);
  return 3;
}

static int l_json_decoder(lua_State *L) {
  static const char *const fields[] = {"array", "bigint", "null", "pairs", "newindex"};
  luaL_checktype(L, 1, LUA_TTABLE);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (lua_getfield(L, 1, fields[i]) == LUA_TNIL) return luaL_error(L, "shape '%s' is missing", fields[i]);
  lua_pushcclosure(L, l_decode, sizeof fields / sizeof *fields);
  return 1;
}

int mtx_bind_json(lua_State *L) {
  lua_pushcfunction(L, l_json_decoder);
  return 1;
}
