// SPDX-License-Identifier: MIT
// The C tests' only tool: CHECK counts, a failure prints its place and goes on.
// A test program ends with `return check_report();`.
#ifndef MTX_TESTS_CHECK_H
#define MTX_TESTS_CHECK_H

#include <stdio.h>
#include <string.h>

static int check_n_passed, check_n_failed;

#define CHECK(cond, ...)                                             \
  do {                                                               \
    if (cond) {                                                      \
      check_n_passed++;                                              \
    } else {                                                         \
      check_n_failed++;                                              \
      fprintf(stderr, "%s:%d: CHECK(%s)", __FILE__, __LINE__, #cond); \
      fprintf(stderr, " " __VA_ARGS__);                              \
      fputc('\n', stderr);                                           \
    }                                                                \
  } while (0)

static inline int check_report(void) {
  printf("%d passed, %d failed\n", check_n_passed, check_n_failed);
  return check_n_failed != 0;
}

#endif
