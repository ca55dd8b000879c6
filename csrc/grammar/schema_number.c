// SPDX-License-Identifier: MIT
// Numbers of a schema: bounds and multiples are decided digit by digit (decimal.c).
#include <string.h>

#include "grammar/regex.h"
#include "grammar/schema.h"

mtx_gx sc_free_number(mtx_sc *s, bool integer) {
  mtx_gx *slot = integer ? &s->integer : &s->number;
  if (*slot) return *slot;
  mtx_gb *b = s->b;
  const mtx_cprange d09 = {'0', '9'}, d19 = {'1', '9'}, ee[] = {{'E', 'E'}, {'e', 'e'}}, pm[] = {{'+', '+'}, {'-', '-'}};
  mtx_gx d = mtx_gx_class(b, &d09, 1, false);
  mtx_gx whole = mtx_gx_cat(b, (mtx_gx[]){mtx_gx_rep(b, mtx_gx_lit(b, "-", 1), 0, 1),
                                          mtx_gx_alt2(b, mtx_gx_lit(b, "0", 1),
                                                      mtx_gx_cat2(b, mtx_gx_class(b, &d19, 1, false),
                                                                  mtx_gx_rep(b, d, 0, MTX_NUMBER_MAX_DIGITS - 1)))}, 2);
  if (!integer) {
    mtx_gx frac = mtx_gx_rep(b, mtx_gx_cat2(b, mtx_gx_lit(b, ".", 1), mtx_gx_rep(b, d, 1, MTX_NUMBER_MAX_DIGITS)), 0, 1);
    mtx_gx exp = mtx_gx_cat(b, (mtx_gx[]){mtx_gx_class(b, ee, 2, false), mtx_gx_rep(b, mtx_gx_class(b, pm, 2, false), 0, 1),
                                          mtx_gx_rep(b, d, 1, 2)}, 3);
    whole = mtx_gx_cat(b, (mtx_gx[]){whole, frac, mtx_gx_rep(b, exp, 0, 1)}, 3);
  }
  uint32_t r = mtx_gb_rule(b, integer ? "integer" : "number", integer ? 7 : 6);
  mtx_gb_define(b, r, whole);
  return *slot = mtx_gx_ref(b, r);
}

static void take_bound(mtx_sc *s, mtx_number_range *r, uint32_t node, int side, bool open) {
  mtx_decimal d;
  if (sc_node(s, node)->kind != MTX_JSON_NUMBER) {
    sc_fail(s, MTX_EFORMAT, node, "bounds must be numbers");
    return;
  }
  if (!mtx_decimal_read(sc_text(s, node), sc_node(s, node)->n_text, &d)) {
    sc_unenforced(s, node, side > 0 ? "minimum" : "maximum", "the bound has too many digits");
    return;
  }
  bool *has = side > 0 ? &r->has_lo : &r->has_hi, *is_open = side > 0 ? &r->lo_open : &r->hi_open;
  mtx_decimal *bound = side > 0 ? &r->lo : &r->hi;
  int cmp = *has ? mtx_decimal_cmp(&d, bound) * side : 1;
  if (cmp > 0 || (cmp == 0 && open)) *bound = d, *is_open = open;
  *has = true;
}

static void gather_bounds(mtx_sc *s, uint32_t part, mtx_number_range *r) {
  static const struct {
    const char *key, *exclusive;
    int side;
  } keys[] = {{"minimum", "exclusiveMinimum", 1}, {"maximum", "exclusiveMaximum", -1}};
  for (int i = 0; i < 2; i++) {
    uint32_t n = sc_keyword(s, part, keys[i].key), x = sc_keyword(s, part, keys[i].exclusive);
    // draft-04 had true and false here
    const uint32_t no = sc_negated(s, part, keys[i].key), no_x = sc_negated(s, part, keys[i].exclusive);
    if (no != MTX_JSON_NONE) take_bound(s, r, no, -keys[i].side, true);
    if (no_x != MTX_JSON_NONE) take_bound(s, r, no_x, -keys[i].side, false);
    bool flag = x != MTX_JSON_NONE && (sc_node(s, x)->kind == MTX_JSON_TRUE || sc_node(s, x)->kind == MTX_JSON_FALSE);
    if (n != MTX_JSON_NONE) take_bound(s, r, n, keys[i].side, flag && sc_node(s, x)->kind == MTX_JSON_TRUE);
    if (x != MTX_JSON_NONE && !flag) take_bound(s, r, x, keys[i].side, true);
  }
}

