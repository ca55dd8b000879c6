// SPDX-License-Identifier: MIT
// Images of sequences: see image.h.
//
// Words (u64, little-endian): KV type, groups, state bytes, snapshots; per group window, page
// bytes, a checksum of its layers' shapes and its first stored page; per snapshot its length.
// Then the pages of each group, the state, the snapshots.
#include "kv/image.h"

#include <string.h>

#include "base/checksum.h"
#include "kv/state.h"

enum { P = MTX_PAGE_TOKENS, HEAD = 4, GROUP = 4, MAX_WORDS = HEAD + GROUP * MTX_KV_MAX_GROUPS + MTX_MAX_SNAPSHOTS };

static int64_t pages_of(int64_t n_tokens) { return (n_tokens + P - 1) / P; }

static uint64_t shapes(const mtx_kv_layout *l, int g) {
  mtx_checksum c;
  mtx_checksum_init(&c);
  for (int i = 0; i < l->n_layers; i++) {
    const mtx_kv_layer *y = &l->layer[i];
    int64_t shape[] = {i, y->n_head_kv, y->dk, y->dv};
    if (y->group == g) mtx_checksum_update(&c, shape, sizeof shape);
  }
  return mtx_checksum_get(&c);
}

// Everything that the layout alone tells; first pages and snapshots are zero. Returns the number of words.
static size_t words_of(const mtx_kv_layout *l, int n_snapshots, uint64_t *w) {
  size_t n = (size_t)(HEAD + GROUP * l->n_groups + n_snapshots);
  memset(w, 0, n * sizeof *w);
  w[0] = (uint64_t)l->type, w[1] = (uint64_t)l->n_groups, w[2] = l->state_bytes, w[3] = (uint64_t)n_snapshots;
  for (int g = 0; g < l->n_groups; g++) {
    uint64_t *x = w + HEAD + GROUP * g;
    x[0] = (uint64_t)l->window[g], x[1] = l->page_bytes[g], x[2] = shapes(l, g);
  }
  return n;
}

// Words of seq's image.
static size_t describe(const mtx_kv *kv, int seq, uint64_t *w) {
  const mtx_kv_layout *l = mtx_kv_get_layout(kv);
  int n_snapshots = 0;
  mtx_snapshot *const *s = mtx_kv_seq_snapshots(kv, seq, &n_snapshots);
  size_t n = words_of(l, n_snapshots, w);
  for (int g = 0; g < l->n_groups; g++) {
    uint8_t *const *page = mtx_kv_seq_pages(kv, seq, g);
    int64_t first = 0, end = pages_of(mtx_kv_seq_len(kv, seq));
    while (first < end && !page[first]) first++;
    w[HEAD + GROUP * g + 3] = (uint64_t)first;
  }
  for (int i = 0; i < n_snapshots; i++) w[HEAD + GROUP * l->n_groups + i] = (uint64_t)s[i]->n_tokens;
  return n;
}

static uint64_t bytes_of(const mtx_kv_layout *l, const uint64_t *w, size_t n_words, int64_t n_tokens) {
  uint64_t n = n_words * sizeof *w + l->state_bytes * (l->state_bytes ? w[3] + 1 : 0);
  for (int g = 0; g < l->n_groups; g++) n += ((uint64_t)pages_of(n_tokens) - w[HEAD + GROUP * g + 3]) * l->page_bytes[g];
  return n;
}

uint64_t mtx_kv_image_bytes(const mtx_kv *kv, int seq) {
  uint64_t w[MAX_WORDS];
  size_t n = describe(kv, seq, w);
  return bytes_of(mtx_kv_get_layout(kv), w, n, mtx_kv_seq_len(kv, seq));
}

void mtx_kv_image_write(mtx_kv *kv, int seq, uint8_t *dst) {
  const mtx_kv_layout *l = mtx_kv_get_layout(kv);
  uint64_t w[MAX_WORDS];
  size_t n = describe(kv, seq, w);
  memcpy(dst, w, n * sizeof *w);
  dst += n * sizeof *w;
  for (int g = 0; g < l->n_groups; g++) {
    uint8_t *const *page = mtx_kv_seq_pages(kv, seq, g);
    for (int64_t i = (int64_t)w[HEAD + GROUP * g + 3]; i < pages_of(mtx_kv_seq_len(kv, seq)); i++, dst += l->page_bytes[g])
      memcpy(dst, page[i], l->page_bytes[g]);
  }
  if (!l->state_bytes) return;
  memcpy(dst, mtx_kv_seq_state(kv, seq), l->state_bytes);
  int n_snapshots;
  mtx_snapshot *const *s = mtx_kv_seq_snapshots(kv, seq, &n_snapshots);
  for (int i = 0; i < n_snapshots; i++) memcpy(dst += l->state_bytes, s[i]->data, l->state_bytes);
}

