// SPDX-License-Identifier: MIT
// Saved state of sessions and of the prefix index.
//
// The engine's thread copies pages into memory or out of it; files are read, checked and
// written on the caller's thread, so that running requests wait for no disk.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/state.h"

// ---- on the engine's thread -------------------------------------------------------

// The sequence to be saved; *own: it was made for this. -1 = there is none.
static mtx_code source(mtx_engine *e, mtx_job *job, int *seq, bool *own) {
  *own = job->session == NULL;
  if (!*own) {
    *seq = job->session->seq;
    return MTX_OK;
  }
  int64_t kept;
  mtx_code rc = mtx_prefix_take(e->prefix, job->key, job->tokens, job->n, seq, &kept, &job->err);
  job->saved->n_tokens = rc ? 0 : kept;
  return rc;
}

void mtx_job_save(mtx_engine *e, mtx_job *job) {
  int seq = -1;
  bool own;
  mtx_code rc = source(e, job, &seq, &own);
  mtx_saved *s = job->saved;
  s->n_stored = rc || seq < 0 ? 0 : mtx_kv_seq_len(e->kv, seq);
  if (s->n_stored) {
    s->image_bytes = mtx_kv_image_bytes(e->kv, seq);
    uint8_t *image = malloc(s->image_bytes);
    if (image) mtx_kv_image_write(e->kv, seq, image);
    else rc = mtx_fail(&job->err, MTX_ENOMEM, "no memory for a saved state of %llu bytes", (unsigned long long)s->image_bytes);
    s->image = image;
  }
  if (own && seq >= 0) mtx_kv_seq_free(e->kv, seq);
  mtx_job_end(e, job, rc);
}

void mtx_job_load(mtx_engine *e, mtx_job *job) {
  const mtx_saved *s = job->saved;
  int seq = -1;
  mtx_code rc = MTX_OK;
  if (s->n_stored) {
    do rc = mtx_kv_image_read(e->kv, s->image, s->n_stored, &seq, &job->err);
    while (rc == MTX_ELIMIT && mtx_prefix_evict(e->prefix));
  }
  if (!rc && mtx_map_damaged(job->map)) rc = mtx_fail(&job->err, MTX_EIO, "the file was cut short while it was read");
  mtx_session *to = job->session;
  if (!rc && to) {
    mtx_ids tokens = {0};
    rc = mtx_ids_append(&tokens, s->tokens, (size_t)s->n_tokens, &job->err);
    if (!rc) {
      if (to->seq >= 0) mtx_kv_seq_free(e->kv, to->seq);
      mtx_ids_fini(&to->tokens);
      to->tokens = tokens;
      to->seq = seq;
      seq = -1;
    }
  } else if (!rc && seq >= 0) {
    mtx_prefix_put(e->prefix, job->key, seq, s->tokens);
  }
  if (seq >= 0) mtx_kv_seq_free(e->kv, seq);
  mtx_job_end(e, job, rc);
}

static mtx_saved_for reader(const mtx_engine *e) {
  return (mtx_saved_for){.layout = mtx_kv_get_layout(e->kv), .n_ctx = e->n_ctx, .n_vocab = e->n_vocab};
}

void mtx_engine_take_disk(mtx_engine *e, mtx_disk_opts o) {
  mtx_saved_for who = reader(e);
  pthread_mutex_lock(&e->lock);
  who.model = e->model_checksum;  // known: set_disk saw to it
  pthread_mutex_unlock(&e->lock);
  mtx_disk_close(e->disk);
  e->disk = o.dir ? mtx_disk_open(&o, e->kv, e->prefix, &who) : NULL;
  free((void *)o.dir);
}

// ---- on the caller's --------------------------------------------------------------

