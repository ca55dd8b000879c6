// SPDX-License-Identifier: MIT
// Prompts on disk: the prefix index saved file by file, when an engine ends and whenever
// somebody asks for it, and read back when a prompt comes that a file knows more of than memory does.
//
// A folder serves many models; a file's name begins with its model's checksum. Files are
// whole or absent (base/file.h); one that is damaged or does not fit is a miss and goes.
// Before a file is written those used longest ago are removed until all fit the budget;
// those unused for longer than their time to live go first. The engine's thread only, but for
// mtx_disk_write, mtx_disk_trim and mtx_disk_remove.
#ifndef MTX_ENGINE_DISK_H
#define MTX_ENGINE_DISK_H

#include "base/buf.h"
#include "gguf/map.h"
#include "kv/prefix.h"
#include "kv/saved.h"

#define MTX_DISK_SUFFIX ".mtxstate"

typedef struct mtx_disk mtx_disk;

typedef struct mtx_disk_opts {
  const char *dir;
  uint64_t budget_bytes;  // of all files of the folder
  double ttl_s;           // unused for longer = gone
} mtx_disk_opts;

// NULL without memory. Touches nothing until it is used.
mtx_disk *mtx_disk_open(const mtx_disk_opts *o, mtx_kv *kv, mtx_prefix *prefix, const mtx_saved_for *who);
void mtx_disk_close(mtx_disk *d);

// Loads the file that knows most of tokens[0..n) into the index, when that is clearly more than the index knows.
void mtx_disk_fetch(mtx_disk *d, const char *key, const int32_t *tokens, int64_t n);
// Removes this model's files that begin with tokens[0..n) or are a beginning of them; key NULL: all of them.
void mtx_disk_forget(mtx_disk *d, const char *key, const int32_t *tokens, int64_t n);

// What is to become a file; needs no mtx_disk, which may be gone when it is written.
typedef struct mtx_disk_piece {
  char *dir, *path, *key;
  int32_t *tokens; int64_t n;
  uint8_t *image; uint64_t image_bytes;
  uint64_t budget, model, n_forgets;
  double ttl;
} mtx_disk_piece;

// First takes note of *p, empty or written (a forget since then removes it), then copies into it what the index used last and no file holds;
// p->path NULL: there is nothing, or no room for it in the budget.
mtx_code mtx_disk_next(mtx_disk *d, mtx_disk_piece *p, mtx_err *err);
// Any thread. MTX_ELIMIT: the folder's budget is used up by files that are newer.
mtx_code mtx_disk_write(const mtx_disk_piece *p, mtx_err *err);
void mtx_disk_piece_fini(mtx_disk_piece *p);
// Writes all of it, as far as the budget goes. An error: the first file that could not be written; it ends there.
mtx_code mtx_disk_store(mtx_disk *d, mtx_err *err);

// Removes the files of a folder that were last used more than ttl_s seconds ago, then those used longest ago
// until budget_bytes are not exceeded; tells what is left. Other files are not touched. On any thread.
typedef struct mtx_disk_use { int64_t n_files; uint64_t bytes; } mtx_disk_use;
mtx_disk_use mtx_disk_trim(const char *dir, uint64_t budget_bytes, double ttl_s);
// Removes the files of any model under `key` that begin with tokens[0..n) or are a beginning of them; how many. On any thread.
int mtx_disk_remove(const char *dir, const char *key, const int32_t *tokens, int64_t n);

#endif
