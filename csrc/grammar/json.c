// SPDX-License-Identifier: MIT
// The reader of json.h; no recursion, depth is limited.
#include "grammar/json.h"

#include <string.h>

#include "grammar/decimal.h"
#include "grammar/text.h"

typedef struct {
  mtx_json *j;
  const char *text;
  size_t len, at;
  mtx_err *err;
  mtx_code code;
} reader;

static uint32_t bad(reader *r, size_t at, const char *what) {
  if (!r->code) r->code = mtx_fail_at(r->err, MTX_EFORMAT, NULL, NULL, at, "JSON: %s at byte %zu", what, at);
  return 0;
}

static void skip(reader *r) {
  while (r->at < r->len && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at]) r->at++;
}

static int peek(const reader *r) { return r->at < r->len ? (unsigned char)r->text[r->at] : -1; }

static void pool_put(reader *r, const char *p, size_t n) {
  if (!MTX_VEC_GROW(r->j, pool, (uint32_t)n, 64u << 20)) {
    if (!r->code) r->code = mtx_fail(r->err, MTX_ELIMIT, "JSON: the text is too large");
    return;
  }
  memcpy(r->j->pool + r->j->n_pool, p, n);
  r->j->n_pool += (uint32_t)n;
}

static void read_escape(reader *r) {
  static const char *const map = "\"\"\\\\//b\bf\fn\nr\rt\t";
  const size_t at = r->at++;
  int c = peek(r);
  uint32_t v, low;
  char out[4];
  r->at++;
  if (c == 'u') {
    if (r->at > r->len || !mtx_hex_get(r->text + r->at, r->len - r->at, 4, &v)) {
      bad(r, at, "\\u without four digits");
      return;
    }
    r->at += 4;
    if (v >= 0xd800 && v <= 0xdbff && r->len - r->at >= 6 && !memcmp(r->text + r->at, "\\u", 2) &&
        mtx_hex_get(r->text + r->at + 2, 4, 4, &low) && low >= 0xdc00 && low <= 0xdfff) {
      r->at += 6;
      v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
    }
    if (v >= 0xd800 && v <= 0xdfff) {
      bad(r, at, "half of a surrogate pair");
      return;
    }
    pool_put(r, out, mtx_utf8_put(v, out));
    return;
  }
  for (const char *p = map; *p; p += 2)
    if (*p == c) {
      pool_put(r, p + 1, 1);
      return;
    }
  bad(r, at, "unknown escape");
}

static void read_string(reader *r, uint32_t *text, uint32_t *n) {
  const size_t open = r->at++;
  *text = r->j->n_pool;
  while (!r->code && peek(r) != '"') {
    uint32_t c;
    size_t k;
    if (peek(r) < 0) {
      bad(r, open, "unfinished string");
    } else if (peek(r) == '\\') {
      read_escape(r);
    } else if (peek(r) < 0x20) {
      bad(r, r->at, "control character in a string");
    } else if (!(k = mtx_utf8_get(r->text + r->at, r->len - r->at, &c))) {
      bad(r, r->at, "invalid UTF-8");
    } else {
      pool_put(r, r->text + r->at, k);
      r->at += k;
    }
  }
  r->at++;
  *n = r->j->n_pool - *text;
  pool_put(r, "", 1);
}

static size_t digits(reader *r) {
  size_t from = r->at;
  while (peek(r) >= '0' && peek(r) <= '9') r->at++;
  return r->at - from;
}

static void read_number(reader *r, mtx_jnode *n) {
  const size_t from = r->at;
  n->kind = MTX_JSON_NUMBER;
  if (peek(r) == '-') r->at++;
  int first = peek(r);
  size_t k = digits(r);
  if (k == 0 || (first == '0' && k > 1)) bad(r, from, "malformed number");
  if (peek(r) == '.') {
    r->at++;
    if (!digits(r)) bad(r, from, "malformed number");
  }
  if (peek(r) == 'e' || peek(r) == 'E') {
    r->at++;
    if (peek(r) == '+' || peek(r) == '-') r->at++;
    if (!digits(r)) bad(r, from, "malformed number");
  }
  n->text = r->j->n_pool;
  n->n_text = (uint32_t)(r->at - from);
  pool_put(r, r->text + from, r->at - from);
  pool_put(r, "", 1);
}

static bool word(reader *r, const char *w) {
  size_t n = strlen(w);
  if (r->len - r->at < n || memcmp(r->text + r->at, w, n)) return false;
  r->at += n;
  return true;
}

static void read_scalar(reader *r, mtx_jnode *n) {
  int c = peek(r);
  if (c == '"') {
    n->kind = MTX_JSON_STRING;
    read_string(r, &n->text, &n->n_text);
  } else if (c == '-' || (c >= '0' && c <= '9')) {
    read_number(r, n);
  } else if (c == '[' || c == '{') {
    n->kind = c == '[' ? MTX_JSON_ARRAY : MTX_JSON_OBJECT;
    r->at++;
  } else if (word(r, "true")) {
    n->kind = MTX_JSON_TRUE;
  } else if (word(r, "false")) {
    n->kind = MTX_JSON_FALSE;
  } else if (word(r, "null")) {
    n->kind = MTX_JSON_NULL;
  } else {
    bad(r, r->at, c < 0 ? "the text ends too early" : "unexpected character");
  }
}

