// SPDX-License-Identifier: MIT
// Speed of the tokenizers: bench_tok TEXT VOCAB.gguf... prints MB/s of encoding
// TEXT (a file) and of decoding it again, the best of some runs, and the time to
// open the vocabulary. tests/bench/peer_tok.py holds it beside llama.cpp.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tok/tok.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fail(const mtx_err *e) {
  char line[1024];
  mtx_err_format(e, line, sizeof line);
  fprintf(stderr, "%s\n", line);
  return 1;
}

static char *read_file(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f || fseek(f, 0, SEEK_END) != 0) return NULL;
  long size = ftell(f);
  rewind(f);
  char *p = size >= 0 ? malloc((size_t)size + 1) : NULL;
  if (p) *n = fread(p, 1, (size_t)size, f);
  fclose(f);
  return p;
}

static int bench(const char *path, const char *text, size_t n) {
  enum { RUNS = 5 };
  mtx_err err;
  mtx_gguf *g;
  mtx_tok *t;
  mtx_ids ids = {0};
  mtx_buf back = {0};
  double encode = 1e9, decode = 1e9, start = now();
  if (mtx_gguf_open(&g, path, MTX_GGUF_VOCAB_ONLY, &err)) return fail(&err);
  mtx_code rc = mtx_tok_open(&t, g, &err);
  mtx_gguf_close(g);
  if (rc) return fail(&err);
  double opened = now() - start;
  for (int i = 0; i < RUNS && !rc; i++) {
    ids.len = back.len = 0;
    start = now();
    rc = mtx_tok_encode(t, text, n, 0, NULL, 0, &ids, &err);
    double mid = now();
    if (!rc) rc = mtx_tok_decode(t, ids.ptr, ids.len, MTX_TOK_UNPARSE_SPECIAL, &back, &err);
    double end = now();
    if (mid - start < encode) encode = mid - start;
    if (end - mid < decode) decode = end - mid;
  }
  const char *name = strrchr(path, '/');
  if (!rc)
    printf("%-36s encode %7.2f MB/s  decode %7.1f MB/s  %8zu ids  open %6.1f ms\n", name ? name + 1 : path, (double)n / encode / 1e6,
           (double)n / decode / 1e6, ids.len, opened * 1e3);
  mtx_ids_fini(&ids);
  mtx_buf_fini(&back);
  mtx_tok_close(t);
  return rc ? fail(&err) : 0;
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: bench_tok TEXT VOCAB.gguf...\n"), 2;
  size_t n = 0;
  char *text = read_file(argv[1], &n);
  if (!text) return fprintf(stderr, "%s: cannot be read\n", argv[1]), 1;
  int failed = 0;
  for (int i = 2; i < argc; i++) failed |= bench(argv[i], text, n);
  free(text);
  return failed;
}
