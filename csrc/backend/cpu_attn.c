// SPDX-License-Identifier: MIT
// Attention: what is stored, and how query rows are cut into tiles for threads.
#include <math.h>

#include "backend/cpu.h"
#include "kern/attn.h"

void mtx_cpu_kv_store_head(const mtx_step_desc *s, const mtx_work *w, int64_t r, int h) {
  const mtx_kv_layout *kv = &w->c->plan->kv;
  const mtx_kv_layer *l = &kv->layer[s->kv_layer];
  const float *k = mtx_val_ptr(w->c, s->in[0]) + r * mtx_val_stride(w->c, s->in[0]);
  const float *v = mtx_val_ptr(w->c, s->in[1]) + r * mtx_val_stride(w->c, s->in[1]);
  int32_t pos = w->x->pos[r];
  uint8_t *page = w->x->seq[w->x->row_seq[r]].pages[l->group][pos / MTX_PAGE_TOKENS];
  mtx_attn_get()->store(kv->type, k + h * l->dk, v + h * l->dv, l->dk, l->dv, pos % MTX_PAGE_TOKENS,
                        page + l->k_off + (size_t)h * l->k_head_bytes, page + l->v_off + (size_t)h * l->v_head_bytes);
}

void mtx_cpu_kv_store(const mtx_step_desc *s, const mtx_work *w) {
  int n_head_kv = w->c->plan->kv.layer[s->kv_layer].n_head_kv;
  int64_t a, b;
  mtx_share((int64_t)w->x->n_rows * n_head_kv, 1, w->ith, w->nth, &a, &b);
  for (int64_t i = a; i < b; i++) mtx_cpu_kv_store_head(s, w, i / n_head_kv, (int)(i % n_head_kv));
}

size_t mtx_cpu_attention_scratch(const mtx_step_desc *s) {
  return mtx_attn_scratch_floats(s->u.attn.dk, s->u.attn.dv, MTX_ATTN_MAX_TILE);
}

// ALiBi slope of a head (Press et al. 2021), heads beyond a power of two interpolated.
static float alibi_slope(float max_bias, int n_head, int h) {
  if (max_bias == 0.0f) return 0.0f;
  int n = 1;
  while (n * 2 <= n_head) n *= 2;
  return h < n ? powf(2.0f, -max_bias / (float)n * (float)(h + 1)) : powf(2.0f, -max_bias / 2.0f / (float)n * (float)(2 * (h - n) + 1));
}

// First token that a causal row at pos sees.
static int64_t first_seen(const mtx_attn *a, int64_t pos) {
  if (a->window <= 0) return 0;
  if (a->chunked) return pos - pos % a->window;
  return pos + 1 > a->window ? pos + 1 - a->window : 0;
}

typedef struct {
  const mtx_step_desc *s;
  const mtx_work *w;
  const mtx_kv_layer *layer;
  const mtx_attn_kernels *kern;
} job;

// Queries [i0, i1) of one sequence and KV head; query i is row i / group, head i % group of the group.
static void run_tile(const job *j, const mtx_exec_seq *q, int hkv, int64_t i0, int64_t i1, const uint8_t *then) {
  const mtx_attn *a = &j->s->u.attn;
  const mtx_work *w = j->w;
  const float *sinks = a->sinks ? w->c->plan->weight[a->sinks].vec : NULL;
  int per = a->n_head / a->n_head_kv;
  mtx_attn_query query[MTX_ATTN_MAX_TILE];
  int n = 0;
  for (int64_t i = i0; i < i1; i++) {
    int64_t t = i / per, row = q->row0 + t, pos = q->pos0 + t;
    int head = hkv * per + (int)(i % per);
    int64_t end = a->causal ? pos + 1 : q->pos0 + q->n_rows, begin = a->causal ? first_seen(a, pos) : 0;
    if (a->window > 0 && !a->causal) {  // a symmetric band, window/2 to each side
      begin = pos > a->window / 2 ? pos - a->window / 2 : 0;
      end = end < pos + a->window / 2 + 1 ? end : pos + a->window / 2 + 1;
    }
    query[n++] = (mtx_attn_query){
        .q = mtx_val_ptr(w->c, j->s->in[0]) + row * mtx_val_stride(w->c, j->s->in[0]) + (int64_t)head * a->dk,
        .out = mtx_val_ptr(w->c, j->s->out[0]) + row * mtx_val_stride(w->c, j->s->out[0]) + (int64_t)head * a->dv,
        .begin = begin, .end = end, .pos = pos,
        .slope = alibi_slope(a->alibi_max_bias, a->n_head, head), .sink = sinks ? sinks[head] : -INFINITY};
  }
  mtx_attn_tile tile = {.type = w->c->plan->kv.type, .dk = a->dk, .dv = a->dv, .scale = a->scale, .softcap = a->softcap,
                        .pages = q->pages[j->layer->group], .k_off = j->layer->k_off + (size_t)hkv * j->layer->k_head_bytes,
                        .v_off = j->layer->v_off + (size_t)hkv * j->layer->v_head_bytes, .then = then, .n = n, .query = query, .scratch = w->scratch};
  j->kern->tile(&tile);
  for (int64_t i = i0; i < i1 && j->s->encoded; i++) {
    int64_t row = q->row0 + i / per, head = hkv * per + i % per;
    mtx_act_encode(MTX_ACT_Q8, mtx_val_ptr(w->c, j->s->out[0]) + row * mtx_val_stride(w->c, j->s->out[0]), mtx_val_n(w->c, j->s->out[0]),
                   head * a->dv / 32, (head + 1) * a->dv / 32, mtx_val_ptr(w->c, j->s->encoded) + row * mtx_val_stride(w->c, j->s->encoded));
  }
}

