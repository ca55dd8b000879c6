// SPDX-License-Identifier: MIT
// Strings of a schema.
//
// A free string may use every escape of JSON. A string that must meet a
// pattern, a format or an enum is written one way only (see nfa.c), so that
// comparing texts stays exact.
#include <stdio.h>
#include <string.h>

#include "grammar/regex.h"
#include "grammar/schema.h"
#include "grammar/text.h"

#define MAX_STOP_BYTES 200

// ---- strings without content rules ----------------------------------------------------------

static mtx_gx hex_class(mtx_gb *b, const char *pairs) {
  mtx_cprange r[8];
  size_t n = 0;
  for (; *pairs; pairs += 2) r[n++] = (mtx_cprange){(uint8_t)pairs[0], (uint8_t)pairs[1]};
  return mtx_gx_class(b, r, n, false);
}

// One character of a string; in JSON a pair of surrogate escapes is one.
static mtx_gx any_char(const mtx_sc *s) {
  mtx_gb *b = s->b;
  if (s->as_text) return mtx_gx_class(b, NULL, 0, true);
  const mtx_cprange not_plain[] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
  const mtx_cprange shorts[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'},
                                {'n', 'n'}, {'r', 'r'}, {'t', 't'}};
  mtx_gx hex = hex_class(b, "09AFaf"), u = mtx_gx_lit(b, "u", 1), slash = mtx_gx_lit(b, "\\", 1);
  mtx_gx hex2 = mtx_gx_cat2(b, hex, hex), d = hex_class(b, "DDdd");
  mtx_gx plain4 = mtx_gx_alt2(b, mtx_gx_cat(b, (mtx_gx[]){hex_class(b, "09ACEFacef"), hex, hex2}, 3),
                              mtx_gx_cat(b, (mtx_gx[]){d, hex_class(b, "07"), hex2}, 3));
  mtx_gx pair = mtx_gx_cat(b, (mtx_gx[]){d, hex_class(b, "89ABab"), hex2, slash, u, d, hex_class(b, "CFcf"), hex2}, 8);
  mtx_gx escaped = mtx_gx_alt2(b, mtx_gx_class(b, shorts, 8, false), mtx_gx_cat2(b, u, mtx_gx_alt2(b, plain4, pair)));
  return mtx_gx_alt2(b, mtx_gx_class(b, not_plain, 3, true), mtx_gx_cat2(b, slash, escaped));
}

static mtx_gx quoted(mtx_sc *s, mtx_gx x) {
  if (s->as_text) return x;
  mtx_gx q = mtx_gx_lit(s->b, "\"", 1);
  return mtx_gx_cat(s->b, (mtx_gx[]){q, x, q}, 3);
}

mtx_gx sc_quoted_leaf(mtx_sc *s, mtx_gx x) {
  return quoted(s, mtx_gx_ref(s->b, mtx_gb_rule_of(s->b, x, "text")));
}

static mtx_gx text_of(mtx_sc *s, mtx_cdfa *d) { return mtx_gx_dfa(s->b, d, !s->as_text); }

// as_text: the texts that may be written.
static mtx_cdfa *texts_copy(const mtx_sc *s) {
  mtx_cdfa *any = mtx_cdfa_any(), *d = any ? mtx_cdfa_and(any, s->texts) : NULL;
  mtx_cdfa_free(any);
  return d;
}

mtx_gx sc_free_string(mtx_sc *s) {
  if (!s->string && s->texts) {
    s->string = sc_quoted_leaf(s, text_of(s, texts_copy(s)));
  } else if (!s->string) {
    uint32_t r = mtx_gb_rule(s->b, "string", 6);
    mtx_gb_define(s->b, r, quoted(s, mtx_gx_rep(s->b, any_char(s), 0, MTX_REP_INF)));
    s->string = mtx_gx_ref(s->b, r);
  }
  return s->string;
}

static mtx_gx counted_string(mtx_sc *s, uint32_t min, uint32_t max) {
  if (max < min) return MTX_GX_NEVER;
  if (min == 0 && max == UINT32_MAX) return sc_free_string(s);
  for (uint32_t i = 0; i < s->n_lengths; i++)
    if (s->lengths[i].min == min && s->lengths[i].max == max) return s->lengths[i].x;
  if (!s->char_rule) s->char_rule = 1 + mtx_gb_rule_of(s->b, any_char(s), "character");
  mtx_gx x = quoted(s, mtx_gx_loop(s->b, s->char_rule - 1, min, max));
  if (MTX_VEC_GROW(s, lengths, 1, 100000u)) s->lengths[s->n_lengths++] = (sc_length){min, max, x};
  return x;
}

