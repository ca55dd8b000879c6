// SPDX-License-Identifier: MIT
// mtx.core.pattern: Lua's patterns (Reference Manual 5.4, section 6.4.1) with a
// bound on work. The standard library may backtrack for days inside one C call,
// where no instruction hook reaches; here a search that takes too many steps raises.
// The other functions of the family are built on this one in Lua
// (lua/mtx/serve/script/environment.lua).
#include <ctype.h>
#include <lauxlib.h>
#include <stdbool.h>
#include <string.h>

#include "bind/core.h"

enum { MAX_CAPTURES = 32, MAX_DEPTH = 200, MAX_STEPS = 20000000 };
enum { OPEN = -1, POSITION = -2 };  // lengths of captures that are no text (yet)

typedef struct {
  lua_State *L;
  const char *text, *end;      // whole text
  const char *pattern_end;
  int64_t steps;               // left
  int depth, n;
  struct { const char *at; ptrdiff_t len; } capture[MAX_CAPTURES];
} matcher;

static const char *match(matcher *m, const char *s, const char *p);

static void step(matcher *m, int64_t n) {
  m->steps -= n;
  if (m->steps < 0) luaL_error(m->L, "the pattern takes too long on this text");
}

static bool in_class(int c, int name) {
  bool yes;
  switch (tolower(name)) {
    case 'a': yes = isalpha(c); break;
    case 'c': yes = iscntrl(c); break;
    case 'd': yes = isdigit(c); break;
    case 'g': yes = isgraph(c); break;
    case 'l': yes = islower(c); break;
    case 'p': yes = ispunct(c); break;
    case 's': yes = isspace(c); break;
    case 'u': yes = isupper(c); break;
    case 'w': yes = isalnum(c); break;
    case 'x': yes = isxdigit(c); break;
    default: return name == c;
  }
  return isupper(name) ? !yes : yes;
}

// End of the single-character item that begins at p.
static const char *item_end(matcher *m, const char *p) {
  char c = *p++;
  if (c == '%') {
    if (p >= m->pattern_end) luaL_error(m->L, "malformed pattern (ends with '%%')");
    return p + 1;
  }
  if (c != '[') return p;
  if (p < m->pattern_end && *p == '^') p++;
  do {  // a ']' that comes first stands for itself
    if (p >= m->pattern_end) luaL_error(m->L, "malformed pattern (missing ']')");
    if (*p++ == '%') p++;
  } while (p >= m->pattern_end || *p != ']');
  return p + 1;
}

// Does the set p..last ('[' to ']') hold c?
static bool in_set(int c, const char *p, const char *last) {
  bool inside = true;
  if (*++p == '^') inside = false, p++;
  for (; p < last; p++) {
    if (*p == '%' && p + 1 < last) {
      if (in_class(c, (unsigned char)*++p)) return inside;
    } else if (p + 2 < last && p[1] == '-') {
      if ((unsigned char)*p <= c && c <= (unsigned char)p[2]) return inside;
      p += 2;
    } else if ((unsigned char)*p == c) {
      return inside;
    }
  }
  return !inside;
}

// Does the item p..next match the character at s?
static bool fits(matcher *m, const char *s, const char *p, const char *next) {
  if (s >= m->end) return false;
  int c = (unsigned char)*s;
  switch (*p) {
    case '.': return true;
    case '%': return in_class(c, (unsigned char)p[1]);
    case '[': step(m, (next - p) / 8); return in_set(c, p, next - 1);
    default: return (unsigned char)*p == c;
  }
}

static const char *balanced(matcher *m, const char *s, const char *p) {
  if (m->pattern_end - p < 2) luaL_error(m->L, "malformed pattern (missing arguments to '%%b')");
  if (s >= m->end || *s != p[0]) return NULL;
  int64_t level = 1;
  while (++s < m->end) {
    step(m, 1);
    if (*s == p[1]) {
      if (--level == 0) return s + 1;
    } else if (*s == p[0]) {
      level++;
    }
  }
  return NULL;
}

static int open_capture(matcher *m) {
  for (int i = m->n - 1; i >= 0; i--)
    if (m->capture[i].len == OPEN) return i;
  return luaL_error(m->L, "invalid pattern capture");
}

static const char *begin_capture(matcher *m, const char *s, const char *p, ptrdiff_t kind) {
  if (m->n >= MAX_CAPTURES) luaL_error(m->L, "too many captures");
  m->capture[m->n].at = s;
  m->capture[m->n++].len = kind;
  const char *e = match(m, s, p);
  if (!e) m->n--;
  return e;
}

static const char *end_capture(matcher *m, const char *s, const char *p) {
  int i = open_capture(m);
  m->capture[i].len = s - m->capture[i].at;
  const char *e = match(m, s, p);
  if (!e) m->capture[i].len = OPEN;
  return e;
}