typedef struct {
  uint32_t node, last;  // container, its last child
} level;

// Reads one value (key first inside objects) and hangs it under the container.
static uint32_t read_value(reader *r, level *up) {
  mtx_json *j = r->j;
  mtx_jnode n = {.first = MTX_JSON_NONE, .next = MTX_JSON_NONE, .parent = up ? up->node : MTX_JSON_NONE};
  if (up && j->nodes[up->node].kind == MTX_JSON_OBJECT) {
    if (peek(r) != '"') return bad(r, r->at, "expected a key");
    read_string(r, &n.key, &n.n_key);
    skip(r);
    if (!r->code && peek(r) != ':') return bad(r, r->at, "expected ':'");
    r->at++;
    skip(r);
  }
  n.offset = (uint32_t)r->at;
  if (!r->code) read_scalar(r, &n);
  if (r->code) return 0;
  if (!MTX_VEC_GROW(j, nodes, 1, 4u << 20)) return bad(r, r->at, "too many values");
  uint32_t i = j->n_nodes++;
  j->nodes[i] = n;
  if (up) {
    if (up->last == MTX_JSON_NONE)
      j->nodes[up->node].first = i;
    else
      j->nodes[up->last].next = i;
    up->last = i;
    j->nodes[up->node].n_kids++;
  }
  return i;
}

mtx_code mtx_json_parse(const char *text, size_t len, mtx_json *out, mtx_err *err) {
  memset(out, 0, sizeof *out);
  if (len > 16u << 20) return mtx_fail(err, MTX_ELIMIT, "JSON: the text is too large");
  reader r = {.j = out, .text = text, .len = len, .err = err};
  level stack[MTX_JSON_MAX_DEPTH];
  int depth = 0;
  skip(&r);
  uint32_t i = read_value(&r, NULL);
  bool opened = !r.code && out->nodes[i].kind >= MTX_JSON_ARRAY;
  if (opened) stack[depth++] = (level){i, MTX_JSON_NONE};
  while (!r.code && depth) {
    level *top = stack + depth - 1;
    const char close = out->nodes[top->node].kind == MTX_JSON_ARRAY ? ']' : '}';
    skip(&r);
    if (peek(&r) == close && (opened || top->last != MTX_JSON_NONE)) {
      r.at++;
      depth--;
      opened = false;
      continue;
    }
    if (!opened) {
      if (peek(&r) != ',') {
        bad(&r, r.at, "expected ',' or the end of the container");
        break;
      }
      r.at++;
      skip(&r);
    }
    i = read_value(&r, top);
    if (r.code) break;
    opened = out->nodes[i].kind >= MTX_JSON_ARRAY;
    if (!opened) continue;
    if (depth == MTX_JSON_MAX_DEPTH)
      bad(&r, r.at, "nested too deeply");
    else
      stack[depth++] = (level){i, MTX_JSON_NONE};
  }
  skip(&r);
  if (!r.code && r.at < len) bad(&r, r.at, "more text after the value");
  if (r.code) mtx_json_fini(out);
  return r.code;
}

void mtx_json_fini(mtx_json *j) {
  free(j->nodes);
  free(j->pool);
  memset(j, 0, sizeof *j);
}

uint32_t mtx_json_get_n(const mtx_json *j, uint32_t object, const char *key, size_t n_key) {
  uint32_t found = MTX_JSON_NONE;
  if (j->nodes[object].kind != MTX_JSON_OBJECT) return found;
  for (uint32_t i = j->nodes[object].first; i != MTX_JSON_NONE; i = j->nodes[i].next)
    if (j->nodes[i].n_key == n_key && !memcmp(j->pool + j->nodes[i].key, key, n_key)) found = i;
  return found;
}

uint32_t mtx_json_get(const mtx_json *j, uint32_t object, const char *key) {
  return mtx_json_get_n(j, object, key, strlen(key));
}

// Recursion is bounded by MTX_JSON_MAX_DEPTH.
bool mtx_json_equal(const mtx_json *j, uint32_t x, uint32_t y) {
  const mtx_jnode *a = j->nodes + x, *b = j->nodes + y;
  if (a->kind != b->kind) return false;
  if (a->kind == MTX_JSON_STRING) return a->n_text == b->n_text && !memcmp(j->pool + a->text, j->pool + b->text, a->n_text);
  if (a->kind == MTX_JSON_NUMBER) {
    mtx_decimal p, q;
    if (!mtx_decimal_read(j->pool + a->text, a->n_text, &p) || !mtx_decimal_read(j->pool + b->text, b->n_text, &q))
      return a->n_text == b->n_text && !memcmp(j->pool + a->text, j->pool + b->text, a->n_text);
    return mtx_decimal_cmp(&p, &q) == 0;
  }
  if (a->kind < MTX_JSON_ARRAY) return true;
  if (a->n_kids != b->n_kids) return false;
  uint32_t k = b->first;
  for (uint32_t i = a->first; i != MTX_JSON_NONE; i = j->nodes[i].next) {
    if (a->kind == MTX_JSON_OBJECT) k = mtx_json_get_n(j, y, j->pool + j->nodes[i].key, j->nodes[i].n_key);
    if (k == MTX_JSON_NONE || !mtx_json_equal(j, i, k)) return false;
    if (a->kind == MTX_JSON_ARRAY) k = j->nodes[k].next;
  }
  return true;
}
