// SPDX-License-Identifier: MIT
// From the built steps to the plan: merge, fuse, give buffers their places.
//
// Values are written once, so a matmul may move up to an earlier one that reads
// the same input; both then run as one step between two barriers. A barrier costs
// about as much as the small ops of a decoded token, so what can be done by the
// threads of a neighbouring step is.
#include <stdlib.h>
#include <string.h>

#include "graph/graph_build.h"

static bool same_val(const mtx_plan *p, mtx_val a, mtx_val b) {
  return a && b && p->val[a].buf == p->val[b].buf && p->val[a].off == p->val[b].off && p->val[a].n == p->val[b].n;
}

static void drop_steps(mtx_plan *p, const uint8_t *dead) {
  int n = 0;
  for (int i = 0; i < p->n_steps; i++)
    if (!dead[i]) p->step[n++] = p->step[i];
  p->n_steps = n;
}

// Joins matmuls (plain or expert ones) that read the same value.
static void merge_matmuls(mtx_plan *p, uint8_t *dead) {
  for (int i = 0; i < p->n_steps; i++) {
    mtx_step_desc *a = &p->step[i];
    if (dead[i] || (a->op != MTX_OP_MATMUL && a->op != MTX_OP_MOE_MATMUL)) continue;
    for (int j = i + 1; j < p->n_steps && j < i + 32 && a->n_w < MTX_STEP_MAX_W; j++) {
      mtx_step_desc *b = &p->step[j];
      if (b->op == MTX_OP_MOE_ROUTE && a->op == MTX_OP_MOE_MATMUL) break;
      if (dead[j] || b->op != a->op || b->n_w != 1 || !same_val(p, a->in[0], b->in[0])) continue;
      a->w[a->n_w] = b->w[0];
      a->b[a->n_w] = b->b[0];
      a->out[a->n_w] = b->out[0];
      a->n_w++;
      dead[j] = 1;
    }
  }
}

static bool is_result(const mtx_plan *p, int buf) { return p->val[p->output].buf == buf || (p->hidden && p->val[p->hidden].buf == buf); }

static int count_uses(const mtx_plan *p, int buf, int from, const uint8_t *dead) {
  int n = is_result(p, buf);
  for (int i = from; i < p->n_steps; i++) {
    if (dead[i]) continue;
    for (int k = 0; k < MTX_STEP_MAX_IN; k++) n += p->step[i].in[k] && p->val[p->step[i].in[k]].buf == buf;
  }
  return n;
}

static int next_alive(const mtx_plan *p, int i, const uint8_t *dead) {
  do i++;
  while (i < p->n_steps && dead[i]);
  return i;
}

// x + matmul(...) where x is used no more: the matmul adds into x's buffer.
static void fuse_residual(mtx_plan *p, uint8_t *dead) {
  for (int i = 0; i + 1 < p->n_steps; i++) {
    mtx_step_desc *mm = &p->step[i];
    if (dead[i] || mm->op != MTX_OP_MATMUL || mm->n_w != 1) continue;
    int j = next_alive(p, i, dead);
    if (j == p->n_steps || p->step[j].op != MTX_OP_ADD) continue;
    mtx_step_desc *add = &p->step[j];
    mtx_val x = same_val(p, add->in[1], mm->out[0]) ? add->in[0] : same_val(p, add->in[0], mm->out[0]) ? add->in[1] : 0;
    if (!x) continue;
    int xb = p->val[x].buf, tb = p->val[mm->out[0]].buf, yb = p->val[add->out[0]].buf;
    if (p->buf[xb].n != p->val[x].n || p->buf[xb].dom != p->buf[tb].dom || xb == tb) continue;
    if (count_uses(p, tb, j + 1, dead) || count_uses(p, xb, j + 1, dead) || p->val[mm->in[0]].buf == xb) continue;
    mm->out[0] = x;
    mm->accumulate[0] = true;
    dead[j] = 1;
    for (int v = 1; v < p->n_vals; v++)
      if (p->val[v].buf == yb) p->val[v].buf = xb;
  }
}

