// SPDX-License-Identifier: MIT
// JSON Schema into rules: what the schema_*.c files share.
//
// A place in a document is described by a conjunction: the list of schema
// parts that must all hold there. allOf and $ref only add to that list, a
// branch of anyOf replaces itself by an alternative, a condition is one of its
// cases (schema_cases.c), and a property's conjunction is gathered from all parts that speak about it. So merging is
// nowhere special. Conjunctions are interned: each becomes one rule, which is
// also what makes recursive schemas end.
#ifndef MTX_GRAMMAR_SCHEMA_H
#define MTX_GRAMMAR_SCHEMA_H

#include <string.h>

#include "grammar/build.h"
#include "grammar/cdfa.h"
#include "grammar/decimal.h"
#include "grammar/json.h"

#define SC_MAX_PARTS 200u
#define SC_MAX_CASES 64u  // of one place; each costs a position while it is possible

// part = node << 4 | kind
enum {
  SC_ALL,      // everything the schema says
  SC_BASE,     // its own assertions only
  SC_ANY,      // its anyOf
  SC_ONE,      // its oneOf
  SC_IF,       // its if, then and else
  SC_DEPENDS,  // a member of dependentSchemas: the key does not come, or the schema holds
  SC_OTHER,    // SC_NOT, for another branch of oneOf: without keys whose values are not meant
  SC_NOT,      // the schema does not hold
  SC_NEG,      // the node is a keyword's and the keyword does not hold: {"minimum": 3} is below 3
  SC_LACKS,    // an object does not have the node's key
  SC_HAS,      // an object that has the node's key
  SC_HASNOT,   // an object that has the node's key, with another value than the node's schema allows
  SC_WITHOUT,  // an object that does not have the key which the node, an entry of `required`, names
};
#define SC_PART(node, kind) ((node) << 4 | (kind))
#define SC_NODE(part) ((part) >> 4)
#define SC_KIND(part) ((part) & 15)

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
  bool as_text; // strings only, as they are
  mtx_cdfa *texts;  // as_text: those that may be written; NULL: all
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
static inline bool sc_has_key(const mtx_sc *s, uint32_t i, const char *key) { return s->j->nodes[i].n_key && !strcmp(s->j->pool + s->j->nodes[i].key, key); }
static inline uint32_t sc_get(const mtx_sc *s, uint32_t node, const char *key) { return mtx_json_get(s->j, node, key); }

