// SPDX-License-Identifier: MIT
// The writer: a file equal to one made byte by byte, a golden model copied to
// equal bytes, edits, everything it must refuse, and no trace after a failure.
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "golden_arch.h"
#include "gguf/write.h"
#include "gguf_bytes.h"

static char dir[TEMP_PATH], out[TEMP_PATH + 16];
static mtx_err err;
#define OK(call) do { err = (mtx_err){0}; mtx_code c_ = (call); CHECK(c_ == MTX_OK, "%s: %s", err.key, err.msg); } while (0)

static mtx_str str(const char *s) { return (mtx_str){s, strlen(s)}; }

static int n_files(void) {
  int n = 0;
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
  if (d) closedir(d);
  return n;
}

static int same_as_file(const void *p, size_t n, const char *path) {
  FILE *f = fopen(path, "rb");
  uint8_t *q = malloc(n + 1);
  size_t got = f ? fread(q, 1, n + 1, f) : 0;
  int same = got == n && !memcmp(p, q, n);
  if (f) fclose(f);
  free(q);
  return same;
}

static void test_bytes(void) {
  gb b = {0};
  float w[3] = {1, 2, 3};
  int32_t i32s[2] = {-1, 5};
  gb_head(&b, 3, 2, 7);
  gb_kv_str(&b, "general.architecture", "llama");
  gb_kv_u32(&b, "general.alignment", 64);
  gb_str(&b, "f"), gb_u32(&b, 6), gb_raw(&b, w, 4);
  gb_str(&b, "b"), gb_u32(&b, 7), gb_u8(&b, 1);
  gb_str(&b, "a"), gb_u32(&b, 9), gb_u32(&b, 5), gb_u64(&b, 2), gb_raw(&b, i32s, 8);
  gb_str(&b, "s"), gb_u32(&b, 9), gb_u32(&b, 8), gb_u64(&b, 2), gb_str(&b, "x"), gb_str(&b, "");
  gb_str(&b, "e"), gb_u32(&b, 9), gb_u32(&b, 4), gb_u64(&b, 0);
  gb_tensor(&b, "t", 1, (uint64_t[]){3}, 0, 0);
  gb_tensor(&b, "q", 2, (uint64_t[]){32, 2}, 8, 64);
  gb_pad(&b, 64), gb_raw(&b, w, 12), gb_pad(&b, 64);
  uint8_t ramp[68];
  for (int i = 0; i < 68; i++) ramp[i] = (uint8_t)i;
  gb_raw(&b, ramp, sizeof ramp);
  gb_pad(&b, 64);

  mtx_gguf_writer *g;
  OK(mtx_gguf_writer_new(&g, &err));
  OK(mtx_gguf_put_str(g, "general.architecture", str("gpt2"), &err));
  OK(mtx_gguf_put_u32(g, "general.alignment", 64, &err));
  OK(mtx_gguf_put_u32(g, "gone", 1, &err));
  OK(mtx_gguf_put_f32(g, "f", 1.0f, &err));
  OK(mtx_gguf_put_bool(g, "b", true, &err));
  OK(mtx_gguf_put_array(g, "a", MTX_GGUF_I32, i32s, 2, &err));
  OK(mtx_gguf_put_strs(g, "s", (mtx_str[]){str("x"), str("")}, 2, &err));
  OK(mtx_gguf_put_array(g, "e", MTX_GGUF_U32, NULL, 0, &err));
  OK(mtx_gguf_put_str(g, "general.architecture", str("llama"), &err));
  CHECK(mtx_gguf_remove(g, "gone") && !mtx_gguf_remove(g, "gone"));
  OK(mtx_gguf_add(g, str("t"), 0, 1, (uint64_t[]){3}, w, 12, &err));
  OK(mtx_gguf_add(g, str("q"), 8, 2, (uint64_t[]){32, 2}, ramp, sizeof ramp, &err));
  OK(mtx_gguf_write(g, out, &err));
  CHECK(same_as_file(b.p, b.n, out) && n_files() == 1);

  // An error leaves the old file and no temporary one.
  CHECK(mtx_gguf_write(g, "no/such/folder/x.gguf", &err) == MTX_EIO && strstr(err.file, "no/such"));
  OK(mtx_gguf_add(g, str("t"), 0, 1, (uint64_t[]){3}, w, 12, &err));
  CHECK(mtx_gguf_write(g, out, &err) == MTX_EINVAL && same_as_file(b.p, b.n, out) && n_files() == 1);
  mtx_gguf_writer_free(g);
  gb_free(&b);
}

