// SPDX-License-Identifier: MIT
// The folder of prompts on disk: what lies there, and what goes when it is too old or too much.
#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/disk.h"

enum { MAX_WRITING_S = 3600 };  // an unfinished file that is older was left by a writer that died

typedef struct { char *path; uint64_t bytes; double age; } file;

static int by_age(const void *a, const void *b) {
  double x = ((const file *)a)->age, y = ((const file *)b)->age;
  return x > y ? -1 : x < y;
}

static const char *skip_hex(const char *s) {
  while (isxdigit((unsigned char)*s)) s++;
  return s;
}

// MODEL-TOKENS.mtxstate, or what its writer has begun: the same with `.something.part` behind.
static bool is_ours(const char *name, bool *part) {
  const char *s = skip_hex(name);
  if (s == name || *s++ != '-') return false;
  const char *end = skip_hex(s);
  if (end == s || strncmp(end, MTX_DISK_SUFFIX, strlen(MTX_DISK_SUFFIX))) return false;
  end += strlen(MTX_DISK_SUFFIX);
  *part = *end == '.' && strlen(end) >= 5 && !strcmp(end + strlen(end) - 5, ".part");
  return !*end || *part;
}

// The files of the folder, those that are too old removed; *n tells how many there are.
static file *list(const char *dir, double ttl_s, size_t *n) {
  file *f = NULL;
  size_t cap = 0;
  const time_t now = time(NULL);
  DIR *d = opendir(dir);
  *n = 0;
  for (struct dirent *x; d && (x = readdir(d));) {
    struct stat st;
    bool part;
    char *path;
    if (!is_ours(x->d_name, &part) || asprintf(&path, "%s/%s", dir, x->d_name) < 0) continue;
    if (stat(path, &st) || mtx_grow(&f, &cap, *n + 1, sizeof *f, NULL)) {
      free(path);
      continue;
    }
    const double age = difftime(now, st.st_mtime);
    if ((age > ttl_s || (part && age > MAX_WRITING_S)) && !unlink(path)) free(path);
    else f[(*n)++] = (file){path, (uint64_t)st.st_size, age};
  }
  if (d) closedir(d);
  return f;
}

mtx_disk_use mtx_disk_trim(const char *dir, uint64_t budget_bytes, double ttl_s) {
  mtx_disk_use use = {0};
  size_t n;
  file *f = list(dir, ttl_s, &n);
  for (size_t i = 0; i < n; i++) use.n_files++, use.bytes += f[i].bytes;
  if (n) qsort(f, n, sizeof *f, by_age);
  for (size_t i = 0; i < n && use.bytes > budget_bytes; i++)
    if (!unlink(f[i].path)) use.n_files--, use.bytes -= f[i].bytes;
  for (size_t i = 0; i < n; i++) free(f[i].path);
  free(f);
  return use;
}

// Whether the file holds tokens[0..n) of the key, or a beginning of them.
static bool holds(const char *path, const char *key, const int32_t *tokens, int64_t n) {
  mtx_map *map;
  mtx_saved s;
  if (mtx_map_open(&map, path, NULL)) return false;
  bool yes = false;
  if (!mtx_saved_peek(&s, mtx_map_data(map), mtx_map_bytes(map), NULL, NULL)) {
    int64_t least = s.n_tokens < n ? s.n_tokens : n;
    yes = least > 0 && s.label_bytes == strlen(key) && !memcmp(s.label, key, s.label_bytes) && !memcmp(s.tokens, tokens, (size_t)least * sizeof *tokens);
    mtx_saved_close(&s);
  }
  mtx_map_close(map);
  return yes;
}

int mtx_disk_remove(const char *dir, const char *key, const int32_t *tokens, int64_t n) {
  size_t n_files;
  int removed = 0;
  file *f = list(dir, INFINITY, &n_files);
  for (size_t i = 0; i < n_files; i++) {
    if (holds(f[i].path, key, tokens, n)) removed += !unlink(f[i].path);
    free(f[i].path);
  }
  free(f);
  return removed;
}
