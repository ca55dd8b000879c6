// SPDX-License-Identifier: MIT
// Tensor types: the table, half floats, and decoding bit for bit as ggml does.
#include "quant/half.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>

#include "check.h"

#define GOLDEN "tests/golden/quant/"

// Whole file, NULL (and a failed check) when it is missing. Caller frees.
static void *slurp(const char *name, size_t *size) {
  char path[256];
  snprintf(path, sizeof path, GOLDEN "%s", name);
  FILE *f = fopen(path, "rb");
  CHECK(f != NULL, "cannot open %s", path);
  *size = 0;
  if (!f) return NULL;
  fseek(f, 0, SEEK_END);
  long n = ftell(f);
  rewind(f);
  void *data = malloc(n > 0 ? (size_t)n : 1);
  if (data && n > 0) *size = fread(data, 1, (size_t)n, f);
  fclose(f);
  return data;
}

static void test_table(void) {
  CHECK(mtx_qtype_count() == 35);
  for (int i = 0; i < mtx_qtype_count(); i++) {
    const mtx_qtype *t = mtx_qtype_at(i);
    CHECK(i == 0 || t->id > mtx_qtype_at(i - 1)->id);
    CHECK(mtx_qtype_get(t->id) == t && mtx_qtype_by_name(t->name) == t, "%s", t->name);
  }
  CHECK(mtx_qtype_at(-1) == NULL && mtx_qtype_at(35) == NULL);
  static const uint32_t removed[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 1u << 31};
  for (size_t i = 0; i < sizeof removed / sizeof *removed; i++) CHECK(mtx_qtype_get(removed[i]) == NULL);
  CHECK(mtx_qtype_by_name("q4_k") == mtx_qtype_get(12));
  CHECK(mtx_qtype_by_name("Q4") == NULL && mtx_qtype_by_name("") == NULL && mtx_qtype_by_name(NULL) == NULL);
  uint64_t bytes = 0;
  CHECK(mtx_qtype_row_bytes(mtx_qtype_get(12), 512, &bytes) && bytes == 288);
  CHECK(!mtx_qtype_row_bytes(mtx_qtype_get(12), 511, &bytes));
  CHECK(mtx_qtype_row_bytes(mtx_qtype_get(12), 0, &bytes) && bytes == 0);
  CHECK(!mtx_qtype_row_bytes(mtx_qtype_get(0), UINT64_MAX / 2, &bytes));
}

static void test_half(void) {
  size_t n_table, n_src, n_f16, n_bf16;
  float *table = slurp("f16_table.f32", &n_table);
  float *src = slurp("round_edges.f32", &n_src);
  uint16_t *f16 = slurp("round_edges.f16", &n_f16), *bf16 = slurp("round_edges.bf16", &n_bf16);
  CHECK(n_table == 65536 * 4 && n_src == 4048 * 4 && n_f16 == 4048 * 2 && n_bf16 == 4048 * 2);
  int bad = 0, back = 0;
  for (uint32_t h = 0; n_table == 65536 * 4 && h < 65536; h++) {
    float got = mtx_f16_to_f32((uint16_t)h);
    bad += isnan(table[h]) ? !isnan(got) : memcmp(&got, &table[h], 4) != 0;
    back += isnan(got) ? !isnan(mtx_f16_to_f32(mtx_f32_to_f16(got))) : mtx_f32_to_f16(got) != h;
  }
  CHECK(bad == 0, "%d halves wrong", bad);
  CHECK(back == 0, "%d halves do not come back", back);
  bad = back = 0;
  for (size_t i = 0; n_src == 4048 * 4 && n_f16 == 4048 * 2 && n_bf16 == 4048 * 2 && i < 4048; i++) {
    uint16_t h = mtx_f32_to_f16(src[i]), b = mtx_f32_to_bf16(src[i]);
    bad += isnan(src[i]) ? !isnan(mtx_f16_to_f32(h)) : h != f16[i];
    back += isnan(src[i]) ? !isnan(mtx_bf16_to_f32(b)) : b != bf16[i];
  }
  CHECK(bad == 0, "%d roundings to f16 wrong", bad);
  CHECK(back == 0, "%d roundings to bf16 wrong", back);
  free(table), free(src), free(f16), free(bf16);
}

int main(void) {
  test_table();
  test_half();
  return check_report();
}
