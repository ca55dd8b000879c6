// SPDX-License-Identifier: MIT
// The pool of expressions and rules behind build.h.
#include "grammar/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "grammar/cdfa.h"

#define MAX_NODES 1000000u
#define MAX_BYTES (8u << 20)
#define MAX_RANGES 400000u
#define MAX_WARNINGS 64u
// A repetition is written out when it needs no more states than this; above,
// one counted state is cheaper: masks are cached per state.
#define UNROLL_STATES 16u

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);  // a busy machine must not refuse a schema
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static mtx_gx add(mtx_gb *b, gx_node n) {
  if (b->code) return MTX_GX_NEVER;
  if (!MTX_VEC_GROW(b, nodes, 1, MAX_NODES)) {
    mtx_gb_fail(b, MTX_ELIMIT, 0, "the grammar is too large: more than %u expressions", MAX_NODES);
    return MTX_GX_NEVER;
  }
  b->nodes[b->n_nodes] = n;
  return b->n_nodes++;
}

void mtx_gb_init(mtx_gb *b) {
  memset(b, 0, sizeof *b);
  b->cycle = "rule %.*s is left-recursive: it can begin with itself; write it as a repetition";
  b->with_cases = true;
  b->deadline_ns = now_ns() + (int64_t)MTX_GRAMMAR_MAX_COMPILE_MS * 1000000;
  add(b, (gx_node){.kind = GX_EMPTY});
  add(b, (gx_node){.kind = GX_NEVER});
}

void mtx_gb_fini(mtx_gb *b) {
  for (uint32_t i = 0; i < b->n_dfas; i++) mtx_cdfa_free(b->dfas[i]);
  for (uint32_t i = 0; i < b->n_warnings; i++) free(b->warnings[i]);
  free(b->nodes);
  free(b->kids);
  free(b->bytes);
  free(b->ranges);
  free(b->rules);
  free(b->items);
  free(b->sets);
  free(b->set_next);
  free(b->set_needs);
  free(b->refs);
  free(b->text);
  free(b->warnings);
  free(b->dfas);
  memset(b, 0, sizeof *b);
}

bool mtx_gb_again(mtx_gb *b) {
  if (b->code != MTX_ELIMIT || !b->with_cases || !b->used_cases) return false;
  const int64_t deadline_ns = b->deadline_ns;
  const char *cycle = b->cycle;
  mtx_gb_fini(b);
  mtx_gb_init(b);
  b->with_cases = false;
  b->deadline_ns = deadline_ns;
  b->cycle = cycle;
  return true;
}

void mtx_gb_fail(mtx_gb *b, mtx_code code, uint64_t offset, const char *fmt, ...) {
  if (b->code) return;
  char msg[sizeof b->err.msg];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(msg, sizeof msg, fmt, ap);
  va_end(ap);
  b->code = mtx_fail_at(&b->err, code, NULL, NULL, offset, "%s", msg);
}

void mtx_gb_warn(mtx_gb *b, const char *fmt, ...) {
  char msg[300];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(msg, sizeof msg, fmt, ap);
  va_end(ap);
  for (uint32_t i = 0; i < b->n_warnings; i++)
    if (!strcmp(b->warnings[i], msg)) return;
  if (!MTX_VEC_GROW(b, warnings, 1, MAX_WARNINGS)) return;
  char *copy = strdup(msg);
  if (copy) b->warnings[b->n_warnings++] = copy;
}

bool mtx_gb_in_time(mtx_gb *b) {
  const int64_t again_ns = b->with_cases && b->used_cases ? (int64_t)MTX_GRAMMAR_MAX_COMPILE_MS * 500000 : 0;
  if (!b->code && now_ns() > b->deadline_ns - again_ns)
    mtx_gb_fail(b, MTX_ELIMIT, 0, "compiling takes longer than %d ms; make the grammar or schema smaller",
                MTX_GRAMMAR_MAX_COMPILE_MS);
  return !b->code;
}

static uint32_t size_add(uint32_t x, uint32_t y) { return x > UINT32_MAX - y ? UINT32_MAX : x + y; }

