// SPDX-License-Identifier: MIT
// New files, whole or not at all: see file.h.
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void sync_folder(const char *path) {
  char *folder = strdup(path);
  if (!folder) return;
  char *slash = strrchr(folder, '/');
  if (slash) slash[slash == folder] = 0;
  int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) fsync(fd), close(fd);
  free(folder);
}

mtx_code mtx_new_file_open(mtx_new_file *n, const char *path, unsigned mode, mtx_err *err) {
  static atomic_uint counter;
  size_t cap = strlen(path) + 48;
  *n = (mtx_new_file){NULL, path, malloc(cap)};
  if (!n->temp) return mtx_fail_at(err, MTX_ENOMEM, path, NULL, 0, "cannot create the file: no memory");
  snprintf(n->temp, cap, "%s.%ld-%u.part", path, (long)getpid(), atomic_fetch_add(&counter, 1));
  int fd = open(n->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  n->f = fd < 0 ? NULL : fdopen(fd, "wb");
  if (n->f) return MTX_OK;
  mtx_fail_at(err, MTX_EIO, path, NULL, 0, "cannot create the file: %s", strerror(errno));
  if (fd >= 0) close(fd), unlink(n->temp);
  free(n->temp);
  n->temp = NULL;
  return MTX_EIO;
}

mtx_code mtx_new_file_end(mtx_new_file *n, mtx_code so_far, mtx_err *err) {
  mtx_code code = so_far;
  if (!code && (fflush(n->f) != 0 || fsync(fileno(n->f)) != 0)) code = mtx_fail_at(err, MTX_EIO, n->path, NULL, 0, "cannot write: %s", strerror(errno));
  if (fclose(n->f) != 0 && !code) code = mtx_fail_at(err, MTX_EIO, n->path, NULL, 0, "cannot write: %s", strerror(errno));
  if (!code && rename(n->temp, n->path) != 0)
    code = mtx_fail_at(err, MTX_EIO, n->path, NULL, 0, "cannot give the finished file its name: %s", strerror(errno));
  if (!code) sync_folder(n->path);
  else unlink(n->temp);
  free(n->temp);
  *n = (mtx_new_file){0};
  return code;
}
