// SPDX-License-Identifier: MIT
// Recurrent layers: convolution over time, Mamba-2 scan, gated delta rule.
//
// Tokens of a sequence are walked one after the other, so a result does not
// depend on where the sequence was cut into steps. Threads share channels or
// heads; every float of state belongs to one thread.
#include <math.h>
#include <string.h>

#include "backend/cpu.h"
#include "kern/vec.h"

#define IN(i, r) (mtx_val_ptr(w->c, s->in[i]) + (r) * mtx_val_stride(w->c, s->in[i]))
#define OUT(r) (mtx_val_ptr(w->c, s->out[0]) + (r) * mtx_val_stride(w->c, s->out[0]))

static float *state_of(const mtx_step_desc *s, const mtx_exec_seq *q) { return (float *)(q->state + s->state_off); }

void mtx_cpu_conv(const mtx_step_desc *s, const mtx_work *w) {
  int64_t n = mtx_val_n(w->c, s->in[0]), taps = s->m, c0, c1;
  const float *weight = w->c->plan->weight[s->w[0]].vec, *bias = s->b[0] ? w->c->plan->weight[s->b[0]].vec : NULL;
  mtx_share(n, 16, w->ith, w->nth, &c0, &c1);
  if (c0 == c1) return;
  for (int i = 0; i < w->x->n_seqs; i++) {
    const mtx_exec_seq *q = &w->x->seq[i];
    float *past = state_of(s, q);  // [taps - 1, n], oldest first
    for (int64_t t = 0; t < q->n_rows; t++) {
      const float *x = IN(0, q->row0 + t);
      float *y = OUT(q->row0 + t);
      for (int64_t c = c0; c < c1; c++) {
        float sum = 0.0f;
        for (int64_t k = 0; k + 1 < taps; k++) sum = fmaf(past[k * n + c], weight[c * taps + k], sum);
        sum = fmaf(x[c], weight[c * taps + taps - 1], sum);
        y[c] = bias ? sum + bias[c] : sum;
      }
      for (int64_t k = 0; k + 2 < taps; k++) memcpy(past + k * n + c0, past + (k + 1) * n + c0, (size_t)(c1 - c0) * sizeof(float));
      memcpy(past + (taps - 2) * n + c0, x + c0, (size_t)(c1 - c0) * sizeof(float));
      if (s->flag) mtx_vec.unary(MTX_UNARY_SILU, y + c0, y + c0, c1 - c0);
    }
  }
}

// State of a head: [head_n, n_state]. The recurrent form of Dao & Gu 2024, "Transformers are SSMs" (Mamba-2):
// h = exp(dt A) h + dt x B^T; y = h C + D x; and of Gu & Dao 2023, "Mamba", whose A differs from state to state.
void mtx_cpu_ssm_scan(const mtx_step_desc *s, const mtx_work *w) {
  const mtx_plan *p = w->c->plan;
  const float *A = p->weight[s->w[0]].vec, *D = s->w[1] ? p->weight[s->w[1]].vec : NULL, *dt_bias = s->b[0] ? p->weight[s->b[0]].vec : NULL;
  int64_t n_state = s->n, per_group = s->heads / s->m, h0, h1;
  float *decays = w->scratch;  // of each state, where they differ
  mtx_share(s->heads, 1, w->ith, w->nth, &h0, &h1);
  for (int i = 0; i < w->x->n_seqs; i++) {
    const mtx_exec_seq *q = &w->x->seq[i];
    for (int64_t h = h0; h < h1; h++) {
      float *state = state_of(s, q) + h * s->head_n * n_state;
      for (int64_t t = 0; t < q->n_rows; t++) {
        int64_t r = q->row0 + t;
        const float *x = IN(0, r) + h * s->head_n, *B = IN(2, r) + h / per_group * n_state, *C = IN(3, r) + h / per_group * n_state;
        float *y = OUT(r) + h * s->head_n, dt = IN(1, r)[h] + (dt_bias ? dt_bias[h] : 0.0f), decay = 0.0f;
        dt = dt <= 20.0f ? log1pf(expf(dt)) : dt;
        if (s->flag) {
          mtx_vec.scale(A + h * n_state, dt, decays, n_state);
          mtx_vec.unary(MTX_UNARY_EXP, decays, decays, n_state);
        } else {
          decay = expf(dt * A[h]);
        }
        for (int64_t k = 0; k < s->head_n; k++) {
          float *row = state + k * n_state;
          if (s->flag) mtx_vec.mul(row, decays, row, n_state);
          else mtx_vec.scale(row, decay, row, n_state);
          mtx_vec.add_scaled(B, x[k] * dt, row, n_state);
          y[k] = mtx_vec.dot(row, C, n_state) + (D ? D[h] * x[k] : 0.0f);
        }
      }
    }
  }
}

// State of a head: [dk, dv]. Yang et al. 2024, "Gated Delta Networks", the recurrent form.
void mtx_cpu_delta_rule(const mtx_step_desc *s, const mtx_work *w) {
  int64_t dk = s->n, dv = s->m, h0, h1;
  float *delta = w->scratch;
  mtx_share(s->heads, 1, w->ith, w->nth, &h0, &h1);
  for (int i = 0; i < w->x->n_seqs; i++) {
    const mtx_exec_seq *q = &w->x->seq[i];
    for (int64_t h = h0; h < h1; h++) {
      float *state = state_of(s, q) + h * dk * dv;
      for (int64_t t = 0; t < q->n_rows; t++) {
        int64_t r = q->row0 + t;
        const float *query = IN(0, r) + h * dk, *key = IN(1, r) + h * dk, *value = IN(2, r) + h * dv;
        float *y = OUT(r) + h * dv, decay = expf(IN(3, r)[h]), beta = IN(4, r)[h];
        memset(delta, 0, (size_t)dv * sizeof *delta);
        for (int64_t k = 0; k < dk; k++) {
          mtx_vec.scale(state + k * dv, decay, state + k * dv, dv);
          mtx_vec.add_scaled(state + k * dv, key[k], delta, dv);
        }
        mtx_vec.sub(value, delta, delta, dv);
        mtx_vec.scale(delta, beta, delta, dv);
        memset(y, 0, (size_t)dv * sizeof *y);
        for (int64_t k = 0; k < dk; k++) {
          mtx_vec.add_scaled(delta, key[k], state + k * dv, dv);
          mtx_vec.add_scaled(state + k * dv, query[k], y, dv);
        }
      }
    }
  }
}
