// SPDX-License-Identifier: MIT
// Prompts on disk: the prefix index saved when an engine ends, and read back piece by
// piece when a prompt comes that a file knows more of than memory does.
//
// A folder serves many models; a file's name begins with its model's checksum. Files are
// whole or absent (base/file.h); one that is damaged or does not fit is a miss and goes.
// Before a file is written those used longest ago are removed until all fit the budget;
// those unused for longer than their time to live go first. All but mtx_disk_trim is for
// the engine's thread only.
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
// Writes what the index knows, the last used first, as far as the budget goes.
void mtx_disk_store(mtx_disk *d);

// Removes the files of a folder that were last used more than ttl_s seconds ago, then those used longest ago
// until budget_bytes are not exceeded; tells what is left. Other files are not touched. On any thread.
typedef struct mtx_disk_use { int64_t n_files; uint64_t bytes; } mtx_disk_use;
mtx_disk_use mtx_disk_trim(const char *dir, uint64_t budget_bytes, double ttl_s);

#endif