// Keyword of one base part, or MTX_JSON_NONE.
uint32_t sc_keyword(const mtx_sc *s, uint32_t part, const char *key);
// What cannot be enforced: a warning, or a failure in strict mode.
void sc_unenforced(mtx_sc *s, uint32_t node, const char *keyword, const char *why);
void sc_fail(mtx_sc *s, mtx_code code, uint32_t node, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
// A count ("maxItems": 3 or 3.0); fallback if absent. Fails on anything else.
uint32_t sc_count(mtx_sc *s, uint32_t part, const char *key, uint32_t fallback);

// The bounds that are left where `min_key` or `max_key` must not hold; *max < *min if none are.
void sc_negated_counts(mtx_sc *s, uint32_t part, const char *min_key, const char *max_key, uint32_t *min, uint32_t *max);

void sc_add(mtx_sc *s, sc_conj *c, uint32_t part);
// Replaces SC_ALL parts by bases and groups, following $ref and allOf, and negations that
// have one way only by that.
void sc_flatten(mtx_sc *s, sc_conj *c);
// The ways to break the schema of a part SC_NOT or SC_OTHER: their number, or -1 if that cannot
// be said. Adds way i to out, which may be NULL.
int sc_negation(mtx_sc *s, uint32_t part, uint32_t i, sc_conj *out);
// A flat conjunction without anyOf and oneOf, but with conditions, as the alternative of its cases.
bool sc_has_conditions(const sc_conj *c);
mtx_gx sc_cases(mtx_sc *s, const sc_conj *c, const char *name, size_t n_name);
// The memo of a flat conjunction, NULL with a failure recorded. The order of parts does not
// matter to its key, but the memo keeps the order it first came in (property order).
sc_memo *sc_intern(mtx_sc *s, const sc_conj *c, bool *is_new);
uint32_t sc_resolve(mtx_sc *s, uint32_t ref_node);  // target of a $ref string
// The expression for a value at a place where c holds; c need not be flat.
mtx_gx sc_value(mtx_sc *s, const sc_conj *c, const char *name, size_t n_name);
typedef struct {
  MTX_VEC(uint32_t, v);  // the caller frees it
} sc_nodes;
// The values that enum or const list and everything else allows; false: neither is there.
bool sc_candidates(mtx_sc *s, const sc_conj *c, sc_nodes *out);
// The same for one that is flat, and as no rule of its own.
mtx_gx sc_build(mtx_sc *s, const sc_conj *c, const char *name, size_t n_name);
// Types the base parts allow.
uint32_t sc_types(mtx_sc *s, const sc_conj *c);
uint32_t sc_type_bit(const char *name);
// A keyword that must not hold: `key` of a part SC_NEG, or MTX_JSON_NONE.
uint32_t sc_negated(const mtx_sc *s, uint32_t part, const char *key);
// Calls f for each value that a part SC_NEG (const or enum) excludes.
void sc_each_excluded(mtx_sc *s, uint32_t part, void (*f)(mtx_sc *s, uint32_t value, void *ctx), void *ctx);

mtx_gx sc_object(mtx_sc *s, const sc_conj *c);
mtx_gx sc_array(mtx_sc *s, const sc_conj *c);
typedef struct {
  uint32_t min, max, n_prefix;
  uint32_t hit, min_hits, max_hits;  // items that satisfy the part; MTX_JSON_NONE: none are counted
  bool rest_differs;                 // unevaluatedItems holds for those that do not
} sc_items;
// Conjunction of item i of an array; i past every prefix gives the rest's. hit: it is known to
// satisfy the part, the schema of a `contains`; or MTX_JSON_NONE.
sc_conj sc_item_conj(mtx_sc *s, const sc_conj *c, uint32_t i, uint32_t hit);
// Adds to out what `keyword` (unevaluatedProperties, unevaluatedItems) of the parts of c asks of
// a property or an item; found[i]: part i says something of it.
void sc_add_unevaluated(mtx_sc *s, const sc_conj *c, const char *keyword, const bool *found, sc_conj *out);
// The items of an array which count hits too. False: too many counts, a warning is made.
bool sc_counted_items(mtx_sc *s, const sc_conj *c, const sc_items *r, mtx_gx *out);
mtx_gx sc_string(mtx_sc *s, const sc_conj *c);
// x between quotes, as a rule of its own: a leaf, whose masks are cheap (mask.h).
mtx_gx sc_quoted_leaf(mtx_sc *s, mtx_gx x);
// types: SC_INT, SC_NUM or both
mtx_gx sc_number(mtx_sc *s, const sc_conj *c, uint32_t types);
typedef struct {
  const char *name, *pattern;
  uint32_t max;             // characters, which the pattern does not count; 0: no bound
  bool host;                // the same as: a host name or (if not NULL) `or_else`; before it,
  const char *or_else;      // if not NULL, `before_at` and an @
  const char *before_at;
} sc_format;
const sc_format *sc_find_format(const char *name);  // NULL: not known
// The format with its lengths counted, to stand between quotes; MTX_GX_NEVER if it has no host name.
mtx_gx sc_host_format(mtx_sc *s, const sc_format *f);
// Without any rule: one grammar rule each, made once.
mtx_gx sc_free_string(mtx_sc *s);
mtx_gx sc_free_number(mtx_sc *s, bool integer);
mtx_gx sc_any(mtx_sc *s);  // any JSON value
// as_text: texts that do not hold `stop`, NULL with a failure recorded.
mtx_cdfa *sc_texts_without(mtx_sc *s, const char *stop, size_t n);
// The value of a JSON node, written out; as_text: MTX_GX_NEVER if it is no text that may be written.
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
mtx_code mtx_schema_define(mtx_gb *b, uint32_t rule, const mtx_schema_rule *schema, const mtx_schema_opts *opts, mtx_err *err);

#endif