static mtx_code damaged(mtx_err *err, const char *what) { return mtx_fail(err, MTX_EFORMAT, "the saved state is damaged: %s", what); }

// Copies the words out of src; 0 when they are not all there.
static size_t read_words(const uint8_t *src, uint64_t n_bytes, uint64_t *w) {
  if (n_bytes < HEAD * sizeof *w) return 0;
  memcpy(w, src, HEAD * sizeof *w);
  if (w[1] > MTX_KV_MAX_GROUPS || w[3] > MTX_MAX_SNAPSHOTS) return 0;
  size_t n = HEAD + GROUP * w[1] + w[3];
  if (n_bytes < n * sizeof *w) return 0;
  memcpy(w, src, n * sizeof *w);
  return n;
}

mtx_code mtx_kv_image_check(const mtx_kv_layout *l, const uint8_t *src, uint64_t n_bytes, int64_t n_tokens, mtx_err *err) {
  uint64_t w[MAX_WORDS], own[MAX_WORDS];
  size_t n = read_words(src, n_bytes, w);
  if (!n) return damaged(err, "its description is cut short");
  if (w[0] != (uint64_t)l->type)
    return mtx_fail(err, MTX_EUNSUPPORTED, "the state was saved from a KV cache of type %s; this one is %s",
                    mtx_kv_type_name(w[0] < MTX_KV_N_TYPES ? (mtx_kv_type)w[0] : MTX_KV_N_TYPES), mtx_kv_type_name(l->type));
  words_of(l, (int)w[3], own);
  bool same = w[1] == own[1] && w[2] == own[2];
  for (int g = 0; g < l->n_groups && same; g++) same = !memcmp(w + HEAD + GROUP * g, own + HEAD + GROUP * g, 3 * sizeof *w);
  if (!same) return mtx_fail(err, MTX_EUNSUPPORTED, "the state was saved from a KV cache of another shape");
  for (int g = 0; g < l->n_groups; g++) {
    uint64_t first = w[HEAD + GROUP * g + 3];
    if (first > (uint64_t)(mtx_kv_window_start(l, g, n_tokens) / P)) return damaged(err, "pages are missing");
  }
  if (w[3] > (uint64_t)mtx_state_max_snapshots(l->state_bytes)) return damaged(err, "it has too many snapshots");
  const uint64_t *at = w + HEAD + GROUP * l->n_groups;
  for (uint64_t i = 0; i < w[3]; i++)
    if (at[i] > (uint64_t)n_tokens || at[i] == 0 || (i && at[i] <= at[i - 1])) return damaged(err, "its snapshots are out of order");
  if (bytes_of(l, w, n, n_tokens) != n_bytes) return damaged(err, "its size is wrong");
  return MTX_OK;
}

mtx_code mtx_kv_image_read(mtx_kv *kv, const uint8_t *src, int64_t n_tokens, int *seq, mtx_err *err) {
  const mtx_kv_layout *l = mtx_kv_get_layout(kv);
  uint64_t w[MAX_WORDS];
  int64_t first[MTX_KV_MAX_GROUPS];
  size_t n = read_words(src, UINT64_MAX, w);
  for (int g = 0; g < l->n_groups; g++) first[g] = (int64_t)w[HEAD + GROUP * g + 3];
  mtx_code rc = mtx_kv_seq_blank(kv, n_tokens, first, seq, err);
  if (rc) return rc;
  src += n * sizeof *w;
  for (int g = 0; g < l->n_groups; g++) {
    uint8_t *const *page = mtx_kv_seq_pages(kv, *seq, g);
    for (int64_t i = first[g]; i < pages_of(n_tokens); i++, src += l->page_bytes[g]) memcpy(page[i], src, l->page_bytes[g]);
  }
  if (!l->state_bytes) return MTX_OK;
  memcpy(mtx_kv_seq_state(kv, *seq), src, l->state_bytes);
  for (uint64_t i = 0; i < w[3]; i++) {
    mtx_snapshot *snap = mtx_snapshot_new(l->state_bytes, (int64_t)w[HEAD + GROUP * l->n_groups + i]);
    if (!snap) break;  // fewer places to come back to
    memcpy(snap->data, src += l->state_bytes, l->state_bytes);
    mtx_kv_seq_add_snapshot(kv, *seq, snap);
    mtx_snapshot_unref(snap);
  }
  return MTX_OK;
}
