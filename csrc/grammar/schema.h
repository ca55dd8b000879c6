// SPDX-License-Identifier: MIT
// JSON Schema into rules: what the schema_*.c files share.
//
// A place in a document is described by a conjunction: the list of schema
// parts that must all hold there. allOf and $ref only add to that list, a
// branch of anyOf replaces itself by an alternative, and a property's
// conjunction is gathered from all parts that speak about it. So merging is
// nowhere special. Conjunctions are interned: each becomes one rule, which is
// also what makes recursive schemas end.
#ifndef MTX_GRAMMAR_SCHEMA_H
#define MTX_GRAMMAR_SCHEMA_H

#include "grammar/build.h"
#include "grammar/cdfa.h"
#include "grammar/decimal.h"
#include "grammar/json.h"

#define SC_MAX_PARTS 60u

// part = node << 2 | kind
enum { SC_ALL, SC_BASE, SC_ANY, SC_ONE };  // everything; own assertions only; its anyOf; its oneOf
#define SC_PART(node, kind) ((node) << 2 | (kind))
#define SC_NODE(part) ((part) >> 2)

typedef struct {
  uint32_t n;
  uint32_t v[SC_MAX_PARTS];
  bool never;  // contradicts itself
} sc_conj;

enum {
  SC_NULL = 1,
  SC_BOOL = 2,
  SC_INT = 4,
  SC_NUM = 8,  // numbers that are no integers
  SC_STR = 16,
  SC_ARR = 32,
  SC_OBJ = 64,
  SC_EVERY = 127
};

typedef struct {
  uint32_t at, n;  // parts, into sc->parts
  mtx_gx x;
  uint32_t rule;   // UINT32_MAX: none
} sc_memo;

typedef struct {
  uint32_t min, max;
  mtx_gx x;
} sc_length;

typedef struct mtx_sc {
  mtx_gb *b;
  mtx_json *j;
  mtx_schema_opts opts;
  bool draft7;  // neighbours of $ref are ignored, items may be a list
  MTX_VEC(uint32_t, parts);
  MTX_VEC(sc_memo, memos);
  uint32_t *hash, n_hash;   // memo number + 1
  uint32_t i_build;         // memos before this one have their rule's body
  MTX_VEC(sc_length, lengths);
  // shared expressions; 0 (MTX_GX_EMPTY) while not made, where that is possible
  mtx_gx blank, space;      // around tokens; after ':' and ','
  mtx_gx comma, colon;
  mtx_gx string, number, integer, any, host;
  uint32_t char_rule;
} mtx_sc;

static inline const mtx_jnode *sc_node(const mtx_sc *s, uint32_t i) { return s->j->nodes + i; }
static inline const char *sc_text(const mtx_sc *s, uint32_t i) { return s->j->pool + s->j->nodes[i].text; }
static inline uint32_t sc_get(const mtx_sc *s, uint32_t node, const char *key) { return mtx_json_get(s->j, node, key); }

// Keyword of one base part, or MTX_JSON_NONE.
uint32_t sc_keyword(const mtx_sc *s, uint32_t part, const char *key);
// What cannot be enforced: a warning, or a failure in strict mode.
void sc_unenforced(mtx_sc *s, uint32_t node, const char *keyword, const char *why);
void sc_fail(mtx_sc *s, mtx_code code, uint32_t node, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
// A count ("maxItems": 3 or 3.0); fallback if absent. Fails on anything else.
uint32_t sc_count(mtx_sc *s, uint32_t part, const char *key, uint32_t fallback);

void sc_add(mtx_sc *s, sc_conj *c, uint32_t part);
// Replaces SC_ALL parts by bases and groups, following $ref and allOf.
void sc_flatten(mtx_sc *s, sc_conj *c);
// The memo of a flat conjunction, NULL with a failure recorded. The order of parts does not
// matter to its key, but the memo keeps the order it first came in (property order).
sc_memo *sc_intern(mtx_sc *s, const sc_conj *c, bool *is_new);
uint32_t sc_resolve(mtx_sc *s, uint32_t ref_node);  // target of a $ref string
// The expression for a value at a place where c holds; c need not be flat.
mtx_gx sc_value(mtx_sc *s, const sc_conj *c, const char *name, size_t n_name);
// Types the base parts allow.
uint32_t sc_types(mtx_sc *s, const sc_conj *c);
uint32_t sc_type_bit(const char *name);
// "not integer" leaves numbers with a fraction, which sc_number does not tell apart.
void sc_warn_types(mtx_sc *s, const sc_conj *c, uint32_t types);

mtx_gx sc_object(mtx_sc *s, const sc_conj *c);
mtx_gx sc_array(mtx_sc *s, const sc_conj *c);
mtx_gx sc_string(mtx_sc *s, const sc_conj *c);
// x between quotes, as a rule of its own: a leaf, whose masks are cheap (mask.h).
mtx_gx sc_quoted_leaf(mtx_sc *s, mtx_gx x);
mtx_gx sc_number(mtx_sc *s, const sc_conj *c, bool integer);
typedef struct {
  const char *name, *pattern;
  uint32_t max;             // characters, which the pattern does not count; 0: no bound
  const char *before_host;  // the same as: this, a host name; or (if not NULL) `or_else`. NULL: it has no host name
  const char *or_else;
} sc_format;
const sc_format *sc_find_format(const char *name);  // NULL: not known
// The format with its lengths counted, to stand between quotes; MTX_GX_NEVER if it has no host name.
mtx_gx sc_host_format(mtx_sc *s, const sc_format *f);
// Without any rule: one grammar rule each, made once.
mtx_gx sc_free_string(mtx_sc *s);
mtx_gx sc_free_number(mtx_sc *s, bool integer);
mtx_gx sc_any(mtx_sc *s);  // any JSON value
// The value of a JSON node, written out.
mtx_gx sc_literal(mtx_sc *s, uint32_t value);
mtx_gx sc_string_literal(mtx_sc *s, const char *p, size_t n);
// Texts the string keywords of c allow (lengths included), NULL if all;
// *ok = false if that is too large to say.
mtx_cdfa *sc_string_cdfa(mtx_sc *s, const sc_conj *c, bool *ok);
// Do the string keywords of one part hold for this text?
bool sc_holds_text(mtx_sc *s, uint32_t part, const char *text, size_t n);
mtx_cdfa *sc_pattern_cdfa(mtx_sc *s, uint32_t node);  // NULL: failed, or too large

// Does the JSON value satisfy the schema? Keywords that are not enforced are ignored.
bool sc_holds(mtx_sc *s, uint32_t value, uint32_t schema, int depth);
// Can no value satisfy both schemas? false also when that is not known.
bool sc_disjoint(mtx_sc *s, uint32_t x, uint32_t y, int depth);

// Defines rule as what the schema allows. A failure of reading the text is returned; one of building stays in b.
mtx_code mtx_schema_define(mtx_gb *b, uint32_t rule, const char *text, size_t len, const mtx_schema_opts *opts, mtx_err *err);

#endif