mtx_gx mtx_gx_lit(mtx_gb *b, const void *bytes, size_t n) {
  if (b->code) return MTX_GX_NEVER;
  if (n == 0) return MTX_GX_EMPTY;
  if (n > MAX_BYTES || !MTX_VEC_GROW(b, bytes, (uint32_t)n, MAX_BYTES)) {
    mtx_gb_fail(b, MTX_ELIMIT, 0, "the grammar's literals are longer than %u bytes in all", MAX_BYTES);
    return MTX_GX_NEVER;
  }
  memcpy(b->bytes + b->n_bytes, bytes, n);
  b->n_bytes += (uint32_t)n;
  return add(b, (gx_node){.kind = GX_LIT, .a = b->n_bytes - (uint32_t)n, .n = (uint32_t)n, .size = (uint32_t)n});
}

static int cmp_range(const void *x, const void *y) {
  const mtx_cprange *a = x, *c = y;
  return a->lo < c->lo ? -1 : a->lo > c->lo;
}

static void push_range(mtx_gb *b, uint32_t start, uint32_t lo, uint32_t hi) {
  if (hi > 0x10ffff) hi = 0x10ffff;
  if (lo > hi) return;
  if (b->n_ranges > start && lo <= b->ranges[b->n_ranges - 1].hi + 1) {
    if (hi > b->ranges[b->n_ranges - 1].hi) b->ranges[b->n_ranges - 1].hi = hi;
    return;
  }
  b->ranges[b->n_ranges++] = (mtx_cprange){lo, hi};
}

mtx_gx mtx_gx_class(mtx_gb *b, const mtx_cprange *r, size_t n, bool negated) {
  if (b->code) return MTX_GX_NEVER;
  // n merged ranges, or n + 1 gaps, each cut in two at the surrogates
  if (n > MAX_RANGES / 4 || !MTX_VEC_GROW(b, ranges, (uint32_t)n + 2, MAX_RANGES)) {
    mtx_gb_fail(b, MTX_ELIMIT, 0, "the grammar's character classes have more than %u ranges", MAX_RANGES);
    return MTX_GX_NEVER;
  }
  mtx_cprange *sorted = malloc((n + 1) * sizeof *sorted);
  if (!sorted) {
    mtx_gb_fail(b, MTX_ENOMEM, 0, "out of memory");
    return MTX_GX_NEVER;
  }
  if (n) memcpy(sorted, r, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, cmp_range);
  uint32_t start = b->n_ranges;
  if (!negated) {
    for (size_t i = 0; i < n; i++) push_range(b, start, sorted[i].lo, sorted[i].hi);
  } else {
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
      if (sorted[i].lo > at) push_range(b, start, at, sorted[i].lo - 1);
      if (sorted[i].hi + 1 > at) at = sorted[i].hi + 1;
    }
    if (at <= 0x10ffff) push_range(b, start, at, 0x10ffff);
  }
  free(sorted);
  uint32_t k = b->n_ranges - start;
  if (k == 0 || (k == 1 && b->ranges[start].lo >= 0xd800 && b->ranges[start].hi <= 0xdfff)) return MTX_GX_NEVER;
  uint32_t size = 0;
  for (uint32_t i = start; i < b->n_ranges; i++) size += b->ranges[i].hi < 0x80 ? 1 : 6;
  return add(b, (gx_node){.kind = GX_CLASS, .a = start, .n = k, .size = size});
}

static mtx_gx add_kids(mtx_gb *b, uint8_t kind, const mtx_gx *kids, size_t n) {
  if (b->code) return MTX_GX_NEVER;
  if (n > MAX_NODES || !MTX_VEC_GROW(b, kids, (uint32_t)n, MAX_NODES * 2)) {
    mtx_gb_fail(b, MTX_ELIMIT, 0, "the grammar is too large: more than %u expressions", MAX_NODES);
    return MTX_GX_NEVER;
  }
  uint32_t at = b->n_kids, size = 1, k = 0;
  for (size_t i = 0; i < n; i++) {
    if (kind == GX_ALT && kids[i] == MTX_GX_NEVER) continue;
    if (kind == GX_CAT && kids[i] == MTX_GX_NEVER) return MTX_GX_NEVER;
    if (kind == GX_CAT && kids[i] == MTX_GX_EMPTY) continue;
    b->kids[at + k++] = kids[i];
    size = size_add(size, b->nodes[kids[i]].size);
  }
  if (k == 0) return kind == GX_ALT ? MTX_GX_NEVER : MTX_GX_EMPTY;
  if (k == 1) return b->kids[at];
  b->n_kids += k;
  return add(b, (gx_node){.kind = kind, .a = at, .n = k, .size = size});
}