// ---- strings with content rules --------------------------------------------------------------------

static bool parse_pattern(mtx_sc *s, uint32_t node, const char *p, size_t n, mtx_regex *re) {
  mtx_err err = {0};
  mtx_code code = mtx_regex_parse(p, n, re, &err);
  if (code) sc_fail(s, code, node, "%s", err.msg);
  return !code;
}

mtx_cdfa *sc_pattern_cdfa(mtx_sc *s, uint32_t node) {
  mtx_regex re;
  const mtx_jnode *n = sc_node(s, node);
  const char *text = n->n_key && s->j->nodes[node].kind != MTX_JSON_STRING ? s->j->pool + n->key : sc_text(s, node);
  size_t len = n->kind != MTX_JSON_STRING ? n->n_key : n->n_text;
  if (!parse_pattern(s, node, text, len, &re)) return NULL;
  mtx_cdfa *d = mtx_regex_cdfa(&re);
  mtx_regex_fini(&re);
  return d;
}

typedef struct {
  uint32_t min, max;
  uint32_t n;                  // patterns and formats
  struct {
    uint32_t node;
    const char *text;          // NULL: the values of an enum or const, the keyword's node
    size_t len;
    bool negated;
  } re[2 * SC_MAX_PARTS];
  const sc_format *format;     // of the last of them
} string_rules;

static void add_rule(string_rules *r, uint32_t node, const char *text, size_t len, bool negated) {
  if (r->n == sizeof r->re / sizeof *r->re) return;
  r->re[r->n].node = node;
  r->re[r->n].text = text;
  r->re[r->n].negated = negated;
  r->re[r->n++].len = len;
}

static void note_string(mtx_sc *s, uint32_t value, void *any) { *(bool *)any |= sc_node(s, value)->kind == MTX_JSON_STRING; }

// What conditions say of the text.
static void gather_negated(mtx_sc *s, uint32_t part, string_rules *r) {
  const uint32_t p = sc_negated(s, part, "pattern"), f = sc_negated(s, part, "format");
  bool excludes = false;
  sc_negated_counts(s, part, "minLength", "maxLength", &r->min, &r->max);
  if (p != MTX_JSON_NONE) add_rule(r, p, sc_text(s, p), sc_node(s, p)->n_text, true);
  if (f != MTX_JSON_NONE) {
    const char *text = sc_find_format(sc_text(s, f))->pattern;
    add_rule(r, f, text, strlen(text), true);
  }
  sc_each_excluded(s, part, note_string, &excludes);
  if (excludes) add_rule(r, SC_NODE(part), NULL, 0, true);
}

static void gather_string(mtx_sc *s, const sc_conj *c, string_rules *r) {
  r->min = r->n = r->re[0].node = 0;
  r->max = UINT32_MAX;
  r->format = NULL;
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t min = sc_count(s, c->v[i], "minLength", 0), max = sc_count(s, c->v[i], "maxLength", UINT32_MAX);
    if (min > r->min) r->min = min;
    if (max < r->max) r->max = max;
    gather_negated(s, c->v[i], r);
    uint32_t p = sc_keyword(s, c->v[i], "pattern"), f = sc_keyword(s, c->v[i], "format");
    if (p != MTX_JSON_NONE && sc_node(s, p)->kind == MTX_JSON_STRING)
      add_rule(r, p, sc_text(s, p), sc_node(s, p)->n_text, false);
    else if (p != MTX_JSON_NONE)
      sc_fail(s, MTX_EFORMAT, p, "pattern must be a string");
    if (f != MTX_JSON_NONE && sc_node(s, f)->kind == MTX_JSON_STRING) {
      r->format = sc_find_format(sc_text(s, f));
      if (r->format)
        add_rule(r, f, r->format->pattern, strlen(r->format->pattern), false);
      else
        sc_unenforced(s, f, "format", "this format is not known");
    }
  }
}

typedef struct {
  const char **text;
  size_t *len, n;
} word_list;

