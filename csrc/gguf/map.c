// SPDX-License-Identifier: MIT
// Read-only file mappings that survive a truncated file: see map.h.
#include "gguf/map.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// The handler may run in any thread at any time, so what it reads is atomic and
// never freed: a chain of chunks of slots. hi is stored before lo; lo == 0 marks
// a free slot.
enum { SLOTS_PER_CHUNK = 64 };
struct slot {
  atomic_uintptr_t lo, hi;
  atomic_bool damaged;
  bool taken;  // under table_lock
};
struct chunk {
  struct slot slot[SLOTS_PER_CHUNK];
  struct chunk *_Atomic next;
};

struct mtx_map {
  uint8_t *data;
  uint64_t n_bytes;
  struct slot *slot;
};

static struct chunk first_chunk;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t handler_once = PTHREAD_ONCE_INIT;
static struct sigaction previous;
static uintptr_t page_bytes;

static struct slot *slot_of(uintptr_t addr) {
  for (struct chunk *c = &first_chunk; c; c = atomic_load(&c->next)) {
    for (int i = 0; i < SLOTS_PER_CHUNK; i++) {
      uintptr_t lo = atomic_load(&c->slot[i].lo);
      if (lo && addr >= lo && addr < atomic_load(&c->slot[i].hi)) return &c->slot[i];
    }
  }
  return NULL;
}

// A truncated file has lost everything behind the first lost page, so one call
// covers the rest. mmap is a plain system call, safe in a handler.
static void on_sigbus(int sig, siginfo_t *info, void *context) {
  int saved_errno = errno;
  uintptr_t addr = (uintptr_t)info->si_addr;
  struct slot *s = slot_of(addr);
  if (s) {
    uintptr_t from = addr & ~(page_bytes - 1);
    uintptr_t to = (atomic_load(&s->hi) + page_bytes - 1) & ~(page_bytes - 1);
    void *p = mmap((void *)from, to - from, PROT_READ,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
      atomic_store(&s->damaged, true);
      errno = saved_errno;
      return;
    }
  }
  errno = saved_errno;
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(sig, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(sig);
  } else {
    signal(sig, SIG_DFL);  // the faulting instruction runs again and ends the process
  }
}

static void install_handler(void) {
  page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
  struct sigaction sa = {0};
  sa.sa_sigaction = on_sigbus;
  sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&sa.sa_mask);
  sigaction(SIGBUS, &sa, &previous);
}

static struct slot *take_slot(void) {
  pthread_mutex_lock(&table_lock);
  struct slot *found = NULL;
  for (struct chunk *c = &first_chunk; c && !found;) {
    for (int i = 0; i < SLOTS_PER_CHUNK && !found; i++)
      if (!c->slot[i].taken) found = &c->slot[i];
    struct chunk *next = atomic_load(&c->next);
    if (!found && !next) {
      next = calloc(1, sizeof *next);
      atomic_store(&c->next, next);
    }
    c = next;
  }
  if (found) {
    found->taken = true;
    atomic_store(&found->damaged, false);
  }
  pthread_mutex_unlock(&table_lock);
  return found;
}

static void give_slot(struct slot *s) {
  if (!s) return;
  atomic_store(&s->lo, 0);
  pthread_mutex_lock(&table_lock);
  s->taken = false;
  pthread_mutex_unlock(&table_lock);
}

static mtx_code map_fd(mtx_map *m, int fd, const char *path, mtx_err *err) {
  struct stat st;
  if (fstat(fd, &st) != 0)
    return mtx_fail_at(err, MTX_EIO, path, NULL, 0, "cannot read the file's size: %s", strerror(errno));
  if (!S_ISREG(st.st_mode))
    return mtx_fail_at(err, MTX_EFORMAT, path, NULL, 0, "this is not a regular file");
  if (st.st_size <= 0) return mtx_fail_at(err, MTX_EFORMAT, path, NULL, 0, "the file is empty");
  if ((uint64_t)st.st_size > SIZE_MAX / 2)
    return mtx_fail_at(err, MTX_ELIMIT, path, NULL, 0, "the file is too large for this machine's address space");
  void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED)
    return mtx_fail_at(err, errno == ENOMEM ? MTX_ENOMEM : MTX_EIO, path, NULL, 0,
                       "cannot map the file's %llu bytes: %s", (unsigned long long)st.st_size, strerror(errno));
  m->data = p;
  m->n_bytes = (uint64_t)st.st_size;
  atomic_store(&m->slot->hi, (uintptr_t)p + m->n_bytes);
  atomic_store(&m->slot->lo, (uintptr_t)p);
  return MTX_OK;
}

mtx_code mtx_map_open(mtx_map **out, const char *path, mtx_err *err) {
  *out = NULL;
  pthread_once(&handler_once, install_handler);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // NONBLOCK: a FIFO must not hang us
  if (fd < 0)
    return mtx_fail_at(err, errno == ENOENT || errno == ENOTDIR ? MTX_ENOTFOUND : MTX_EIO, path, NULL, 0,
                       "cannot open the file: %s", strerror(errno));
  mtx_map *m = calloc(1, sizeof *m);
  if (m) m->slot = take_slot();
  mtx_code code = m && m->slot ? map_fd(m, fd, path, err)
                               : mtx_fail_at(err, MTX_ENOMEM, path, NULL, 0, "not enough memory to open the file");
  close(fd);
  if (code != MTX_OK) {
    mtx_map_close(m);
    return code;
  }
  *out = m;
  return MTX_OK;
}

void mtx_map_close(mtx_map *m) {
  if (!m) return;
  give_slot(m->slot);
  if (m->data) munmap(m->data, m->n_bytes);
  free(m);
}

const uint8_t *mtx_map_data(const mtx_map *m) { return m->data; }
uint64_t mtx_map_bytes(const mtx_map *m) { return m->n_bytes; }
bool mtx_map_damaged(const mtx_map *m) { return atomic_load(&m->slot->damaged); }

void mtx_map_release(const mtx_map *m, const void *p, uint64_t n) {
  uintptr_t lo = ((uintptr_t)p + page_bytes - 1) & ~(page_bytes - 1);
  uintptr_t hi = ((uintptr_t)p + n) & ~(page_bytes - 1);
  if (lo < hi && m->data) madvise((void *)lo, hi - lo, MADV_DONTNEED);
}
