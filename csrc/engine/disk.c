// SPDX-License-Identifier: MIT
// Prompts on disk: see disk.h.
#include "engine/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"

enum {
  WORTH = 64,         // tokens that reading a file must save, or that make one worth writing
  MAX_FILES = 4096,   // files of one model that are looked at
};

typedef struct { char *path, *key; int32_t *tokens; int64_t n; } entry;

struct mtx_disk {
  char *dir;
  uint64_t budget;
  double ttl;
  mtx_kv *kv;
  mtx_prefix *prefix;
  mtx_saved_for who;
  bool scanned;
  entry *e; size_t n, cap;
  uint64_t written;       // by this store
};

mtx_disk *mtx_disk_open(const mtx_disk_opts *o, mtx_kv *kv, mtx_prefix *prefix, const mtx_saved_for *who) {
  mtx_disk *d = calloc(1, sizeof *d);
  if (!d) return NULL;
  *d = (mtx_disk){.dir = strdup(o->dir), .budget = o->budget_bytes, .ttl = o->ttl_s, .kv = kv, .prefix = prefix, .who = *who};
  if (d->dir) return d;
  free(d);
  return NULL;
}

static void entry_drop(mtx_disk *d, size_t i) {
  free(d->e[i].path);
  free(d->e[i].key);
  free(d->e[i].tokens);
  d->e[i] = d->e[--d->n];
}

void mtx_disk_close(mtx_disk *d) {
  if (!d) return;
  while (d->n) entry_drop(d, d->n - 1);
  free(d->e);
  free(d->dir);
  free(d);
}

static char *path_of(const mtx_disk *d, const char *name) {
  char *path;
  return asprintf(&path, "%s/%s", d->dir, name) < 0 ? NULL : path;
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), k = strlen(end);
  return n >= k && !strcmp(s + n - k, end);
}

// ---- what is there -------------------------------------------------------------------

// Takes path over.
static void look_at(mtx_disk *d, char *path) {
  mtx_map *map;
  mtx_saved s;
  if (d->n >= MAX_FILES || mtx_map_open(&map, path, NULL)) {
    free(path);
    return;
  }
  mtx_code rc = mtx_saved_peek(&s, mtx_map_data(map), mtx_map_bytes(map), &d->who, NULL);
  if (rc == MTX_EFORMAT) unlink(path);
  if (!rc) {
    char *key = strndup(s.label, s.label_bytes);
    if (key && !mtx_grow(&d->e, &d->cap, d->n + 1, sizeof *d->e, NULL)) {
      d->e[d->n++] = (entry){path, key, s.tokens, s.n_tokens};
      s.tokens = NULL;
      path = key = NULL;
    }
    free(key);
    mtx_saved_close(&s);
  }
  mtx_map_close(map);
  free(path);
}

static void scan(mtx_disk *d) {
  char prefix[24];
  d->scanned = true;
  snprintf(prefix, sizeof prefix, "%016llx-", (unsigned long long)d->who.model);
  DIR *dir = opendir(d->dir);
  if (!dir) return;
  for (struct dirent *f; (f = readdir(dir));) {
    if (strncmp(f->d_name, prefix, strlen(prefix)) || !ends_with(f->d_name, MTX_DISK_SUFFIX)) continue;
    char *path = path_of(d, f->d_name);
    if (path) look_at(d, path);
  }
  closedir(dir);
}

static int64_t common(const entry *e, const char *key, const int32_t *tokens, int64_t n) {
  int64_t k = 0;
  if (strcmp(e->key, key)) return 0;
  while (k < n && k < e->n && e->tokens[k] == tokens[k]) k++;
  return k;
}

// ---- reading ---------------------------------------------------------------------------

static bool load(mtx_disk *d, const entry *e) {
  mtx_map *map;
  mtx_saved s;
  int seq = -1;
  if (mtx_map_open(&map, e->path, NULL)) return false;
  mtx_code rc = mtx_saved_open(&s, mtx_map_data(map), mtx_map_bytes(map), &d->who, NULL);
  bool ok = !rc && s.n_stored > 0, bad = rc == MTX_EFORMAT;
  if (ok) {
    do rc = mtx_kv_image_read(d->kv, s.image, s.n_stored, &seq, NULL);
    while (rc == MTX_ELIMIT && mtx_prefix_evict(d->prefix));
    bad = mtx_map_damaged(map);
    ok = !rc && !bad;
    if (ok) mtx_prefix_put(d->prefix, e->key, seq, s.tokens);
    if (!rc) mtx_kv_seq_free(d->kv, seq);
    utimensat(AT_FDCWD, e->path, NULL, 0);  // its time to live counts from here
  }
  mtx_saved_close(&s);
  mtx_map_close(map);
  if (bad) unlink(e->path);
  return ok;
}

