// SPDX-License-Identifier: MIT
// Ops that treat each row by itself: look-ups, norms, activations, rotation.
//
// Many rows are split over threads row by row; when there are fewer rows than
// threads (decoding) every row is split into column ranges instead.
#include <math.h>
#include <string.h>

#include "backend/cpu.h"
#include "kern/vec.h"

typedef struct {
  int64_t r0, r1, c0, c1;
} span;

static span share(const mtx_work *w, int64_t rows, int64_t n, int64_t grain) {
  span s = {0, rows, 0, n};
  if (rows >= w->nth) mtx_share(rows, 1, w->ith, w->nth, &s.r0, &s.r1);
  else mtx_share(n, grain, w->ith, w->nth, &s.c0, &s.c1);
  return s;
}

// The span of this thread for the output of s, and row pointers by index.
#define SPAN(grain) share(w, mtx_val_rows(w->c, s->out[0]), mtx_val_n(w->c, s->out[0]), grain)
#define IN(i, r) (mtx_val_ptr(w->c, s->in[i]) + (r) * mtx_val_stride(w->c, s->in[i]))
#define OUT(r) (mtx_val_ptr(w->c, s->out[0]) + (r) * mtx_val_stride(w->c, s->out[0]))
#define VECTOR(id) ((id) ? w->c->plan->weight[id].vec : NULL)

static void encode_part(const mtx_step_desc *s, const mtx_work *w, int64_t r, span p) {
  if (!s->encoded) return;
  float *dst = mtx_val_ptr(w->c, s->encoded) + r * mtx_val_stride(w->c, s->encoded);
  mtx_act_encode(MTX_ACT_Q8, OUT(r), mtx_val_n(w->c, s->out[0]), p.c0 / 32, (p.c1 + 31) / 32, dst);
}

// A table that is also a matrix (tied output) is read in its packed form, so that
// the file's own pages of it need not stay resident.
static void look_up(const mtx_plan_weight *t, int64_t i, float *dst) {
  if (t->mat) {
    mtx_weight_row(&t->mat[0], i, dst);
    return;
  }
  uint64_t row_bytes = (uint64_t)t->k / t->type->block * t->type->block_bytes;
  t->type->decode((const uint8_t *)t->tensor->data + (uint64_t)i * row_bytes, dst, t->k);
}

void mtx_cpu_embed(const mtx_step_desc *s, const mtx_work *w) {
  const mtx_plan_weight *t = &w->c->plan->weight[s->w[0]];
  int64_t a, b;
  mtx_share(w->x->n_rows, 1, w->ith, w->nth, &a, &b);
  for (int64_t r = a; r < b; r++) {
    look_up(t, w->x->token[r], OUT(r));
    if (w->x->lora) mtx_cpu_lora_row(s, w, r, OUT(r));
    if (s->f[0] != 1.0f) mtx_vec.scale(OUT(r), s->f[0], OUT(r), t->k);
  }
}

void mtx_cpu_embed_pos(const mtx_step_desc *s, const mtx_work *w) {
  const mtx_plan_weight *t = &w->c->plan->weight[s->w[0]];
  int64_t a, b;
  mtx_share(w->x->n_rows, 1, w->ith, w->nth, &a, &b);
  for (int64_t r = a; r < b; r++) {
    int64_t i = (int64_t)w->x->pos[r] + s->flag;
    look_up(t, i < t->n_out ? i : t->n_out - 1, OUT(r));
  }
}

void mtx_cpu_encode(const mtx_step_desc *s, const mtx_work *w) {
  int64_t n = s->n;
  span p = share(w, mtx_val_rows(w->c, s->out[0]), n, 32);
  for (int64_t r = p.r0; r < p.r1; r++) mtx_act_encode(MTX_ACT_Q8, IN(0, r), n, p.c0 / 32, (p.c1 + 31) / 32, OUT(r));
}

static void norm_chunk(const mtx_step_desc *s, const mtx_work *w, const float *x, float *y, int64_t off) {
  const float *scale = VECTOR(s->w[0]), *shift = VECTOR(s->b[0]);
  int64_t at = s->m == s->n ? 0 : off;
  if (scale) scale += at;
  if (shift) shift += at;
  if (s->flag == 0) mtx_vec.rmsnorm(x, scale, s->f[0], y, s->n);
  else if (s->flag == 1) mtx_vec.layernorm(x, scale, shift, s->f[0], y, s->n);
  else mtx_vec.l2norm(x, s->f[0], y, s->n);
}

