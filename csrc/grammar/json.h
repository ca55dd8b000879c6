// SPDX-License-Identifier: MIT
// A small JSON reader (RFC 8259) that keeps key order and number texts.
//
// Schemas need both: keys are generated in the order the schema lists them,
// and bounds are compared as decimal digits. Nodes are numbers into one
// array; node 0 is the document.
#ifndef MTX_GRAMMAR_JSON_H
#define MTX_GRAMMAR_JSON_H

#include "base/err.h"
#include "grammar/vec.h"

#define MTX_JSON_MAX_DEPTH 200
#define MTX_JSON_NONE UINT32_MAX

enum { MTX_JSON_NULL, MTX_JSON_FALSE, MTX_JSON_TRUE, MTX_JSON_NUMBER, MTX_JSON_STRING, MTX_JSON_ARRAY, MTX_JSON_OBJECT };

typedef struct {
  uint8_t kind;
  uint32_t key, n_key;    // decoded key, into pool; members of objects only
  uint32_t text, n_text;  // STRING: decoded; NUMBER: as written; into pool
  uint32_t first, next;   // first child, next sibling; MTX_JSON_NONE
  uint32_t n_kids, parent;
  uint32_t offset;        // in the text
} mtx_jnode;

typedef struct {
  MTX_VEC(mtx_jnode, nodes);
  MTX_VEC(char, pool);
} mtx_json;

mtx_code mtx_json_parse(const char *text, size_t len, mtx_json *out, mtx_err *err);
void mtx_json_fini(mtx_json *j);

// The last member of that name (which is the one that counts), or MTX_JSON_NONE.
uint32_t mtx_json_get(const mtx_json *j, uint32_t object, const char *key);
uint32_t mtx_json_get_n(const mtx_json *j, uint32_t object, const char *key, size_t n_key);
// Same value? 1 and 1.0 are, objects whatever their order.
bool mtx_json_equal(const mtx_json *j, uint32_t x, uint32_t y);

#endif