// norm(x) + r where the norm is used no more: one step.
static void fuse_norm_add(mtx_plan *p, uint8_t *dead) {
  for (int i = 0; i + 1 < p->n_steps; i++) {
    mtx_step_desc *s = &p->step[i];
    int j = next_alive(p, i, dead);
    if (dead[i] || s->op != MTX_OP_NORM || j == p->n_steps || p->step[j].op != MTX_OP_ADD) continue;
    mtx_step_desc *add = &p->step[j];
    mtx_val r = same_val(p, add->in[1], s->out[0]) ? add->in[0] : same_val(p, add->in[0], s->out[0]) ? add->in[1] : 0;
    if (!r || same_val(p, r, s->out[0]) || count_uses(p, p->val[s->out[0]].buf, j + 1, dead)) continue;
    s->in[1] = r;
    s->out[0] = add->out[0];
    dead[j] = 1;
  }
}

// Can the step encode what it makes, in blocks of 32?
static bool encodes(const mtx_plan *p, const mtx_step_desc *s) {
  switch (s->op) {
    case MTX_OP_GLU: return p->val[s->out[0]].n % 32 == 0;
    case MTX_OP_NORM: return s->n == p->val[s->out[0]].n && s->n % 32 == 0;
    case MTX_OP_ATTENTION: return s->u.attn.dv % 32 == 0;
    default: return false;
  }
}

// An encoding right behind the op that made its input is done by that op.
static void fuse_encode(mtx_plan *p, uint8_t *dead) {
  for (int i = 0; i + 1 < p->n_steps; i++) {
    mtx_step_desc *s = &p->step[i];
    int j = next_alive(p, i, dead);
    if (dead[i] || !encodes(p, s) || j == p->n_steps) continue;
    if (p->step[j].op != MTX_OP_ENCODE || !same_val(p, p->step[j].in[0], s->out[0])) continue;
    s->encoded = p->step[j].out[0];
    dead[j] = 1;
  }
}

// A gated activation right behind the matmul that made gate and up: each thread has the rows of both.
static void fuse_glu(mtx_plan *p, uint8_t *dead) {
  for (int i = 0; i + 1 < p->n_steps; i++) {
    mtx_step_desc *mm = &p->step[i];
    int j = next_alive(p, i, dead);
    if (dead[i] || mm->op != MTX_OP_MATMUL || mm->n_w != 2 || j == p->n_steps || p->step[j].op != MTX_OP_GLU) continue;
    const mtx_step_desc *glu = &p->step[j];
    if (glu->f[0] != 0.0f) continue;
    if (!same_val(p, glu->in[0], mm->out[0]) || !same_val(p, glu->in[1], mm->out[1])) continue;
    mm->unary = glu->unary;
    mm->glu = glu->out[0];
    mm->encoded = glu->encoded;
    dead[j] = 1;
  }
}

// ---- work that need not wait for all threads --------------------------------------

static bool only_read_by(const mtx_plan *p, mtx_val v, int step) {
  int buf = p->val[v].buf;
  if (is_result(p, buf)) return false;
  for (int i = 0; i < p->n_steps; i++)
    for (int k = 0; k < MTX_STEP_MAX_IN && i != step; k++)
      if (p->step[i].in[k] && p->val[p->step[i].in[k]].buf == buf) return false;
  return true;
}

// Does the matmul add into what the step before it reads? Then that step must be done before any thread multiplies.
static bool adds_into(const mtx_plan *p, const mtx_step_desc *mm, mtx_val x) {
  for (int i = 0; i < mm->n_w; i++)
    if (p->val[mm->out[i]].buf == p->val[x].buf) return true;
  return false;
}

static void find_own_rows(mtx_plan *p) {
  for (int i = 0; i + 1 < p->n_steps; i++) {
    mtx_step_desc *s = &p->step[i];
    const mtx_step_desc *mm = s + 1;
    bool whole = s->op == MTX_OP_NORM && s->n == p->val[s->out[0]].n && !s->in[1];
    if (mm->op != MTX_OP_MATMUL || !(whole || s->op == MTX_OP_ENCODE) || adds_into(p, mm, s->in[0])) continue;
    s->own_rows = same_val(p, mm->in[0], s->encoded ? s->encoded : s->out[0]) && only_read_by(p, s->out[0], i + 1) &&
                  (!s->encoded || only_read_by(p, s->encoded, i + 1));
  }
}