// Floats [c0, c1) of row r: whole chunks.
static void norm_chunks(const mtx_step_desc *s, const mtx_work *w, int64_t r, int64_t c0, int64_t c1) {
  for (int64_t c = c0; c < c1; c += s->n) norm_chunk(s, w, IN(0, r) + c, OUT(r) + c, c);
}

void mtx_cpu_norm(const mtx_step_desc *s, const mtx_work *w) {
  int64_t n = mtx_val_n(w->c, s->out[0]);
  span p = SPAN(s->n == n ? 32 : s->n);
  for (int64_t r = p.r0; r < p.r1; r++) {
    if (s->n < n) {
      norm_chunks(s, w, r, p.c0, p.c1);
    } else if (p.c0 == 0 && p.c1 == n) {
      norm_chunk(s, w, IN(0, r), OUT(r), 0);
    } else if (p.c0 < p.c1) {
      // One row, several threads: each reduces the whole row and keeps its columns.
      norm_chunk(s, w, IN(0, r), w->scratch, 0);
      memcpy(OUT(r) + p.c0, w->scratch + p.c0, (size_t)(p.c1 - p.c0) * sizeof(float));
    }
    if (s->in[1]) mtx_vec.add(IN(1, r) + p.c0, OUT(r) + p.c0, OUT(r) + p.c0, p.c1 - p.c0);
    if (p.c0 < p.c1) encode_part(s, w, r, p);
  }
}

void mtx_cpu_unary(const mtx_step_desc *s, const mtx_work *w) {
  span p = SPAN(32);
  for (int64_t r = p.r0; r < p.r1; r++) mtx_vec.unary(s->unary, IN(0, r) + p.c0, OUT(r) + p.c0, p.c1 - p.c0);
}

static void glu_clamped(const mtx_step_desc *s, const float *gate, const float *up, float *y, int64_t n) {
  float a[256], b[256], limit = s->f[0];
  for (int64_t c = 0; c < n; c += 256) {
    int64_t m = n - c < 256 ? n - c : 256;
    mtx_vec.clamp(gate + c, -INFINITY, limit, a, m);
    mtx_vec.clamp(up + c, -limit, limit, b, m);
    mtx_vec.affine(b, 1.0f, 1.0f, b, m);
    mtx_vec.glu(s->unary, a, b, y + c, m);
  }
}

void mtx_cpu_glu(const mtx_step_desc *s, const mtx_work *w) {
  span p = SPAN(32);
  for (int64_t r = p.r0; r < p.r1; r++) {
    if (p.c0 == p.c1) continue;
    if (s->f[0] > 0.0f) glu_clamped(s, IN(0, r) + p.c0, IN(1, r) + p.c0, OUT(r) + p.c0, p.c1 - p.c0);
    else mtx_vec.glu(s->unary, IN(0, r) + p.c0, IN(1, r) + p.c0, OUT(r) + p.c0, p.c1 - p.c0);
    encode_part(s, w, r, p);
  }
}

void mtx_cpu_add(const mtx_step_desc *s, const mtx_work *w) {
  span p = SPAN(32);
  for (int64_t r = p.r0; r < p.r1; r++) mtx_vec.add(IN(0, r) + p.c0, IN(1, r) + p.c0, OUT(r) + p.c0, p.c1 - p.c0);
}

void mtx_cpu_mul(const mtx_step_desc *s, const mtx_work *w) {
  span p = SPAN(s->n > 1 ? s->n : 32);
  for (int64_t r = p.r0; r < p.r1; r++) {
    if (s->n == 1) {
      mtx_vec.mul(IN(0, r) + p.c0, IN(1, r) + p.c0, OUT(r) + p.c0, p.c1 - p.c0);
    } else {
      for (int64_t c = p.c0; c < p.c1; c += s->n) mtx_vec.scale(IN(0, r) + c, IN(1, r)[c / s->n], OUT(r) + c, s->n);
    }
  }
}

