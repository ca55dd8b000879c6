// SPDX-License-Identifier: MIT
// The members of an object while its rule is made: schema_keys.c gathers what is said of
// keys, schema_object.c makes the members, schema_set.c their SET rule.
#ifndef MTX_GRAMMAR_SCHEMA_OBJECT_H
#define MTX_GRAMMAR_SCHEMA_OBJECT_H

#include "grammar/schema.h"

#define SC_MAX_PROPERTIES 2000u
#define SC_MAX_PATTERNS 4u

typedef struct {
  const char *text;
  uint32_t n;
  bool required, forbidden;
  bool in_order;  // among the required ones
} sc_name;

typedef struct {
  uint32_t node;  // the pattern's schema; its key is the pattern
  uint32_t part;
  mtx_cdfa *d;
} sc_key_pattern;

typedef struct {
  mtx_sc *s;
  const sc_conj *c;
  MTX_VEC(sc_name, names);
  uint32_t *hash, n_hash;
  sc_key_pattern patterns[SC_MAX_PATTERNS];
  uint32_t n_patterns;
  mtx_cdfa *allowed;  // propertyNames, NULL: all
  uint32_t min, max;
  MTX_VEC(gb_item, items);
  uint32_t n_known;             // the names in front that can come
  uint64_t needs[GR_SET_BITS];  // bits of the names that must come with a name
  bool any_needs;
} sc_members;

#define SC_NEEDS_MISSING (1ull << 63)  // one of them cannot come

// Names: of properties, of required and of conditions, in the order they come in.
void sc_gather_names(sc_members *o);
void sc_gather_object(sc_members *o);  // counts of members, patterns of keys
void sc_gather_keys(sc_members *o);    // propertyNames as an automaton, if it is only about the text

extern const char *const sc_depending[2];
// Calls f for each list of dependentRequired, and of dependencies in draft-07.
void sc_each_dependency(sc_members *o, void (*f)(sc_members *o, uint32_t member));
// What each name needs, with what that needs; names that cannot have it do not come.
void sc_gather_needs(sc_members *o);
// The set of the items; false: no object can be made of them.
bool sc_make_set(sc_members *o, gr_set *set);

#endif
