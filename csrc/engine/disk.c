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
  bool scanned, ends;
  uint64_t n_forgets;
  entry *e; size_t n, cap;
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

static char *path_of(const char *dir, const char *name) {
  char *path;
  return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
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
    char *path = path_of(d->dir, f->d_name);
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
  d->n_forgets++;
  for (size_t i = d->n; i-- > 0;) {
    int64_t least = d->e[i].n < n ? d->e[i].n : n;
    if (key && (!least || common(&d->e[i], key, tokens, n) < least)) continue;
    unlink(d->e[i].path);
    entry_drop(d, i);
  }
}

// ---- writing ---------------------------------------------------------------------------

static bool make_space(const mtx_disk_piece *p, uint64_t need) {
  return need <= p->budget && mtx_disk_trim(p->dir, p->budget - need, p->ttl).bytes <= p->budget - need;
}

static bool put(void *f, const void *bytes, uint64_t n) { return fwrite(bytes, 1, n, f) == n; }

static uint64_t name_of(const char *key, const int32_t *tokens, int64_t n) {
  mtx_checksum c;
  mtx_checksum_init(&c);
  mtx_checksum_update(&c, key, strlen(key) + 1);
  mtx_checksum_update(&c, tokens, (size_t)n * sizeof *tokens);
  return mtx_checksum_get(&c);
}

// Bytes of the file a piece becomes, and a little more.
static uint64_t file_bytes(const mtx_disk_piece *p) { return p->image_bytes + (uint64_t)p->n * sizeof *p->tokens + strlen(p->key) + 128; }

void mtx_disk_piece_fini(mtx_disk_piece *p) {
  free(p->dir);
  free(p->path);
  free(p->key);
  free(p->tokens);
  free(p->image);
  *p = (mtx_disk_piece){0};
}

mtx_code mtx_disk_write(const mtx_disk_piece *p, mtx_err *err) {
  if (!make_space(p, file_bytes(p))) return mtx_fail_at(err, MTX_ELIMIT, p->dir, NULL, 0, "the budget of %llu bytes is used up", (unsigned long long)p->budget);
  mtx_saved s = {.label = p->key, .label_bytes = strlen(p->key), .tokens = p->tokens, .n_tokens = p->n, .n_stored = p->n,
                 .image = p->image, .image_bytes = p->image_bytes};
  mtx_new_file f;
  uint64_t n_bytes;
  mtx_code rc = mtx_new_file_open(&f, p->path, 0600, err);
  if (rc) return rc;
  rc = mtx_saved_write(&s, p->model, put, f.f, &n_bytes, err);
  if (rc == MTX_EIO) mtx_fail_at(err, rc, p->path, NULL, 0, "cannot write: %s", strerror(errno));
  return mtx_new_file_end(&f, rc, err);
}

// A written piece is a file to look at like those found at first; the shorter ones that it continues go.
static void note(mtx_disk *d, mtx_disk_piece *p) {
  struct stat st;
  if (!p->path || stat(p->path, &st)) return;
  if (strcmp(p->dir, d->dir) || p->n_forgets != d->n_forgets) {  // it may be what was to go
    unlink(p->path);
    return;
  }
  for (size_t i = d->n; i-- > 0;)
    if (d->e[i].n <= p->n && common(&d->e[i], p->key, p->tokens, p->n) == d->e[i].n) {
      if (strcmp(d->e[i].path, p->path)) unlink(d->e[i].path);
      entry_drop(d, i);
    }
  if (d->n >= MAX_FILES || mtx_grow(&d->e, &d->cap, d->n + 1, sizeof *d->e, NULL)) return;
  d->e[d->n++] = (entry){p->path, p->key, p->tokens, p->n};
  p->path = p->key = NULL;
  p->tokens = NULL;
}

typedef struct { mtx_disk *d; mtx_disk_piece *p; uint64_t written; mtx_code rc; mtx_err *err; } search;  // written: files met so far

static mtx_code copy(search *s, const char *path, const char *key, const int32_t *tokens, int64_t n, int seq) {
  mtx_disk *d = s->d;
  mtx_disk_piece p = {.budget = d->budget, .model = d->who.model, .n_forgets = d->n_forgets, .ttl = d->ttl, .n = n, .image_bytes = mtx_kv_image_bytes(d->kv, seq)};
  if (!(p.key = strdup(key))) goto nomem;
  if (s->written + file_bytes(&p) > d->budget) {
    mtx_disk_piece_fini(&p);
    return MTX_OK;
  }
  p.dir = strdup(d->dir);
  p.path = strdup(path);
  p.tokens = malloc((size_t)n * sizeof *tokens);
  p.image = malloc(p.image_bytes);
  if (!p.dir || !p.path || !p.tokens || !p.image) goto nomem;
  memcpy(p.tokens, tokens, (size_t)n * sizeof *tokens);
  mtx_kv_image_write(d->kv, seq, p.image);
  *s->p = p;
  return MTX_OK;
nomem:
  mtx_disk_piece_fini(&p);
  return mtx_fail_at(s->err, MTX_ENOMEM, path, NULL, 0, "cannot save a prompt: no memory for %llu bytes", (unsigned long long)p.image_bytes);
}

// Returns false when the search is over.
static bool consider(void *ctx, const char *key, const int32_t *tokens, int64_t n) {
  search *s = ctx;
  mtx_disk *d = s->d;
  int64_t kept = n < WORTH ? 0 : mtx_prefix_known(d->prefix, key, tokens, n);
  struct stat st;
  char name[64];
  if (kept < WORTH) return true;
  snprintf(name, sizeof name, "%016llx-%016llx" MTX_DISK_SUFFIX, (unsigned long long)d->who.model, (unsigned long long)name_of(key, tokens, kept));
  char *path = path_of(d->dir, name);
  bool go_on = path != NULL;
  if (path && !stat(path, &st)) {
    if (d->ends) utimensat(AT_FDCWD, path, NULL, 0);  // while it runs all would have the same age
    s->written += (uint64_t)st.st_size;
  } else if (path) {
    int seq;
    go_on = false;
    if (!mtx_prefix_copy(d->prefix, key, tokens, n, &seq, &kept, NULL)) {  // else no sequence is free; another time
      s->rc = copy(s, path, key, tokens, kept, seq);
      mtx_kv_seq_free(d->kv, seq);
    }
  }
  free(path);
  return go_on;
}

mtx_code mtx_disk_next(mtx_disk *d, mtx_disk_piece *p, mtx_err *err) {
  if (!d->scanned) scan(d);
  note(d, p);
  mtx_disk_piece_fini(p);
  search s = {.d = d, .p = p, .err = err};
  mtx_prefix_each(d->prefix, consider, &s);
  return s.rc;
}

mtx_code mtx_disk_store(mtx_disk *d, mtx_err *err) {
  mtx_disk_piece p = {0};
  d->ends = true;
  mtx_disk_trim(d->dir, d->budget, d->ttl);
  mtx_code rc;
  while (!(rc = mtx_disk_next(d, &p, err)) && p.path && !(rc = mtx_disk_write(&p, err))) {}
  mtx_disk_piece_fini(&p);
  return rc == MTX_ELIMIT ? MTX_OK : rc;
}