void mtx_cpu_scale(const mtx_step_desc *s, const mtx_work *w) {
  span p = SPAN(32);
  for (int64_t r = p.r0; r < p.r1; r++) {
    if (s->f[1] == 0.0f) mtx_vec.scale(IN(0, r) + p.c0, s->f[0], OUT(r) + p.c0, p.c1 - p.c0);
    else mtx_vec.affine(IN(0, r) + p.c0, s->f[0], s->f[1], OUT(r) + p.c0, p.c1 - p.c0);
  }
}

void mtx_cpu_softcap(const mtx_step_desc *s, const mtx_work *w) {
  span p = SPAN(32);
  for (int64_t r = p.r0; r < p.r1; r++) mtx_vec.softcap(IN(0, r) + p.c0, s->f[0], OUT(r) + p.c0, p.c1 - p.c0);
}

void mtx_cpu_clamp(const mtx_step_desc *s, const mtx_work *w) {
  span p = SPAN(32);
  for (int64_t r = p.r0; r < p.r1; r++) mtx_vec.clamp(IN(0, r) + p.c0, s->f[0], s->f[1], OUT(r) + p.c0, p.c1 - p.c0);
}

// Both halves of the curve from the clamped halves of x, so that all of it is vector work; each is 0 on the other's side.
static void xielu(const float *f, const float *x, float *y, int64_t n) {
  float e[256], part[256];
  for (int64_t c = 0; c < n; c += 256) {
    int64_t m = n - c < 256 ? n - c : 256;
    mtx_vec.clamp(x + c, -INFINITY, f[3] < 0.0f ? f[3] : 0.0f, e, m);
    mtx_vec.unary(MTX_UNARY_EXP, e, e, m);
    mtx_vec.affine(e, 1.0f, -1.0f, e, m);
    mtx_vec.clamp(x + c, -INFINITY, 0.0f, part, m);
    mtx_vec.sub(e, part, e, m);
    for (int64_t i = 0; i < m; i++) e[i] = x[c + i] > 0.0f ? 0.0f : e[i];
    mtx_vec.clamp(x + c, 0.0f, INFINITY, part, m);
    mtx_vec.mul(part, part, part, m);
    mtx_vec.scale(part, f[0], part, m);
    mtx_vec.add_scaled(e, f[1], part, m);
    mtx_vec.add_scaled(x + c, f[2], part, m);
    memcpy(y + c, part, (size_t)m * sizeof *y);
  }
}

void mtx_cpu_xielu(const mtx_step_desc *s, const mtx_work *w) {
  span p = SPAN(32);
  for (int64_t r = p.r0; r < p.r1; r++) xielu(s->f, IN(0, r) + p.c0, OUT(r) + p.c0, p.c1 - p.c0);
}

void mtx_cpu_vec(const mtx_step_desc *s, const mtx_work *w) {
  span p = SPAN(s->n);
  const float *v = VECTOR(s->w[0]);
  for (int64_t r = p.r0; r < p.r1; r++)
    for (int64_t c = p.c0; c < p.c1; c += s->n)
      (s->flag ? mtx_vec.add : mtx_vec.mul)(IN(0, r) + c, v, OUT(r) + c, s->n);
}

void mtx_cpu_copy(const mtx_step_desc *s, const mtx_work *w) {
  int64_t a, b;
  mtx_share(mtx_val_rows(w->c, s->out[0]), 1, w->ith, w->nth, &a, &b);
  for (int64_t r = a; r < b; r++)
    for (int64_t h = 0; h < s->heads; h++)
      memcpy(OUT(r) + h * s->m + s->head_off, IN(0, r) + h * s->head_n, (size_t)s->n * sizeof(float));
}

void mtx_cpu_select(const mtx_step_desc *s, const mtx_work *w) {
  int64_t a, b;
  mtx_share(w->x->n_outs, 1, w->ith, w->nth, &a, &b);
  for (int64_t r = a; r < b; r++)
    memcpy(OUT(r), IN(0, w->x->out_row[r]), (size_t)mtx_val_n(w->c, s->out[0]) * sizeof(float));
}

// ---- rotary embedding ------------------------------------------------------------