static void add_word(mtx_sc *s, uint32_t value, void *ctx) {
  word_list *w = ctx;
  if (sc_node(s, value)->kind != MTX_JSON_STRING) return;
  w->text[w->n] = sc_text(s, value);
  w->len[w->n++] = sc_node(s, value)->n_text;
}

static mtx_cdfa *words_cdfa(mtx_sc *s, uint32_t node) {
  const size_t most = sc_node(s, node)->n_kids + 1;
  word_list w = {malloc(most * sizeof *w.text), malloc(most * sizeof *w.len), 0};
  mtx_cdfa *d = NULL;
  if (w.text && w.len) {
    sc_each_excluded(s, SC_PART(node, SC_NEG), add_word, &w);
    d = mtx_cdfa_words(w.text, w.len, w.n);
  }
  free(w.text);
  free(w.len);
  return d;
}

static mtx_cdfa *rule_cdfa(mtx_sc *s, const string_rules *r, uint32_t i) {
  mtx_regex re;
  if (!r->re[i].text) return words_cdfa(s, r->re[i].node);
  if (!parse_pattern(s, r->re[i].node, r->re[i].text, r->re[i].len, &re)) return NULL;
  mtx_cdfa *d = mtx_regex_cdfa(&re);
  mtx_regex_fini(&re);
  return d;
}

// All patterns and formats together; NULL with *ok when there are none.
static mtx_cdfa *content_cdfa(mtx_sc *s, const string_rules *r, bool *ok) {
  mtx_cdfa *d = NULL;
  *ok = true;
  for (uint32_t i = 0; i < r->n && *ok; i++) {
    mtx_cdfa *x = rule_cdfa(s, r, i), *left = d;
    if (!left && r->re[i].negated) left = mtx_cdfa_any();
    if (left) {
      d = x ? r->re[i].negated ? mtx_cdfa_minus(left, x) : mtx_cdfa_and(left, x) : NULL;
      mtx_cdfa_free(left);
      mtx_cdfa_free(x);
    } else {
      d = x;
    }
    *ok = d != NULL;
  }
  return d;
}

// Lengths the automaton can produce: shortest, and longest or UINT32_MAX.
static void length_range(const mtx_cdfa *d, uint32_t *min, uint32_t *max) {
  const uint32_t n = d->n_states;
  uint8_t *cur = calloc(n, 1), *next = calloc(n, 1);
  *min = 0;
  *max = UINT32_MAX;
  if (cur && next) {
    bool seen = false;
    cur[0] = 1;
    for (uint32_t len = 0; len <= n; len++) {
      bool any = false, accept = false;
      memset(next, 0, n);
      for (uint32_t i = 0; i < n; i++) {
        if (!cur[i]) continue;
        any = true;
        accept |= d->states[i].accept;
        for (uint32_t k = 0; k < d->states[i].n_edges; k++) next[d->edges[d->states[i].edge + k].to] = 1;
      }
      if (!any) break;
      if (accept && !seen) *min = len, seen = true;
      // a path as long as the number of states must have gone in a circle
      if (accept) *max = len == n ? UINT32_MAX : len;
      if (len == n) *max = UINT32_MAX;
      uint8_t *t = cur;
      cur = next;
      next = t;
    }
  }
  free(cur);
  free(next);
}

// One class of characters, k or more times: the class's edges, else NULL.
static const cd_state *single_class(const mtx_cdfa *d, uint32_t *k) {
  const cd_state *last = d->states + d->n_states - 1;
  *k = 0;
  for (uint32_t i = 0; i < d->n_states; i++) {
    const cd_state *s = d->states + i;
    if (s->n_edges != last->n_edges || s->accept != (i + 1 == d->n_states)) return NULL;
    for (uint32_t e = 0; e < s->n_edges; e++) {
      const cd_edge *x = d->edges + s->edge + e, *y = d->edges + last->edge + e;
      uint32_t to = i + 1 == d->n_states ? i : i + 1;
      if (x->lo != y->lo || x->hi != y->hi || x->to != to) return NULL;
    }
  }
  *k = d->n_states - 1;
  return last;
}

