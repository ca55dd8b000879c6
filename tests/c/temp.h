// SPDX-License-Identifier: MIT
// Where a test program writes: one folder of its own in $TMPDIR (or /tmp), removed with
// all that is in it when the process ends. tests/run.sh fails a test that leaves something.
#ifndef MTX_TESTS_TEMP_H
#define MTX_TESTS_TEMP_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEMP_PATH = 256 };

static char temp_folder[TEMP_PATH - 32];
static pid_t temp_owner;

static inline int temp_remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) { return remove(path); }

static inline void temp_remove(void) {  // a forked child leaves it alone
  if (getpid() == temp_owner) nftw(temp_folder, temp_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

// The folder, made at the first call.
static inline const char *temp_dir(void) {
  if (temp_owner) return temp_folder;
  const char *base = getenv("TMPDIR");
  snprintf(temp_folder, sizeof temp_folder, "%s/mtx-test-XXXXXX", base && *base ? base : "/tmp");
  if (!mkdtemp(temp_folder)) {
    perror(temp_folder);
    exit(2);
  }
  temp_owner = getpid();
  atexit(temp_remove);
  return temp_folder;
}

// The path of a file that is not there yet.
static inline void temp_path(char path[TEMP_PATH]) {
  static int n;
  snprintf(path, TEMP_PATH, "%s/%d", temp_dir(), n++);
}

// A new folder, empty.
static inline void temp_mkdir(char path[TEMP_PATH]) {
  temp_path(path);
  if (mkdir(path, 0700)) {
    perror(path);
    exit(2);
  }
}

// A new file that holds these bytes; ends the program when that cannot be.
static inline void temp_write(char path[TEMP_PATH], const void *bytes, size_t n) {
  temp_path(path);
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) {
    perror(path);
    exit(2);
  }
}

#endif