static mtx_code checksum(mtx_engine *e, uint64_t *out, mtx_err *err) {
  pthread_mutex_lock(&e->lock);
  bool known = e->has_checksum;
  *out = e->model_checksum;
  pthread_mutex_unlock(&e->lock);
  if (known) return MTX_OK;
  mtx_code rc = mtx_gguf_checksum(mtx_model_gguf(e->model), out, err);
  if (rc) return rc;
  pthread_mutex_lock(&e->lock);
  e->model_checksum = *out;
  e->has_checksum = true;
  pthread_mutex_unlock(&e->lock);
  return MTX_OK;
}

static bool put(void *f, const void *bytes, uint64_t n) { return fwrite(bytes, 1, n, f) == n; }

// Readable by its owner only.
static mtx_code write_file(const mtx_saved *s, uint64_t model, const char *path, uint64_t *n_bytes, mtx_err *err) {
  mtx_new_file file;
  mtx_code rc = mtx_new_file_open(&file, path, 0600, err);
  if (rc) return rc;
  rc = mtx_saved_write(s, model, put, file.f, n_bytes, err);
  if (rc == MTX_EIO) mtx_fail_at(err, rc, path, NULL, 0, "cannot write: %s", strerror(errno));
  return mtx_new_file_end(&file, rc, err);
}

// Runs a SAVE and writes what it gives; no file when there are no tokens.
static mtx_code save(mtx_engine *e, mtx_job *job, const char *path, uint64_t *n_bytes, mtx_err *err) {
  uint64_t model;
  *n_bytes = 0;
  mtx_code rc = checksum(e, &model, err);
  if (!rc) rc = mtx_jobs_run(e, job, 1, err);
  mtx_saved *s = job->saved;
  if (!rc && (s->n_tokens || job->session)) rc = write_file(s, model, path, n_bytes, err);
  free((void *)s->image);
  return rc;
}

// A file's state belongs to the adapters in its label: it goes to a session that has these, and under keys with them.
static mtx_code check_adapters(mtx_job *job, const mtx_saved *s, mtx_buf *key, mtx_err *err) {
  size_t n;
  const char *adapters = mtx_key_adapters(s->label, s->label_bytes, &n);
  if (job->session) {
    const char *own = job->session->lora ? job->session->lora->label : "";
    if (n == strlen(own) && !memcmp(adapters, own, n)) return MTX_OK;
    return mtx_fail(err, MTX_EUNSUPPORTED, n && *own ? "the state was saved with other adapters than the session has" : n ? "the state was saved with adapters, the session has none" : "the state was saved without adapters, the session has some");
  }
  if (!job->key) return MTX_OK;
  mtx_code rc = mtx_engine_cache_key(job->key, NULL, key, err);
  if (rc) return rc;
  key->len--;
  if (!(rc = mtx_buf_append(key, adapters, n, err))) rc = mtx_buf_append(key, "", 1, err);
  job->key = key->ptr;
  return rc;
}

// Reads a file and runs a LOAD; `tokens` and `owner` (or NULL) get what it holds.
static mtx_code load(mtx_engine *e, mtx_job *job, const char *path, mtx_ids *tokens, mtx_buf *owner, mtx_err *err) {
  mtx_saved_for who = reader(e);
  mtx_saved saved;
  mtx_map *map;
  mtx_code rc = checksum(e, &who.model, err);
  if (rc || (rc = mtx_map_open(&map, path, err))) return rc;
  rc = mtx_saved_open(&saved, mtx_map_data(map), mtx_map_bytes(map), &who, err);
  mtx_buf key = {0};
  if (!rc) rc = check_adapters(job, &saved, &key, err);
  if (rc && err) snprintf(err->file, sizeof err->file, "%s", path);
  job->saved = &saved;
  job->map = map;
  if (!rc && owner && !(rc = mtx_buf_append(owner, saved.label, saved.label_bytes, err)) && !(rc = mtx_buf_append(owner, "", 1, err)) && !job->key)
    job->key = owner->ptr;
  if (!rc) rc = mtx_jobs_run(e, job, 1, err);
  if (!rc && tokens) rc = mtx_ids_append(tokens, saved.tokens, (size_t)saved.n_tokens, err);
  mtx_buf_fini(&key);
  mtx_saved_close(&saved);
  mtx_map_close(map);
  return rc;
}

