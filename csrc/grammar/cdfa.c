// SPDX-License-Identifier: MIT
// The algebra of cdfa.h.
#include "grammar/cdfa.h"

#include <string.h>

#include "grammar/text.h"

mtx_cdfa *mtx_cdfa_new(void) { return calloc(1, sizeof(mtx_cdfa)); }

void mtx_cdfa_free(mtx_cdfa *d) {
  if (!d) return;
  free(d->states);
  free(d->edges);
  free(d);
}

uint32_t mtx_cdfa_state(mtx_cdfa *d, bool accept) {
  if (!MTX_VEC_GROW(d, states, 1, MTX_CDFA_MAX_STATES)) return UINT32_MAX;
  d->states[d->n_states] = (cd_state){d->n_edges, 0, accept};
  return d->n_states++;
}

bool mtx_cdfa_edge(mtx_cdfa *d, uint32_t lo, uint32_t hi, uint32_t to) {
  cd_state *s = d->states + d->n_states - 1;
  cd_edge *last = s->n_edges ? d->edges + d->n_edges - 1 : NULL;
  if (last && last->to == to && last->hi + 1 == lo) {
    last->hi = hi;
    return true;
  }
  if (!MTX_VEC_GROW(d, edges, 1, MTX_CDFA_MAX_EDGES)) return false;
  d->edges[d->n_edges++] = (cd_edge){lo, hi, to};
  s->n_edges++;
  return true;
}