static mtx_gx class_times(mtx_sc *s, const mtx_cdfa *d, const cd_state *st, uint32_t min, uint32_t max) {
  mtx_cdfa *one = mtx_cdfa_new();
  bool ok = one && mtx_cdfa_state(one, false) != UINT32_MAX;
  for (uint32_t i = 0; ok && i < st->n_edges; i++) ok = mtx_cdfa_edge(one, d->edges[st->edge + i].lo, d->edges[st->edge + i].hi, 1);
  if (ok) ok = mtx_cdfa_state(one, true) != UINT32_MAX;
  if (!ok) {
    mtx_cdfa_free(one);
    return text_of(s, NULL);
  }
  mtx_gx x = text_of(s, one);
  if (max == UINT32_MAX && min <= 1) return sc_quoted_leaf(s, mtx_gx_rep(s->b, x, min, max));
  return quoted(s, mtx_gx_loop(s->b, mtx_gb_rule_of(s->b, x, "character"), min, max));
}

// Above this, a length beside a pattern would need more states than it is worth.
#define MAX_LENGTH_STATES 4000u
#define FEW_STATES 32u  // as many are written out rather than counted

static mtx_gx patterned_string(mtx_sc *s, mtx_cdfa *d, const string_rules *r) {
  uint32_t shortest, longest, k;
  if (mtx_cdfa_is_empty(d)) {
    mtx_cdfa_free(d);
    return MTX_GX_NEVER;
  }
  const cd_state *st = single_class(d, &k);
  if (st && (r->min > 0 || r->max != UINT32_MAX || k > 4)) {
    uint32_t min = r->min > k ? r->min : k;
    mtx_gx x = r->max < min ? MTX_GX_NEVER : class_times(s, d, st, min, r->max);
    mtx_cdfa_free(d);
    return x;
  }
  length_range(d, &shortest, &longest);
  if (shortest >= r->min && longest <= r->max) return sc_quoted_leaf(s, text_of(s, d));
  if (shortest > r->max) {
    mtx_cdfa_free(d);
    return MTX_GX_NEVER;
  }
  uint32_t last = r->max == UINT32_MAX ? r->min : r->max;
  if ((uint64_t)d->n_states * last > FEW_STATES && mtx_cdfa_is_countable(d, r->min))
    return quoted(s, mtx_gx_count(s->b, d, !s->as_text, r->min, r->max));
  mtx_cdfa *len = last <= MAX_LENGTH_STATES ? mtx_cdfa_length(r->min, r->max) : NULL, *both = NULL;
  if (len && (uint64_t)d->n_states * last <= MAX_LENGTH_STATES) both = mtx_cdfa_and(d, len);
  mtx_cdfa_free(len);
  if (!both) {
    sc_unenforced(s, r->re[0].node, "minLength/maxLength", "too many states together with this pattern");
    return sc_quoted_leaf(s, text_of(s, d));
  }
  mtx_cdfa_free(d);
  if (mtx_cdfa_is_empty(both)) {
    mtx_cdfa_free(both);
    return MTX_GX_NEVER;
  }
  return sc_quoted_leaf(s, text_of(s, both));
}

static bool has_large_count(const mtx_regex *re) {
  for (uint32_t i = 0; i < re->n_nodes; i++)
    if (re->nodes[i].kind == RE_REP && (re->nodes[i].max == MTX_REP_INF ? re->nodes[i].min : re->nodes[i].max) > 8) return true;
  return false;
}

// Do all characters of the pattern leave the automaton of the texts where it is, as those do that its stop
// does not begin with? Then no text of the pattern holds the stop.
static bool writes_only(const mtx_regex *re, const mtx_cdfa *texts) {
  for (uint32_t i = 0; i < re->n_nodes; i++) {
    const re_node *n = re->nodes + i;
    for (uint32_t k = 0; n->kind == RE_CLASS && k < n->n; k++) {
      const mtx_cprange *r = re->ranges + n->a + k;
      uint32_t at = r->lo;
      for (uint32_t e = 0; e < texts->states[0].n_edges; e++) {
        const cd_edge *x = texts->edges + texts->states[0].edge + e;
        if (x->to == 0 && x->lo <= at && x->hi >= at) at = x->hi + 1;
        if (at == 0xd800) at = 0xe000;
      }
      if (at <= r->hi) return false;
    }
  }
  return true;
}

// The bound that a format's pattern does not count.
static void bound_format(string_rules *r) {
  if (r->format && r->format->max && r->format->max < r->max) r->max = r->format->max;
}