mtx_gx mtx_gx_cat(mtx_gb *b, const mtx_gx *kids, size_t n) { return add_kids(b, GX_CAT, kids, n); }
mtx_gx mtx_gx_alt(mtx_gb *b, const mtx_gx *kids, size_t n) { return add_kids(b, GX_ALT, kids, n); }
mtx_gx mtx_gx_cat2(mtx_gb *b, mtx_gx x, mtx_gx y) { return mtx_gx_cat(b, (mtx_gx[]){x, y}, 2); }
mtx_gx mtx_gx_alt2(mtx_gb *b, mtx_gx x, mtx_gx y) { return mtx_gx_alt(b, (mtx_gx[]){x, y}, 2); }

static mtx_gx wrap(mtx_gb *b, uint8_t kind, mtx_gx x) {
  if (x == MTX_GX_EMPTY) return x;
  if (x == MTX_GX_NEVER) return kind == GX_PLUS ? MTX_GX_NEVER : MTX_GX_EMPTY;
  return add(b, (gx_node){.kind = kind, .a = x, .n = 1, .size = size_add(b->nodes[x].size, 2)});
}

mtx_gx mtx_gx_rep(mtx_gb *b, mtx_gx x, uint32_t min, uint32_t max) {
  if (b->code) return MTX_GX_NEVER;
  if (max < min) return MTX_GX_NEVER;
  if (max == 0 || x == MTX_GX_EMPTY) return MTX_GX_EMPTY;
  if (x == MTX_GX_NEVER) return min ? MTX_GX_NEVER : MTX_GX_EMPTY;
  if (max == MTX_REP_INF && min <= 1) return wrap(b, min ? GX_PLUS : GX_STAR, x);
  if (max == 1) return min ? x : wrap(b, GX_OPT, x);
  uint32_t n = max == MTX_REP_INF ? min : max;
  uint32_t size = b->nodes[x].size ? b->nodes[x].size : 1;
  if (n <= UNROLL_STATES && size <= UNROLL_STATES / n) {
    mtx_gx tail = max == MTX_REP_INF ? wrap(b, GX_STAR, x) : MTX_GX_EMPTY;
    if (max != MTX_REP_INF)
      for (uint32_t i = min; i < max; i++) tail = wrap(b, GX_OPT, mtx_gx_cat2(b, x, tail));
    for (uint32_t i = 0; i < min; i++) tail = mtx_gx_cat2(b, x, tail);
    return tail;
  }
  return mtx_gx_loop(b, mtx_gb_rule_of(b, x, "item"), min, max);
}

// A new rule that counts from min to max; its body is the caller's to set. NULL after an error.
static gb_rule *counting_rule(mtx_gb *b, const char *name, uint8_t kind, uint32_t min, uint32_t max) {
  uint32_t r = mtx_gb_rule(b, name, strlen(name));
  if (b->code) return NULL;
  gb_rule *rule = b->rules + r;
  rule->kind = kind;
  rule->defined = true;
  rule->min = min;
  rule->max = max;
  return rule;
}

mtx_gx mtx_gx_loop(mtx_gb *b, uint32_t body, uint32_t min, uint32_t max) {
  if (max == 0) return MTX_GX_EMPTY;
  gb_rule *rule = counting_rule(b, "repeat", GR_LOOP, min, max);
  if (!rule) return MTX_GX_NEVER;
  rule->loop_body = body;
  return mtx_gx_ref(b, (uint32_t)(rule - b->rules));
}

mtx_gx mtx_gx_count(mtx_gb *b, struct mtx_cdfa *d, bool json, uint32_t min, uint32_t max) {
  mtx_gx body = mtx_gx_dfa(b, d, json);
  gb_rule *rule = counting_rule(b, "text", GR_COUNT, min, max);
  if (!rule) return MTX_GX_NEVER;
  rule->body = body;
  return mtx_gx_ref(b, (uint32_t)(rule - b->rules));
}