static void test_refused(void) {
  mtx_gguf_writer *g;
  uint64_t ne[4] = {32, 0, 1, 1};
  float x[32] = {0};
  OK(mtx_gguf_writer_new(&g, &err));
  CHECK(mtx_gguf_put_u32(g, "", 1, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_put(g, "k", MTX_GGUF_STRING, "x", &err) == MTX_EINVAL && !strcmp(err.key, "k"));
  CHECK(mtx_gguf_put_array(g, "k", MTX_GGUF_ARRAY, x, 1, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_put_array(g, "k", MTX_GGUF_U8, x, UINT64_MAX, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_put_strs(g, "k", NULL, UINT64_MAX, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_put_str(g, "k", (mtx_str){"", (size_t)1 << 40}, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_add(g, str(""), 0, 1, ne, x, 128, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_add(g, (mtx_str){"a\0b", 3}, 0, 1, ne, x, 128, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_add(g, str("t"), 99, 1, ne, x, 128, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_add(g, str("t"), 0, 0, ne, x, 128, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_add(g, str("t"), 0, 5, ne, x, 128, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_add(g, str("t"), 0, 2, ne, x, 128, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_add(g, str("t"), 0, 1, ne, x, 127, &err) == MTX_EINVAL && strstr(err.msg, "128"));
  CHECK(mtx_gguf_add(g, str("t"), 12, 1, ne, x, 128, &err) == MTX_EINVAL && strstr(err.msg, "Q4_K"));
  CHECK(mtx_gguf_add(g, str("t"), 0, 2, (uint64_t[]){1ull << 40, 1ull << 40}, x, 128, &err) == MTX_EINVAL);
  CHECK(mtx_gguf_add(g, str("t"), 0, 1, ne, NULL, 128, &err) == MTX_EINVAL);
  OK(mtx_gguf_add(g, str("t"), 0, 1, ne, x, 128, &err));
  OK(mtx_gguf_add(g, str("t"), 0, 1, ne, x, 128, &err));
  CHECK(mtx_gguf_write(g, out, &err) == MTX_EINVAL && !strcmp(err.key, "t"));
  mtx_gguf_writer_free(g);
  OK(mtx_gguf_writer_new(&g, &err));
  OK(mtx_gguf_put_u32(g, "general.alignment", 12, &err));
  CHECK(mtx_gguf_write(g, out, &err) == MTX_EINVAL);
  mtx_gguf_writer_free(g);
  mtx_gguf_writer_free(NULL);
}

// Copying every key and tensor of a golden model gives the same bytes.
static void test_copy(void) {
  int n;
  golden_model *m = golden_arch_models(&n);
  for (int i = 0; i < n; i += 10) {
    uint8_t *bytes = golden_arch_make(&m[i]);
    mtx_gguf *g = NULL;
    mtx_gguf_writer *w;
    OK(mtx_gguf_writer_new(&w, &err));
    OK(mtx_gguf_open_mem(&g, bytes, m[i].n_bytes, 0, &err));
    OK(mtx_gguf_put_all(w, g, &err));
    for (uint64_t k = 0; k < mtx_gguf_n_tensors(g); k++) OK(mtx_gguf_add_copy(w, mtx_gguf_tensor_at(g, k), &err));
    OK(mtx_gguf_write(w, out, &err));
    CHECK(same_as_file(bytes, m[i].n_bytes, out), "%s", m[i].name);
    mtx_gguf_writer_free(w);
    mtx_gguf_close(g);
    OK(mtx_gguf_open(&g, out, 0, &err));
    mtx_gguf_close(g);
    free(bytes);
  }
  golden_arch_free(m, n);
}

int main(void) {
  temp_mkdir(dir);
  snprintf(out, sizeof out, "%s/out.gguf", dir);
  test_bytes();
  test_refused();
  test_copy();
  unlink(out);
  CHECK(rmdir(dir) == 0, "something was left in %s", dir);
  return check_report();
}