// The dimension at which a rotation turns `beta` times within n_ctx_orig tokens (YaRN).
static double yarn_dim(const mtx_rope *r, double beta) {
  return r->n_rot * log(r->n_ctx_orig / (beta * 2.0 * M_PI)) / (2.0 * log(r->base));
}

void mtx_cpu_rope_table(const mtx_step_desc *s, const mtx_work *w) {
  const mtx_rope *o = &s->u.rope;
  const float *factor = VECTOR(o->factors);
  int half = o->n_rot / 2;
  double low = 0, high = 0, mscale = o->attn;
  if (o->ext != 0.0f) {
    low = fmax(0.0, floor(yarn_dim(o, o->beta_fast)));
    high = fmin(o->n_rot - 1, ceil(yarn_dim(o, o->beta_slow)));
    mscale *= 1.0 + 0.1 * log(1.0 / o->scale);
  }
  int64_t a, b;
  mtx_share(half, 1, w->ith, w->nth, &a, &b);
  for (int64_t i = a; i < b; i++) {
    double freq = pow(o->base, -2.0 * (double)i / o->n_rot) / (factor ? factor[i] : 1.0);
    double rate = freq * o->scale;
    if (o->ext != 0.0f) {
      double ramp = 1.0 - fmin(1.0, fmax(0.0, ((double)i - low) / fmax(0.001, high - low)));
      rate = rate * (1.0 - ramp * o->ext) + freq * ramp * o->ext;
    }
    for (int64_t r = 0; r < w->x->n_rows; r++) {
      double theta = rate * w->x->pos[r];
      OUT(r)[i] = (float)(cos(theta) * mscale);
      OUT(r)[half + i] = (float)(sin(theta) * mscale);
    }
  }
}

// Floats [c0, c1) of row r: whole heads.
static void rope_heads(const mtx_step_desc *s, const mtx_work *w, int64_t r, int64_t c0, int64_t c1) {
  const mtx_rope *o = &s->u.rope;
  const float *table = IN(1, r);
  memcpy(OUT(r) + c0, IN(0, r) + c0, (size_t)(c1 - c0) * sizeof(float));
  mtx_vec.rope(OUT(r) + c0 + s->head_off, (int)((c1 - c0) / s->head_n), s->head_n, o->n_rot, table, table + o->n_rot / 2,
               o->mode == MTX_ROPE_NEOX);
}

void mtx_cpu_rope(const mtx_step_desc *s, const mtx_work *w) {
  span p = SPAN(s->head_n);
  for (int64_t r = p.r0; r < p.r1; r++)
    if (p.c0 < p.c1) rope_heads(s, w, r, p.c0, p.c1);
}

void mtx_cpu_temperature(const mtx_step_desc *s, const mtx_work *w) {
  span p = SPAN(32);
  for (int64_t r = p.r0; r < p.r1; r++) {
    float steps = floorf(((float)w->x->pos[r] + s->f[2]) / s->f[1]);
    mtx_vec.scale(IN(0, r) + p.c0, 1.0f + s->f[0] * logf(1.0f + steps), OUT(r) + p.c0, p.c1 - p.c0);
  }
}

// ---- work of a neighbouring step ---------------------------------------------------

void mtx_cpu_own_row(const mtx_step_desc *s, const mtx_work *w, int64_t r, float *tmp, float *dst) {
  int64_t n = mtx_val_n(w->c, s->in[0]);
  const float *x = IN(0, r);
  if (s->op == MTX_OP_NORM) {
    norm_chunk(s, w, x, s->encoded ? tmp : dst, 0);
    x = tmp;
  }
  if (s->encoded || s->op == MTX_OP_ENCODE) mtx_act_encode(MTX_ACT_Q8, x, n, 0, n / 32, dst);
}

void mtx_cpu_own_head(const mtx_step_desc *s, const mtx_work *w, int64_t r, int h, int n_head_kv) {
  if (s->op == MTX_OP_KV_STORE) {
    mtx_cpu_kv_store_head(s, w, r, h);
    return;
  }
  int64_t n = mtx_val_n(w->c, s->out[0]) / n_head_kv;
  (s->op == MTX_OP_ROPE ? rope_heads : norm_chunks)(s, w, r, h * n, (h + 1) * n);
}
