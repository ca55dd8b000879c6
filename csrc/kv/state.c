// SPDX-License-Identifier: MIT
// Recurrent state with snapshots: see state.h.
#include "kv/state.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SNAPSHOT_BYTES = 256 << 20 };  // per sequence, so that large states stay affordable

int mtx_state_max_snapshots(size_t state_bytes) {
  if (!state_bytes) return 0;
  size_t n = MAX_SNAPSHOT_BYTES / state_bytes;
  return n < 1 ? 1 : n > MTX_MAX_SNAPSHOTS ? MTX_MAX_SNAPSHOTS : (int)n;
}

static void *state_alloc(size_t bytes) { return aligned_alloc(64, (bytes + 63) & ~(size_t)63); }

mtx_code mtx_state_init(mtx_state *s, size_t bytes, mtx_err *err) {
  memset(s, 0, sizeof *s);
  if (!bytes) return MTX_OK;
  s->live = state_alloc(bytes);
  if (!s->live) return mtx_fail(err, MTX_ENOMEM, "no memory for a recurrent state of %zu bytes", bytes);
  memset(s->live, 0, bytes);
  return MTX_OK;
}

mtx_snapshot *mtx_snapshot_new(size_t bytes, int64_t n_tokens) {
  mtx_snapshot *snap = malloc(sizeof *snap);
  if (!snap) return NULL;
  *snap = (mtx_snapshot){n_tokens, 1, state_alloc(bytes)};
  if (!snap->data) {
    free(snap);
    return NULL;
  }
  memset(snap->data, 0, bytes);
  return snap;
}

void mtx_snapshot_ref(mtx_snapshot *snap) { snap->refs++; }

void mtx_snapshot_unref(mtx_snapshot *snap) {
  if (--snap->refs) return;
  free(snap->data);
  free(snap);
}

void mtx_state_fini(mtx_state *s) {
  free(s->live);
  while (s->n) mtx_snapshot_unref(s->snap[--s->n]);
  memset(s, 0, sizeof *s);
}

// Drops the snapshot that is missed least: the one whose two neighbours lie
// closest together, measured against its distance from the newest. So the
// spacing grows with age and a rewind never re-reads many times its own length.
static void thin(mtx_state *s) {
  int worst = 0;
  double best = 0;
  int64_t head = s->snap[s->n - 1]->n_tokens;
  for (int i = 0; i < s->n - 1; i++) {
    int64_t before = i ? s->snap[i - 1]->n_tokens : 0;
    double gap = (double)(s->snap[i + 1]->n_tokens - before);
    double score = gap / (double)(head - s->snap[i]->n_tokens + 1);
    if (i == 0 || score < best) best = score, worst = i;
  }
  mtx_snapshot_unref(s->snap[worst]);
  s->n--;
  memmove(s->snap + worst, s->snap + worst + 1, (size_t)(s->n - worst) * sizeof *s->snap);
}

void mtx_state_keep(mtx_state *s, size_t bytes, int64_t n_tokens) {
  if (s->n && s->snap[s->n - 1]->n_tokens >= n_tokens) return;
  mtx_snapshot *snap = mtx_snapshot_new(bytes, n_tokens);
  if (!snap) return;
  memcpy(snap->data, s->live, bytes);
  if (s->n == mtx_state_max_snapshots(bytes)) thin(s);
  s->snap[s->n++] = snap;
}

int64_t mtx_state_nearest(const mtx_state *s, int64_t len, int64_t n_tokens) {
  if (n_tokens >= len) return len;
  for (int i = s->n - 1; i >= 0; i--)
    if (s->snap[i]->n_tokens <= n_tokens) return s->snap[i]->n_tokens;
  return 0;
}

void mtx_state_restore(mtx_state *dst, const mtx_state *src, size_t bytes, int64_t len, int64_t n_tokens) {
  int keep = 0;
  while (keep < src->n && src->snap[keep]->n_tokens <= n_tokens) keep++;
  if (n_tokens != len) {
    const mtx_snapshot *at = keep ? src->snap[keep - 1] : NULL;
    if (at && at->n_tokens == n_tokens) memcpy(dst->live, at->data, bytes);
    else memset(dst->live, 0, bytes);
  } else if (dst != src) {
    memcpy(dst->live, src->live, bytes);
  }
  if (dst == src) {
    while (dst->n > keep) mtx_snapshot_unref(dst->snap[--dst->n]);
    return;
  }
  for (dst->n = 0; dst->n < keep; dst->n++) {
    dst->snap[dst->n] = src->snap[dst->n];
    dst->snap[dst->n]->refs++;
  }
}
