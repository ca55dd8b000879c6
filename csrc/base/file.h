// SPDX-License-Identifier: MIT
// New files that appear under their name only when they are complete: a temporary
// file beside it, fsync, rename, fsync of the folder. Whoever has the old file open
// keeps reading it.
#ifndef MTX_BASE_FILE_H
#define MTX_BASE_FILE_H

#include <stdio.h>

#include "base/err.h"

typedef struct mtx_new_file {
  FILE *f;
  const char *path;  // borrowed
  char *temp;
} mtx_new_file;

// mode: permissions, cut by the umask.
mtx_code mtx_new_file_open(mtx_new_file *n, const char *path, unsigned mode, mtx_err *err);
// Gives the file its name, or removes it when `so_far` is a failure, which is returned.
mtx_code mtx_new_file_end(mtx_new_file *n, mtx_code so_far, mtx_err *err);

#endif
