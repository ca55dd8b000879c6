// SPDX-License-Identifier: MIT
// Values as a schema spells them (const, enum, keys), and any value at all.
#include <stdio.h>
#include <string.h>

#include "grammar/schema.h"
#include "grammar/text.h"

static size_t escape(uint32_t c, const char *raw, size_t n_raw, bool ascii, char out[16]) {
  static const char *const shorts = "\"\"\\\\\bb\ff\nn\rr\tt";
  for (const char *p = shorts; *p; p += 2)
    if ((uint32_t)*p == c) return out[0] = '\\', out[1] = p[1], 2;
  if (c >= 0x20 && (c < 0x7f || !ascii)) return memcpy(out, raw, n_raw), n_raw;
  if (c >= 0x10000)
    return (size_t)snprintf(out, 16, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
  return (size_t)snprintf(out, 16, "\\u%04x", c);
}

// The string in its usual spelling, and, if it has other than ASCII
// characters, in the one that escapes them.
mtx_gx sc_string_literal(mtx_sc *s, const char *p, size_t n) {
  if (n > 1u << 22) {
    sc_fail(s, MTX_ELIMIT, 0, "a literal string is too long");
    return MTX_GX_NEVER;
  }
  char *buf = malloc(6 * n + 4), tmp[16];
  mtx_gx x[2];
  int n_x = 0;
  bool ascii = true;
  if (!buf) {
    mtx_gb_fail(s->b, MTX_ENOMEM, 0, "out of memory");
    return MTX_GX_NEVER;
  }
  for (size_t i = 0; i < n && ascii; i++) ascii = (uint8_t)p[i] < 0x7f;
  for (int spelling = 0; spelling < (ascii ? 1 : 2); spelling++) {
    size_t k = 0, len;
    buf[k++] = '"';
    for (size_t at = 0; at < n; at += len) {
      uint32_t c;
      len = mtx_utf8_get(p + at, n - at, &c);
      if (!len) break;
      size_t m = escape(c, p + at, len, spelling == 1, tmp);
      memcpy(buf + k, tmp, m);
      k += m;
    }
    buf[k++] = '"';
    x[n_x++] = mtx_gx_lit(s->b, buf, k);
  }
  free(buf);
  return mtx_gx_alt(s->b, x, (size_t)n_x);
}

// The number as the schema spells it, and as a plain integer if it is one.
static mtx_gx number_literal(mtx_sc *s, const char *p, size_t n) {
  mtx_decimal d;
  char plain[MTX_DECIMAL_DIGITS + 2];
  size_t k = 0;
  mtx_gx x = mtx_gx_lit(s->b, p, n);
  if (!mtx_decimal_read(p, n, &d) || !mtx_decimal_is_integer(&d)) return x;
  if (d.negative) plain[k++] = '-';
  if (d.n_int == 0) plain[k++] = '0';
  memcpy(plain + k, d.digits, (size_t)d.n_int);
  k += (size_t)d.n_int;
  return k == n && !memcmp(p, plain, n) ? x : mtx_gx_alt2(s->b, x, mtx_gx_lit(s->b, plain, k));
}

static mtx_gx object_in_any_order(mtx_sc *s, uint32_t value) {
  mtx_gb *b = s->b;
  gb_item items[GR_SET_BITS];
  gr_set set = {.max = UINT32_MAX};
  uint32_t n = 0;
  for (uint32_t i = sc_node(s, value)->first; i != MTX_JSON_NONE && !b->code; i = sc_node(s, i)->next, n++) {
    items[n] = (gb_item){mtx_gb_rule(b, "member", 6), (int32_t)n};
    mtx_gx key = sc_string_literal(s, s->j->pool + sc_node(s, i)->key, sc_node(s, i)->n_key);
    mtx_gb_define(b, items[n].rule, mtx_gx_cat(b, (mtx_gx[]){key, s->colon, sc_literal(s, i)}, 3));
    set.required |= 1ull << n;
  }
  uint32_t r = mtx_gb_rule(b, "members", 7);
  mtx_gb_define_set(b, r, &set, items, n, s->comma);
  return mtx_gx_cat(b, (mtx_gx[]){mtx_gx_lit(b, "{", 1), s->blank, mtx_gx_ref(b, r), s->blank, mtx_gx_lit(b, "}", 1)}, 5);
}

// Recursion is bounded by MTX_JSON_MAX_DEPTH.
mtx_gx sc_literal(mtx_sc *s, uint32_t value) {
  const mtx_jnode *n = sc_node(s, value);
  mtx_gb *b = s->b;
  if (s->as_text) {
    const bool writable = n->kind == MTX_JSON_STRING && (!s->texts || mtx_cdfa_match(s->texts, sc_text(s, value), n->n_text));
    return writable ? mtx_gx_lit(b, sc_text(s, value), n->n_text) : MTX_GX_NEVER;
  }
  switch (n->kind) {
    case MTX_JSON_NULL: return mtx_gx_lit(b, "null", 4);
    case MTX_JSON_TRUE: return mtx_gx_lit(b, "true", 4);
    case MTX_JSON_FALSE: return mtx_gx_lit(b, "false", 5);
    case MTX_JSON_NUMBER: return number_literal(s, sc_text(s, value), n->n_text);
    case MTX_JSON_STRING: return sc_string_literal(s, sc_text(s, value), n->n_text);
    default: break;
  }
  const bool object = n->kind == MTX_JSON_OBJECT;
  if (object && s->opts.any_order && n->n_kids > 1 && n->n_kids <= GR_SET_BITS) return object_in_any_order(s, value);
  mtx_gx x = mtx_gx_cat2(b, mtx_gx_lit(b, object ? "{" : "[", 1), s->blank);
  for (uint32_t i = n->first; i != MTX_JSON_NONE && !b->code; i = sc_node(s, i)->next) {
    if (i != n->first) x = mtx_gx_cat2(b, x, s->comma);
    if (object)
      x = mtx_gx_cat(b, (mtx_gx[]){x, sc_string_literal(s, s->j->pool + sc_node(s, i)->key, sc_node(s, i)->n_key), s->colon}, 3);
    x = mtx_gx_cat2(b, x, sc_literal(s, i));
  }
  return mtx_gx_cat(b, (mtx_gx[]){x, s->blank, mtx_gx_lit(b, object ? "}" : "]", 1)}, 3);
}

mtx_gx sc_any(mtx_sc *s) {
  if (s->as_text) return sc_free_string(s);
  if (s->any) return s->any;
  mtx_gb *b = s->b;
  uint32_t any = mtx_gb_rule(b, "any", 3), object = mtx_gb_rule(b, "object", 6), array = mtx_gb_rule(b, "array", 5);
  s->any = mtx_gx_ref(b, any);
  mtx_gx member = mtx_gx_cat(b, (mtx_gx[]){sc_free_string(s), s->colon, s->any}, 3);
  mtx_gx members = mtx_gx_cat2(b, member, mtx_gx_rep(b, mtx_gx_cat2(b, s->comma, member), 0, MTX_REP_INF));
  mtx_gx items = mtx_gx_cat2(b, s->any, mtx_gx_rep(b, mtx_gx_cat2(b, s->comma, s->any), 0, MTX_REP_INF));
  mtx_gb_define(b, object, mtx_gx_cat(b, (mtx_gx[]){mtx_gx_lit(b, "{", 1), s->blank, mtx_gx_rep(b, members, 0, 1), s->blank,
                                                    mtx_gx_lit(b, "}", 1)}, 5));
  mtx_gb_define(b, array, mtx_gx_cat(b, (mtx_gx[]){mtx_gx_lit(b, "[", 1), s->blank, mtx_gx_rep(b, items, 0, 1), s->blank,
                                                   mtx_gx_lit(b, "]", 1)}, 5));
  mtx_gb_define(b, any, mtx_gx_alt(b, (mtx_gx[]){mtx_gx_ref(b, object), mtx_gx_ref(b, array), sc_free_string(s), sc_free_number(s, false),
                                                 mtx_gx_lit(b, "true", 4), mtx_gx_lit(b, "false", 5), mtx_gx_lit(b, "null", 4)}, 7));
  return s->any;
}