static mtx_cdfa *with_multiples(mtx_sc *s, const sc_conj *c, mtx_cdfa *d, bool integer) {
  for (uint32_t i = 0; i < c->n && d; i++) {
    uint32_t n = sc_keyword(s, c->v[i], "multipleOf");
    if (n == MTX_JSON_NONE) continue;
    mtx_decimal m;
    bool number = sc_node(s, n)->kind == MTX_JSON_NUMBER;
    bool ok = number && mtx_decimal_read(sc_text(s, n), sc_node(s, n)->n_text, &m);
    if (!number || (ok && (m.negative || m.n_int + m.n_frac == 0))) {
      sc_fail(s, MTX_EFORMAT, n, "multipleOf must be a number above 0");
      break;
    }
    mtx_cdfa *mult = ok ? mtx_number_multiple_cdfa(&m, integer) : NULL, *both = mult ? mtx_cdfa_and(d, mult) : NULL;
    mtx_cdfa_free(mult);
    if (!both) {
      sc_unenforced(s, n, "multipleOf", "deciding it digit by digit needs too many states");
      continue;
    }
    mtx_cdfa_free(d);
    d = both;
  }
  return d;
}

typedef struct {
  mtx_cdfa *d;  // NULL: failed
  bool integer;
} exclusion;

static void subtract(exclusion *e, mtx_cdfa *x) {
  mtx_cdfa *left = e->d && x ? mtx_cdfa_minus(e->d, x) : NULL;
  mtx_cdfa_free(e->d);
  mtx_cdfa_free(x);
  e->d = left;
}

static void exclude(mtx_sc *s, uint32_t value, void *ctx) {
  exclusion *e = ctx;
  mtx_number_range r = {.integer = e->integer, .has_lo = true, .has_hi = true};
  if (sc_node(s, value)->kind != MTX_JSON_NUMBER || !mtx_decimal_read(sc_text(s, value), sc_node(s, value)->n_text, &r.lo)) return;
  r.hi = r.lo;
  if (e->d) subtract(e, mtx_number_range_cdfa(&r));
}

static mtx_cdfa *texts_of(const char *pattern) {
  mtx_regex re;
  mtx_err err;
  if (mtx_regex_parse(pattern, strlen(pattern), &re, &err)) return NULL;
  mtx_cdfa *d = mtx_regex_cdfa(&re);
  mtx_regex_fini(&re);
  return d;
}

// Takes out what conditions exclude: single values, multiples, whole numbers.
static mtx_cdfa *without_excluded(mtx_sc *s, const sc_conj *c, mtx_cdfa *d, uint32_t types) {
  exclusion e = {d, !(types & SC_NUM)};
  if (!(types & SC_INT)) {  // and what a double does not tell from a whole number
    mtx_cdfa *x = texts_of("^-?[0-9]{1,9}[.][0-9]{1,6}$"), *both = x ? mtx_cdfa_and(d, x) : NULL;
    mtx_cdfa_free(x);
    mtx_cdfa_free(d);
    e.d = both;
    subtract(&e, texts_of("[.]0+$"));
  }
  for (uint32_t i = 0; i < c->n && e.d; i++) {
    const uint32_t n = sc_negated(s, c->v[i], "multipleOf");
    mtx_decimal m;
    sc_each_excluded(s, c->v[i], exclude, &e);
    if (n == MTX_JSON_NONE || !e.d) continue;
    mtx_cdfa *mult = mtx_decimal_read(sc_text(s, n), sc_node(s, n)->n_text, &m) && !m.negative && m.n_int + m.n_frac ? mtx_number_multiple_cdfa(&m, e.integer) : NULL;
    if (mult)
      subtract(&e, mult);
    else
      sc_unenforced(s, n, "multipleOf", "deciding it digit by digit needs too many states");
  }
  if (!e.d) sc_fail(s, MTX_ELIMIT, SC_NODE(c->v[0]), "the numbers allowed here need too many states");
  return e.d;
}

static void note_number(mtx_sc *s, uint32_t value, void *any) { *(bool *)any |= sc_node(s, value)->kind == MTX_JSON_NUMBER; }

mtx_gx sc_number(mtx_sc *s, const sc_conj *c, uint32_t types) {
  const bool integer = !(types & SC_NUM);
  mtx_number_range r = {.integer = integer};
  bool decided = !(types & SC_INT);  // digit by digit
  for (uint32_t i = 0; i < c->n; i++) {
    gather_bounds(s, c->v[i], &r);
    decided |= sc_keyword(s, c->v[i], "multipleOf") != MTX_JSON_NONE || sc_negated(s, c->v[i], "multipleOf") != MTX_JSON_NONE;
    sc_each_excluded(s, c->v[i], note_number, &decided);
  }
  if (!r.has_lo && !r.has_hi && !decided) return sc_free_number(s, integer);
  mtx_cdfa *d = with_multiples(s, c, mtx_number_range_cdfa(&r), integer);
  if (d && decided) d = without_excluded(s, c, d, types);
  if (s->b->code) {
    mtx_cdfa_free(d);
    return MTX_GX_NEVER;
  }
  if (d && mtx_cdfa_is_empty(d)) {
    mtx_cdfa_free(d);
    return MTX_GX_NEVER;
  }
  return mtx_gx_dfa(s->b, d, false);
}