// Every sequence has one row: a KV head of it is one tile, and no other head reads what it stores.
bool mtx_cpu_heads_alone(const mtx_exec *x, const mtx_attn *a) {
  return x->n_rows == x->n_seqs && a->n_head / a->n_head_kv <= MTX_ATTN_MAX_TILE;
}

// First page that the unit'th KV head of all sequences sees (they have one row each), as seen from KV head h: what this
// thread will probably read next.
static const uint8_t *first_page(const job *j, int64_t unit, int h) {
  const mtx_attn *a = &j->s->u.attn;
  if (unit >= (int64_t)j->w->x->n_seqs * a->n_head_kv) return NULL;
  const mtx_exec_seq *q = &j->w->x->seq[unit / a->n_head_kv];
  return q->pages[j->layer->group][first_seen(a, q->pos0) / MTX_PAGE_TOKENS] + (unit % a->n_head_kv - h) * (int64_t)j->layer->k_head_bytes;
}

// Queries of a tile, where a KV head of a sequence has n, `per` of them to a row. The largest tiles share most of the
// pages' way through the caches; but each thread gets as many as the others, and of one head at the same time, so that
// what one reads from memory the others find in the cache they share.
static int64_t tile_queries(int64_t n, int per, int n_head_kv, int nth) {
  int even = nth, rest = n_head_kv;  // tiles of a head are a multiple of nth / gcd(nth, n_head_kv)
  while (rest) {
    int t = even % rest;
    even = rest;
    rest = t;
  }
  even = nth / even;
  int64_t tiles = (n + MTX_ATTN_MAX_TILE - 1) / MTX_ATTN_MAX_TILE;
  tiles = (tiles + even - 1) / even * even;
  int64_t tile = (n + tiles - 1) / tiles;
  tile = tile < per ? per : tile;
  return tile < MTX_ATTN_MAX_TILE ? tile : MTX_ATTN_MAX_TILE;
}

void mtx_cpu_attention(const mtx_step_desc *s, const mtx_work *w) {
  const mtx_attn *a = &s->u.attn;
  job j = {s, w, &w->c->plan->kv.layer[s->kv_layer], mtx_attn_get()};
  int per = a->n_head / a->n_head_kv;
  bool alone = mtx_cpu_heads_alone(w->x, a);
  int64_t unit = 0, mine = atomic_fetch_add_explicit(w->ticket, 1, memory_order_relaxed);
  for (int i = 0; i < w->x->n_seqs; i++) {
    const mtx_exec_seq *q = &w->x->seq[i];
    int64_t n = (int64_t)q->n_rows * per, tile = tile_queries(n, per, a->n_head_kv, w->nth);
    for (int h = 0; h < a->n_head_kv; h++)
      for (int64_t i0 = 0; i0 < n; i0 += tile, unit++)
        if (unit == mine) {  // tiles grow with their position: threads take them as they come
          for (int k = alone ? s->n_own_heads : 0; k > 0; k--) mtx_cpu_own_head(s - k, w, q->row0, h, a->n_head_kv);
          run_tile(&j, q, h, i0, i0 + tile < n ? i0 + tile : n, alone ? first_page(&j, unit + w->nth, h) : NULL);
          mine = atomic_fetch_add_explicit(w->ticket, 1, memory_order_relaxed);
        }
  }
}