void mtx_disk_fetch(mtx_disk *d, const char *key, const int32_t *tokens, int64_t n) {
  if (n < WORTH) return;
  if (!d->scanned) scan(d);
  size_t best = 0;
  int64_t most = 0;
  for (size_t i = 0; i < d->n; i++) {
    int64_t k = common(&d->e[i], key, tokens, n);
    if (k > most) most = k, best = i;
  }
  if (most < WORTH) return;
  int64_t known = mtx_prefix_known(d->prefix, key, tokens, n);
  if (most < known + WORTH) return;
  // A file that brings nothing (damaged, too large for memory, of a model that cannot stop there) is not asked again.
  if (!load(d, &d->e[best]) || mtx_prefix_known(d->prefix, key, tokens, n) <= known) entry_drop(d, best);
}

void mtx_disk_forget(mtx_disk *d, const char *key, const int32_t *tokens, int64_t n) {
  if (!d->scanned) scan(d);
  for (size_t i = d->n; i-- > 0;) {
    int64_t least = d->e[i].n < n ? d->e[i].n : n;
    if (key && (!least || common(&d->e[i], key, tokens, n) < least)) continue;
    unlink(d->e[i].path);
    entry_drop(d, i);
  }
}

// ---- writing ---------------------------------------------------------------------------

static bool make_space(const mtx_disk *d, uint64_t need) {
  return need <= d->budget && mtx_disk_trim(d->dir, d->budget - need, d->ttl).bytes <= d->budget - need;
}

static bool put(void *f, const void *bytes, uint64_t n) { return fwrite(bytes, 1, n, f) == n; }

static uint64_t name_of(const char *key, const int32_t *tokens, int64_t n) {
  mtx_checksum c;
  mtx_checksum_init(&c);
  mtx_checksum_update(&c, key, strlen(key) + 1);
  mtx_checksum_update(&c, tokens, (size_t)n * sizeof *tokens);
  return mtx_checksum_get(&c);
}

// Files whose tokens the new one holds as well.
static void drop_shorter(mtx_disk *d, const char *key, const int32_t *tokens, int64_t n) {
  for (size_t i = d->n; i-- > 0;)
    if (d->e[i].n < n && common(&d->e[i], key, tokens, n) == d->e[i].n) {
      unlink(d->e[i].path);
      entry_drop(d, i);
    }
}

static bool write_file(mtx_disk *d, const mtx_saved *s, const char *path) {
  mtx_new_file f;
  uint64_t n_bytes;
  mtx_code rc = mtx_new_file_open(&f, path, 0600, NULL);
  if (!rc) rc = mtx_new_file_end(&f, mtx_saved_write(s, d->who.model, put, f.f, &n_bytes, NULL), NULL);
  if (!rc) d->written += n_bytes;
  return !rc;
}

// Returns false when there is no more room.
static bool store_one(void *ctx, const char *key, const int32_t *tokens, int64_t n) {
  mtx_disk *d = ctx;
  if (n < WORTH) return true;
  int seq;
  int64_t kept;
  struct stat st;
  char name[64];
  if (mtx_prefix_take(d->prefix, key, tokens, n, &seq, &kept, NULL)) return false;
  snprintf(name, sizeof name, "%016llx-%016llx" MTX_DISK_SUFFIX, (unsigned long long)d->who.model, (unsigned long long)name_of(key, tokens, kept));
  char *path = path_of(d, name);
  bool go_on = path != NULL;
  if (path && kept >= WORTH && !stat(path, &st)) {
    utimensat(AT_FDCWD, path, NULL, 0);
    d->written += (uint64_t)st.st_size;
  } else if (path && kept >= WORTH) {
    mtx_saved s = {.label = key, .label_bytes = strlen(key), .tokens = (int32_t *)tokens, .n_tokens = kept, .n_stored = kept,
                   .image_bytes = mtx_kv_image_bytes(d->kv, seq)};
    uint64_t need = s.image_bytes + (uint64_t)kept * sizeof *tokens + s.label_bytes + 128;
    uint8_t *image = d->written + need <= d->budget && make_space(d, need) ? malloc(s.image_bytes) : NULL;
    go_on = image != NULL;
    if (image) mtx_kv_image_write(d->kv, seq, image);
    s.image = image;
    if (image && (go_on = write_file(d, &s, path))) drop_shorter(d, key, tokens, kept);
    free(image);
  }
  free(path);
  mtx_kv_seq_free(d->kv, seq);
  return go_on;
}

void mtx_disk_store(mtx_disk *d) {
  if (!d->scanned) scan(d);
  d->written = 0;
  mtx_disk_trim(d->dir, d->budget, d->ttl);
  mtx_prefix_each(d->prefix, store_one, d);
}