mtx_code mtx_session_save(mtx_session *s, const char *path, uint64_t *n_bytes, mtx_err *err) {
  const char *label = s->lora ? s->lora->label : "";
  mtx_saved saved = {.tokens = s->tokens.ptr, .n_tokens = (int64_t)s->tokens.len, .label = label, .label_bytes = strlen(label)};
  mtx_job job = {.kind = MTX_JOB_SAVE, .session = s, .saved = &saved};
  return save(s->engine, &job, path, n_bytes, err);
}

mtx_code mtx_session_load(mtx_session *s, const char *path, mtx_err *err) {
  mtx_job job = {.kind = MTX_JOB_LOAD, .session = s};
  return load(s->engine, &job, path, NULL, NULL, err);
}

mtx_code mtx_engine_save_prefix(mtx_engine *e, const char *key, const int32_t *tokens, int64_t n, const char *path,
                                int64_t *n_saved, uint64_t *n_bytes, mtx_err *err) {
  mtx_saved saved = {.tokens = (int32_t *)tokens, .label = key, .label_bytes = strlen(key)};
  mtx_job job = {.kind = MTX_JOB_SAVE, .key = key, .tokens = tokens, .n = n, .saved = &saved};
  mtx_code rc = save(e, &job, path, n_bytes, err);
  *n_saved = rc ? 0 : saved.n_tokens;
  return rc;
}

mtx_code mtx_engine_load_prefix(mtx_engine *e, const char *key, const char *path, mtx_ids *tokens, mtx_buf *owner, mtx_err *err) {
  mtx_job job = {.kind = MTX_JOB_LOAD, .key = key};
  return load(e, &job, path, tokens, owner, err);
}

mtx_code mtx_engine_forget_prefix(mtx_engine *e, const char *key, const int32_t *tokens, int64_t n, int64_t *n_known, mtx_err *err) {
  mtx_job job = {.kind = MTX_JOB_FORGET, .key = key, .tokens = tokens, .n = n};
  mtx_code rc = mtx_jobs_run(e, &job, 1, err);
  *n_known = rc ? 0 : job.n_done;
  return rc;
}

mtx_code mtx_engine_set_disk(mtx_engine *e, const char *dir, uint64_t budget_bytes, double ttl_s, mtx_err *err) {
  uint64_t model;
  mtx_code rc = dir ? checksum(e, &model, err) : MTX_OK;
  if (rc) return rc;
  char *copy = dir ? strdup(dir) : NULL;
  if (dir && !copy) return mtx_fail(err, MTX_ENOMEM, "no memory for a folder's name");
  pthread_mutex_lock(&e->lock);
  free((void *)e->new_disk.dir);
  e->new_disk = (mtx_disk_opts){copy, budget_bytes, ttl_s};
  e->has_new_disk = true;
  pthread_cond_signal(&e->work_cond);
  pthread_mutex_unlock(&e->lock);
  return MTX_OK;
}

mtx_code mtx_engine_store_disk(mtx_engine *e, int *n_files, mtx_err *err) {
  mtx_disk_piece piece = {0};
  mtx_job job = {.kind = MTX_JOB_DISK_NEXT, .piece = &piece};
  mtx_code rc;
  *n_files = 0;
  while (!(rc = mtx_jobs_run(e, &job, 1, err)) && piece.path && !(rc = mtx_disk_write(&piece, err))) {
    ++*n_files;
    job = (mtx_job){.kind = MTX_JOB_DISK_NEXT, .piece = &piece};
  }
  mtx_disk_piece_fini(&piece);
  return rc == MTX_ELIMIT ? MTX_OK : rc;
}
