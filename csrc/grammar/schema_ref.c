// SPDX-License-Identifier: MIT
// $ref and what it points to: pointers, anchors, and schemas with an $id of their own.
//
// A schema with $id is a document of its own inside the document: references in it are
// relative to its address, and other places may name it by that (RFC 3986, section 5; JSON
// Schema Core, section 9). Nothing is ever fetched.
#include <string.h>

#include "grammar/schema.h"
#include "grammar/text.h"

#define MAX_URI 1000u

typedef struct {
  char text[MAX_URI + 1];
  size_t n;  // above MAX_URI: too long
} uri;

static bool is(const mtx_sc *s, uint32_t node, const char *const *list) {
  for (; *list; list++)
    if (!strcmp(s->j->pool + sc_node(s, node)->key, *list)) return true;
  return false;
}

// Does a schema stand here? Then *outer is the schema it belongs to (none for the root).
static bool in_schema(const mtx_sc *s, uint32_t node, uint32_t *outer) {
  static const char *const one[] = {"items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains",
                                    "propertyNames", "not", "if", "then", "else", NULL};
  static const char *const lists[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items", NULL};
  static const char *const maps[] = {"$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies", NULL};
  const uint32_t p = sc_node(s, node)->parent;
  *outer = p;
  if (node == 0) return true;
  if (sc_node(s, p)->kind == MTX_JSON_OBJECT && is(s, node, one)) return true;
  if (p == 0) return false;
  *outer = sc_node(s, p)->parent;
  return sc_node(s, *outer)->kind == MTX_JSON_OBJECT && is(s, p, sc_node(s, p)->kind == MTX_JSON_ARRAY ? lists : maps);
}

static bool is_schema(const mtx_sc *s, uint32_t node) {
  while (node) {
    uint32_t outer;
    if (!in_schema(s, node, &outer)) return false;
    node = outer;
  }
  return true;
}

// ---- addresses --------------------------------------------------------------------------------

static void append(uri *u, const char *p, size_t n) {
  if (u->n > MAX_URI || n > MAX_URI - u->n) {
    u->n = MAX_URI + 1;
    return;
  }
  memcpy(u->text + u->n, p, n);
  u->text[u->n += n] = 0;
}

// Length of "scheme:", or 0.
static size_t scheme_of(const char *p, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const char c = p[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == ':' && i) return i + 1;
    if (!letter && (!i || !((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.'))) return 0;
  }
  return 0;
}

// Where the path begins: after "scheme://authority" or "scheme:".
static size_t path_of(const uri *u) {
  size_t at = scheme_of(u->text, u->n);
  if (u->n - at >= 2 && !memcmp(u->text + at, "//", 2))
    for (at += 2; at < u->n && u->text[at] != '/'; at++) {}
  return at;
}

static bool takes(const char **p, size_t *n, const char *prefix) {
  const size_t k = strlen(prefix);
  if (*n < k || memcmp(*p, prefix, k)) return false;
  *p += k;
  *n -= k;
  return true;
}

static void drop_segment(uri *u) {
  const size_t path = path_of(u);
  if (u->n > path + 1) u->n--;  // its slash
  while (u->n > path && u->text[u->n - 1] != '/') u->n--;
}

// base with the reference p[0..n), which has no fragment.
static uri resolve(const uri *base, const char *p, size_t n) {
  if (base->n > MAX_URI) return *base;
  const size_t path = path_of(base);
  uri u = {.n = 0};
  size_t keep = base->n;
  if (scheme_of(p, n))
    keep = 0;
  else if (n >= 2 && !memcmp(p, "//", 2))
    keep = scheme_of(base->text, base->n);
  else if (n && p[0] == '/')
    keep = path;
  else if (n)
    while (keep > path && base->text[keep - 1] != '/') keep--;
  append(&u, base->text, keep);
  if (keep && keep == path && n && p[0] != '/') append(&u, "/", 1);
  while (keep && u.n <= MAX_URI) {
    if (takes(&p, &n, "../"))
      drop_segment(&u);
    else if (!takes(&p, &n, "./"))
      break;
  }
  append(&u, p, n);
  return u;
}

static size_t before_fragment(const char *p, size_t n) {
  const char *hash = memchr(p, '#', n);
  return hash ? (size_t)(hash - p) : n;
}

// The $id that makes `node` a document of its own, or MTX_JSON_NONE.
static uint32_t own_id(const mtx_sc *s, uint32_t node) {
  const uint32_t id = sc_node(s, node)->kind == MTX_JSON_OBJECT ? sc_get(s, node, "$id") : MTX_JSON_NONE;
  if (id == MTX_JSON_NONE || sc_node(s, id)->kind != MTX_JSON_STRING || !before_fragment(sc_text(s, id), sc_node(s, id)->n_text)) return MTX_JSON_NONE;
  if (s->draft7 && sc_get(s, node, "$ref") != MTX_JSON_NONE) return MTX_JSON_NONE;  // neighbours of $ref do not count
  return is_schema(s, node) ? id : MTX_JSON_NONE;
}

// The schema around `node` that is a document of its own: the root if no other.
static uint32_t document_of(const mtx_sc *s, uint32_t node) {
  while (node && own_id(s, node) == MTX_JSON_NONE) node = sc_node(s, node)->parent;
  return node;
}

static uri address_of(const mtx_sc *s, uint32_t document) {
  uint32_t chain[MTX_JSON_MAX_DEPTH + 2];
  int n = 0;
  for (uint32_t i = document;; i = document_of(s, sc_node(s, i)->parent)) {
    chain[n++] = i;
    if (!i || n > MTX_JSON_MAX_DEPTH) break;
  }
  uri u = {.n = 0};
  while (n-- > 0) {
    const uint32_t id = own_id(s, chain[n]);
    if (id != MTX_JSON_NONE && u.n <= MAX_URI) u = resolve(&u, sc_text(s, id), before_fragment(sc_text(s, id), sc_node(s, id)->n_text));
  }
  return u;
}

static uint32_t find_document(mtx_sc *s, const uri *u) {
  if (u->n > MAX_URI) return MTX_JSON_NONE;
  for (uint32_t i = 0; i < s->j->n_nodes; i++) {
    if (!(i & 255) && !mtx_gb_in_time(s->b)) break;
    if (i && own_id(s, i) == MTX_JSON_NONE) continue;
    const uri own = address_of(s, i);
    if (own.n == u->n && !memcmp(own.text, u->text, u->n)) return i;
  }
  return MTX_JSON_NONE;
}

// ---- inside a document ----------------------------------------------------------------------------

static size_t decode_pointer_step(const char *p, size_t n, char *out, size_t cap) {
  size_t k = 0;
  for (size_t i = 0; i < n && k < cap; i++) {
    uint32_t v;
    if (p[i] == '%' && mtx_hex_get(p + i + 1, n - i - 1, 2, &v)) {
      out[k++] = (char)v;
      i += 2;
    } else if (p[i] == '~' && i + 1 < n && (p[i + 1] == '0' || p[i + 1] == '1')) {
      out[k++] = p[++i] == '0' ? '~' : '/';
    } else {
      out[k++] = p[i];
    }
  }
  return k;
}

static uint32_t follow_pointer(mtx_sc *s, uint32_t node, const char *p, size_t n) {
  while (n && node != MTX_JSON_NONE) {
    p++, n--;  // the slash
    size_t len = 0;
    while (len < n && p[len] != '/') len++;
    char step[512];
    size_t k = decode_pointer_step(p, len, step, sizeof step - 1);
    step[k] = 0;
    if (sc_node(s, node)->kind == MTX_JSON_ARRAY) {
      unsigned long i = strtoul(step, NULL, 10);
      node = sc_node(s, node)->first;
      while (i-- > 0 && node != MTX_JSON_NONE) node = sc_node(s, node)->next;
    } else {
      node = mtx_json_get_n(s->j, node, step, k);
    }
    p += len;
    n -= len;
  }
  return node;
}

static bool is_text(const mtx_sc *s, uint32_t node, const char *prefix, const char *p, size_t n) {
  const size_t k = strlen(prefix);
  return node != MTX_JSON_NONE && sc_node(s, node)->kind == MTX_JSON_STRING && sc_node(s, node)->n_text == k + n &&
         !memcmp(sc_text(s, node), prefix, k) && !memcmp(sc_text(s, node) + k, p, n);
}

// Draft-07 spelled anchors as an $id of "#name".
static uint32_t find_anchor(mtx_sc *s, uint32_t document, const char *p, size_t n) {
  for (uint32_t i = 0; i < s->j->n_nodes; i++) {
    if (!(i & 255) && !mtx_gb_in_time(s->b)) break;
    if (sc_node(s, i)->kind != MTX_JSON_OBJECT) continue;
    if ((is_text(s, sc_get(s, i, "$anchor"), "", p, n) || is_text(s, sc_get(s, i, "$dynamicAnchor"), "", p, n) ||
         is_text(s, sc_get(s, i, "$id"), "#", p, n)) && document_of(s, i) == document && is_schema(s, i))
      return i;
  }
  return MTX_JSON_NONE;
}

uint32_t sc_resolve(mtx_sc *s, uint32_t ref) {
  if (sc_node(s, ref)->kind != MTX_JSON_STRING) {
    sc_fail(s, MTX_EFORMAT, ref, "$ref must be a string");
    return MTX_JSON_NONE;
  }
  const char *p = sc_text(s, ref);
  const size_t n = sc_node(s, ref)->n_text, n_uri = before_fragment(p, n);
  const int shown = (int)(n < 100 ? n : 100);
  uint32_t document = document_of(s, sc_node(s, ref)->parent);
  if (n_uri) {
    const uri base = address_of(s, document), target = resolve(&base, p, n_uri);
    document = find_document(s, &target);
    if (document == MTX_JSON_NONE) {
      sc_fail(s, MTX_EUNSUPPORTED, ref, "$ref to another document is not supported: %.*s; put it under $defs", shown, p);
      return MTX_JSON_NONE;
    }
  }
  const char *fragment = p + n_uri + (n_uri < n);
  const size_t n_fragment = n - (size_t)(fragment - p);
  uint32_t target = document;
  if (n_fragment) target = fragment[0] == '/' ? follow_pointer(s, document, fragment, n_fragment) : find_anchor(s, document, fragment, n_fragment);
  if (target == MTX_JSON_NONE) sc_fail(s, MTX_ENOTFOUND, ref, "$ref points to nothing: %.*s", shown, p);
  return target;
}