mtx_gx mtx_gx_ref(mtx_gb *b, uint32_t rule) {
  return add(b, (gx_node){.kind = GX_REF, .a = rule, .size = 1});
}

mtx_gx mtx_gx_token(mtx_gb *b, uint32_t ref, bool negated) {
  return add(b, (gx_node){.kind = GX_TOKEN, .flag = negated, .a = ref, .size = 1});
}

mtx_gx mtx_gx_dfa(mtx_gb *b, struct mtx_cdfa *d, bool json) {
  if (!d) {
    mtx_gb_fail(b, MTX_ENOMEM, 0, "out of memory");
    return MTX_GX_NEVER;
  }
  if (b->code || !MTX_VEC_GROW(b, dfas, 1, MAX_NODES)) {
    mtx_cdfa_free(d);
    mtx_gb_fail(b, MTX_ENOMEM, 0, "out of memory");
    return MTX_GX_NEVER;
  }
  b->dfas[b->n_dfas++] = d;
  return add(b, (gx_node){.kind = GX_DFA, .flag = json, .a = b->n_dfas - 1, .size = d->n_states * 4});
}

uint32_t mtx_gb_text(mtx_gb *b, const char *s, size_t n) {
  if (b->code) return 0;
  if (n > MAX_BYTES || !MTX_VEC_GROW(b, text, (uint32_t)n + 1, MAX_BYTES)) {
    mtx_gb_fail(b, MTX_ELIMIT, 0, "the grammar's names are longer than %u bytes in all", MAX_BYTES);
    return 0;
  }
  uint32_t at = b->n_text;
  memcpy(b->text + at, s, n);
  b->text[at + n] = 0;
  b->n_text += (uint32_t)n + 1;
  return at;
}

uint32_t mtx_gb_rule(mtx_gb *b, const char *name, size_t n_name) {
  uint32_t at = mtx_gb_text(b, name, n_name);
  if (b->code) return 0;
  if (!MTX_VEC_GROW(b, rules, 1, MTX_GRAMMAR_MAX_RULES)) {
    mtx_gb_fail(b, MTX_ELIMIT, 0, "the grammar has more than %u rules", MTX_GRAMMAR_MAX_RULES);
    return 0;
  }
  b->rules[b->n_rules] = (gb_rule){.name = at, .n_name = (uint32_t)n_name, .body = MTX_GX_NEVER};
  return b->n_rules++;
}

void mtx_gb_define(mtx_gb *b, uint32_t rule, mtx_gx body) {
  if (b->code) return;
  b->rules[rule].body = body;
  b->rules[rule].defined = true;
}

uint32_t mtx_gb_rule_of(mtx_gb *b, mtx_gx x, const char *name) {
  if (b->code) return 0;
  if (b->nodes[x].kind == GX_REF) return b->nodes[x].a;
  uint32_t r = mtx_gb_rule(b, name, strlen(name));
  mtx_gb_define(b, r, x);
  return r;
}

void mtx_gb_define_set(mtx_gb *b, uint32_t rule, const gr_set *set, const gb_item *items, size_t n, mtx_gx sep) {
  if (b->code) return;
  if (!MTX_VEC_GROW(b, sets, 1, MTX_GRAMMAR_MAX_RULES) || n > MAX_NODES ||
      !MTX_VEC_GROW(b, items, (uint32_t)n, MAX_NODES)) {
    mtx_gb_fail(b, MTX_ELIMIT, 0, "the grammar has more than %u members of objects", MAX_NODES);
    return;
  }
  gb_rule *r = b->rules + rule;
  r->kind = GR_SET;
  r->defined = true;
  r->set = b->n_sets;
  r->item = b->n_items;
  r->n_items = (uint32_t)n;
  r->sep = sep;
  b->sets[b->n_sets++] = *set;
  if (n) memcpy(b->items + b->n_items, items, n * sizeof *items);  // with none there may be no array yet
  b->n_items += (uint32_t)n;
}