static const char *same_as_capture(matcher *m, const char *s, int digit) {
  int i = digit - '1';
  if (i < 0 || i >= m->n || m->capture[i].len == OPEN) luaL_error(m->L, "invalid capture index %%%d in pattern", i + 1);
  ptrdiff_t len = m->capture[i].len;
  if (len == POSITION) return NULL;  // a place is never met again
  step(m, len / 8);
  return m->end - s >= len && memcmp(m->capture[i].at, s, (size_t)len) == 0 ? s + len : NULL;
}

// *, +: as many as there are, then fewer until the rest fits. -: the other way round.
static const char *longest(matcher *m, const char *s, const char *p, const char *next) {
  ptrdiff_t n = 0;
  while (fits(m, s + n, p, next)) n++, step(m, 1);
  for (; n >= 0; n--) {
    const char *e = match(m, s + n, next + 1);
    if (e) return e;
  }
  return NULL;
}

static const char *shortest(matcher *m, const char *s, const char *p, const char *next) {
  for (;; s++) {
    const char *e = match(m, s, next + 1);
    if (e) return e;
    if (!fits(m, s, p, next)) return NULL;
  }
}

// End of the match of pattern p at s, NULL when there is none.
static const char *match(matcher *m, const char *s, const char *p) {
  if (++m->depth > MAX_DEPTH) luaL_error(m->L, "pattern too complex");
  const char *found = NULL;
  for (;;) {
    step(m, 1);
    if (p >= m->pattern_end) {
      found = s;
      break;
    }
    if (*p == '(') {
      found = p + 1 < m->pattern_end && p[1] == ')' ? begin_capture(m, s, p + 2, POSITION) : begin_capture(m, s, p + 1, OPEN);
      break;
    }
    if (*p == ')') {
      found = end_capture(m, s, p + 1);
      break;
    }
    if (*p == '$' && p + 1 == m->pattern_end) {
      found = s == m->end ? s : NULL;
      break;
    }
    if (*p == '%' && p + 1 < m->pattern_end && (p[1] == 'b' || p[1] == 'f' || isdigit((unsigned char)p[1]))) {
      if (p[1] == 'b') {
        s = balanced(m, s, p + 2);
        p += 4;
      } else if (p[1] == 'f') {
        p += 2;
        if (p >= m->pattern_end || *p != '[') luaL_error(m->L, "missing '[' after '%%f' in pattern");
        const char *next = item_end(m, p);
        int before = s == m->text ? 0 : (unsigned char)s[-1], here = s < m->end ? (unsigned char)*s : 0;
        if (in_set(before, p, next - 1) || !in_set(here, p, next - 1)) s = NULL;
        p = next;
      } else {
        s = same_as_capture(m, s, (unsigned char)p[1]);
        p += 2;
      }
      if (!s) break;
      continue;
    }
    const char *next = item_end(m, p);
    char many = next < m->pattern_end ? *next : 0;
    if (many == '*' || (many == '+' && fits(m, s, p, next))) {
      found = longest(m, many == '+' ? s + 1 : s, p, next);
      break;
    }
    if (many == '-') {
      found = shortest(m, s, p, next);
      break;
    }
    bool one = fits(m, s, p, next);
    if (many == '?') {
      if (one && (found = match(m, s + 1, next + 1))) break;
      p = next + 1;
      continue;
    }
    if (!one) break;  // a '+' without a first one too
    s++;
    p = next;
  }
  m->depth--;
  return found;
}

static void push_capture(matcher *m, int i) {
  ptrdiff_t len = m->capture[i].len;
  if (len == OPEN) luaL_error(m->L, "unfinished capture");
  if (len == POSITION) lua_pushinteger(m->L, m->capture[i].at - m->text + 1);
  else lua_pushlstring(m->L, m->capture[i].at, (size_t)len);
}

// find(text, pattern, from, literal) -> first, last, captures... or nothing. from >= 1; literal: '^' is no anchor.
static int l_pattern_find(lua_State *L) {
  size_t n_text, n_pattern;
  const char *text = luaL_checklstring(L, 1, &n_text), *p = luaL_checklstring(L, 2, &n_pattern);
  lua_Integer from = luaL_checkinteger(L, 3);
  luaL_argcheck(L, from >= 1, 3, "must be at least 1");
  if ((lua_Unsigned)from > n_text + 1) return 0;
  matcher m = {.L = L, .text = text, .end = text + n_text, .pattern_end = p + n_pattern, .steps = MAX_STEPS};
  bool anchored = n_pattern > 0 && *p == '^' && !lua_toboolean(L, 4);
  for (const char *s = text + from - 1; s <= m.end; s++) {
    m.depth = m.n = 0;
    const char *e = match(&m, s, p + anchored);
    if (e) {
      luaL_checkstack(L, m.n + 2, "captures");
      lua_pushinteger(L, s - text + 1);
      lua_pushinteger(L, e - text);
      for (int i = 0; i < m.n; i++) push_capture(&m, i);
      return m.n + 2;
    }
    if (anchored) break;
  }
  return 0;
}

int mtx_bind_pattern(lua_State *L) {
  static const luaL_Reg functions[] = {{"find", l_pattern_find}, {NULL, NULL}};
  luaL_newlib(L, functions);
  return 1;
}