// Goes back from an attention over rotations and norms of its heads and the store of its keys and values.
static void find_own_heads(mtx_plan *p) {
  for (int i = 0; i < p->n_steps; i++) {
    mtx_step_desc *at = &p->step[i];
    if (at->op != MTX_OP_ATTENTION) continue;
    const mtx_attn *a = &at->u.attn;
    mtx_val q = at->in[0], k = 0, v = 0;
    for (int j = i - 1; j >= 0; j--) {
      mtx_step_desc *s = &p->step[j];
      bool store = s->op == MTX_OP_KV_STORE && s->kv_layer == at->kv_layer && !k;
      int64_t head = s->op == MTX_OP_ROPE ? s->head_n : s->op == MTX_OP_NORM && !s->encoded && !s->in[1] ? s->n : 0;
      mtx_val *side = same_val(p, s->out[0], q) ? &q : same_val(p, s->out[0], k) ? &k : same_val(p, s->out[0], v) ? &v : NULL;
      if (store) k = s->in[0], v = s->in[1];
      else if (side && head == (side == &v ? a->dv : a->dk)) *side = s->in[0];
      else break;
      s->own_heads = true;
      at->n_own_heads++;
    }
  }
}

static void touch(mtx_plan *p, mtx_val v, int step) {
  if (!v) return;
  mtx_plan_buf *b = &p->buf[p->val[v].buf];
  if (b->first < 0) b->first = step;
  if (b->last < step) b->last = step;
}

// The step that may do step i's work (find_own_rows, find_own_heads); i when none.
static int done_by(const mtx_plan *p, int i) {
  if (p->step[i].own_rows) return i + 1;
  while (p->step[i].own_heads) i++;
  return i;
}

static void lifetimes(mtx_plan *p) {
  for (int i = 0; i < p->n_steps; i++) {
    mtx_step_desc *s = &p->step[i];
    for (int k = 0; k < MTX_STEP_MAX_W; k++) touch(p, s->out[k], i);
    touch(p, s->glu, i);
    touch(p, s->encoded, i);
    for (int k = 0; k < MTX_STEP_MAX_IN; k++) touch(p, s->in[k], i), touch(p, s->in[k], done_by(p, i));
  }
  p->buf[p->val[p->output].buf].output = true;
}

// What is made of the hidden state is made for the rows that want logits only.
static void head_rows(mtx_plan *p) {
  if (!p->hidden) return;
  mtx_plan_buf *state = &p->buf[p->val[p->hidden].buf];
  state->hidden = true;
  for (int i = 1; i < p->n_bufs; i++)
    if (p->buf[i].dom == MTX_DOM_OUTS && p->buf[i].first > state->first) p->buf[i].dom = MTX_DOM_HEAD;
}

static int by_off(const void *a, const void *b) {
  int64_t x = (*(mtx_plan_buf *const *)a)->off, y = (*(mtx_plan_buf *const *)b)->off;
  return (x > y) - (x < y);
}

// Lowest offset in the domain that is free during the buffer's life. Rows are
// rounded up to 16 floats so that every row block starts on a cache line.
static mtx_code place(mtx_plan *p, mtx_err *err) {
  mtx_plan_buf **live = malloc((size_t)p->n_bufs * sizeof *live);
  if (!live) return mtx_fail(err, MTX_ENOMEM, "not enough memory to plan the model");
  for (int i = 1; i < p->n_bufs; i++) {
    mtx_plan_buf *b = &p->buf[i];
    if (b->first < 0 || b->output || b->hidden) continue;
    int n_live = 0;
    for (int j = 1; j < i; j++) {
      mtx_plan_buf *o = &p->buf[j];
      if (o->first >= 0 && !o->output && !o->hidden && o->dom == b->dom && o->first <= b->last && b->first <= o->last) live[n_live++] = o;
    }
    qsort(live, (size_t)n_live, sizeof *live, by_off);
    int64_t off = 0, n = (b->n + 15) / 16 * 16;
    for (int j = 0; j < n_live; j++) {
      if (off + n <= live[j]->off) break;
      int64_t end = live[j]->off + (live[j]->n + 15) / 16 * 16;
      if (end > off) off = end;
    }
    b->off = off;
    if (off + n > p->floats[b->dom]) p->floats[b->dom] = off + n;
  }
  free(live);
  return MTX_OK;
}

mtx_code mtx_plan_compile(mtx_plan *p, mtx_err *err) {
  uint8_t *dead = calloc((size_t)p->n_steps + 1, 1);
  if (!dead) return mtx_fail(err, MTX_ENOMEM, "not enough memory to plan the model");
  merge_matmuls(p, dead);
  fuse_residual(p, dead);
  fuse_norm_add(p, dead);
  fuse_encode(p, dead);
  fuse_glu(p, dead);
  drop_steps(p, dead);
  free(dead);
  find_own_rows(p);
  find_own_heads(p);
  lifetimes(p);
  head_rows(p);
  return place(p, err);
}