mtx_gx sc_string(mtx_sc *s, const sc_conj *c) {
  string_rules r;
  gather_string(s, c, &r);
  if (s->b->code) return MTX_GX_NEVER;
  if (r.n == 0 && !(s->texts && (r.min || r.max != UINT32_MAX))) return counted_string(s, r.min, r.max);
  if (r.n == 1 && !r.re[0].negated && r.min == 0 && r.max == UINT32_MAX) {
    if (r.format && r.format->max) return quoted(s, sc_host_format(s, r.format));
    mtx_regex re;
    mtx_gx x;
    if (!parse_pattern(s, r.re[0].node, r.re[0].text, r.re[0].len, &re)) return MTX_GX_NEVER;
    bool loops = has_large_count(&re) && (!s->texts || writes_only(&re, s->texts)) && mtx_regex_gx(s->b, &re, !s->as_text, &x);
    mtx_regex_fini(&re);
    if (loops) return quoted(s, x);
  }
  bound_format(&r);
  bool ok;
  mtx_cdfa *d = content_cdfa(s, &r, &ok);
  if (ok && s->texts) {
    mtx_cdfa *both = d ? mtx_cdfa_and(d, s->texts) : texts_copy(s);
    mtx_cdfa_free(d);
    d = both;
    ok = d != NULL;
  }
  if (!ok) {
    if (!s->b->code) sc_fail(s, MTX_ELIMIT, r.re[0].node, "this pattern needs too many states; anchor it with ^ and $ or use smaller counts");
    return MTX_GX_NEVER;
  }
  return patterned_string(s, d, &r);
}

mtx_cdfa *sc_string_cdfa(mtx_sc *s, const sc_conj *c, bool *ok) {
  string_rules r;
  gather_string(s, c, &r);
  bound_format(&r);
  mtx_cdfa *d = content_cdfa(s, &r, ok);
  if (!*ok || (r.min == 0 && r.max == UINT32_MAX)) return d;
  mtx_cdfa *len = (r.max == UINT32_MAX ? r.min : r.max) <= 1000 ? mtx_cdfa_length(r.min, r.max) : NULL;
  mtx_cdfa *both = len && d ? mtx_cdfa_and(d, len) : NULL;
  *ok = len && (!d || both);
  if (!d && *ok) return len;
  mtx_cdfa_free(d);
  mtx_cdfa_free(len);
  return both;
}

bool sc_holds_text(mtx_sc *s, uint32_t part, const char *text, size_t n) {
  const sc_conj c = {.n = 1, .v = {part}};
  string_rules r;
  uint32_t len = 0, cp;
  gather_string(s, &c, &r);
  bound_format(&r);
  for (size_t at = 0, k; at < n && (k = mtx_utf8_get(text + at, n - at, &cp)); at += k) len++;
  if (len < r.min || len > r.max) return false;
  bool ok;
  mtx_cdfa *d = content_cdfa(s, &r, &ok);
  const bool holds = !d || mtx_cdfa_match(d, text, n);
  mtx_cdfa_free(d);
  return holds;
}

mtx_cdfa *sc_texts_without(mtx_sc *s, const char *stop, size_t n) {
  char pattern[4 * MAX_STOP_BYTES + 1];
  size_t k = 0;
  for (size_t i = 0; i < n && n <= MAX_STOP_BYTES; i++) {
    if ((uint8_t)stop[i] < 0x80)
      k += (size_t)snprintf(pattern + k, sizeof pattern - k, "\\x%02x", (uint8_t)stop[i]);
    else
      pattern[k++] = stop[i];
  }
  mtx_regex re;
  mtx_err err = {0};
  mtx_cdfa *any = NULL, *holds = NULL, *d = NULL;
  if (k && !mtx_regex_parse(pattern, k, &re, &err)) {
    holds = mtx_regex_cdfa(&re);
    any = mtx_cdfa_any();
    mtx_regex_fini(&re);
  }
  if (any && holds) d = mtx_cdfa_minus(any, holds);
  mtx_cdfa_free(any);
  mtx_cdfa_free(holds);
  if (!d) sc_fail(s, MTX_EINVAL, 0, "what ends a text must be UTF-8 of at most %d bytes", MAX_STOP_BYTES);
  return d;
}
