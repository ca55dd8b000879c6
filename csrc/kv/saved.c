// SPDX-License-Identifier: MIT
// The bytes of saved state: see saved.h.
#include "kv/saved.h"

#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"

enum { VERSION = 1, HEAD_BYTES = 64, MAX_LABEL = 4096 };  // raise VERSION when the bytes of a page or a state change meaning

typedef struct {
  char magic[8];
  uint32_t version, zero;
  uint64_t model, n_tokens, n_stored, image_bytes, label_bytes, unused;
} head;

_Static_assert(sizeof(head) == HEAD_BYTES, "the head has no gaps");

static const char magic[8] = {'m', 't', 'x', 's', 't', 'a', 't', 'e'};

static mtx_code parse(mtx_saved *s, const uint8_t *bytes, uint64_t n, const mtx_saved_for *who, bool whole, mtx_err *err) {
  head h;
  if (n < sizeof h + sizeof(uint64_t) || memcmp(bytes, magic, sizeof magic)) return mtx_fail(err, MTX_EFORMAT, "this is no saved state of mtx");
  memcpy(&h, bytes, sizeof h);
  if (h.version != VERSION || h.zero) return mtx_fail(err, MTX_EUNSUPPORTED, "saved state of version %u; this mtx reads version %d", h.version, VERSION);
  if (h.n_tokens > INT32_MAX || h.n_stored > h.n_tokens || h.label_bytes > MAX_LABEL || h.unused ||
      h.image_bytes != n - sizeof h - sizeof(uint64_t) - h.label_bytes - h.n_tokens * sizeof(int32_t) || h.image_bytes > n)
    return mtx_fail(err, MTX_EFORMAT, "the saved state is damaged: its sizes do not fit the file's %llu bytes", (unsigned long long)n);
  mtx_checksum c;
  uint64_t sum;
  mtx_checksum_init(&c);
  if (whole) mtx_checksum_update(&c, bytes, n - sizeof sum);
  memcpy(&sum, bytes + n - sizeof sum, sizeof sum);
  if (whole && sum != mtx_checksum_get(&c)) return mtx_fail(err, MTX_EFORMAT, "the saved state is damaged: its checksum is wrong");
  if (who && h.model != who->model) return mtx_fail(err, MTX_EUNSUPPORTED, "the state was saved from another model file");
  if (who && h.n_tokens > (uint64_t)who->n_ctx)
    return mtx_fail(err, MTX_ELIMIT, "the saved state has %llu tokens, the context is %lld tokens; raise the context", (unsigned long long)h.n_tokens,
                    (long long)who->n_ctx);
  s->label = (const char *)bytes + sizeof h;
  s->label_bytes = h.label_bytes;
  const uint8_t *tokens = bytes + sizeof h + h.label_bytes;
  s->n_tokens = (int64_t)h.n_tokens;
  s->n_stored = (int64_t)h.n_stored;
  s->tokens = malloc(h.n_tokens * sizeof(int32_t) + 1);
  if (!s->tokens) return mtx_fail(err, MTX_ENOMEM, "no memory for %llu tokens", (unsigned long long)h.n_tokens);
  if (h.n_tokens) memcpy(s->tokens, tokens, h.n_tokens * sizeof(int32_t));
  if (!who) return MTX_OK;
  for (int64_t i = 0; i < s->n_tokens; i++)
    if (s->tokens[i] < 0 || s->tokens[i] >= who->n_vocab) return mtx_fail(err, MTX_EFORMAT, "the saved state is damaged: token %d does not exist", s->tokens[i]);
  s->image = tokens + h.n_tokens * sizeof(int32_t);
  s->image_bytes = h.image_bytes;
  if (!s->n_stored) return s->image_bytes ? mtx_fail(err, MTX_EFORMAT, "the saved state is damaged: pages without tokens") : MTX_OK;
  return mtx_kv_image_check(who->layout, s->image, s->image_bytes, s->n_stored, err);
}

static mtx_code open_parts(mtx_saved *out, const uint8_t *bytes, uint64_t n, const mtx_saved_for *who, bool whole, mtx_err *err) {
  *out = (mtx_saved){0};
  mtx_code rc = parse(out, bytes, n, who, whole, err);
  if (rc) mtx_saved_close(out);
  return rc;
}

mtx_code mtx_saved_open(mtx_saved *out, const uint8_t *bytes, uint64_t n, const mtx_saved_for *who, mtx_err *err) {
  return open_parts(out, bytes, n, who, true, err);
}

mtx_code mtx_saved_peek(mtx_saved *out, const uint8_t *bytes, uint64_t n, const mtx_saved_for *who, mtx_err *err) {
  return open_parts(out, bytes, n, who, false, err);
}

void mtx_saved_close(mtx_saved *s) {
  free(s->tokens);
  *s = (mtx_saved){0};
}

mtx_code mtx_saved_write(const mtx_saved *s, uint64_t model, bool (*put)(void *ctx, const void *bytes, uint64_t n), void *ctx, uint64_t *n_bytes, mtx_err *err) {
  if (s->label_bytes > MAX_LABEL) return mtx_fail(err, MTX_EINVAL, "the name of an owner has at most %d bytes", MAX_LABEL);
  head h = {.version = VERSION, .model = model, .n_tokens = (uint64_t)s->n_tokens, .n_stored = (uint64_t)s->n_stored,
            .image_bytes = s->image_bytes, .label_bytes = s->label_bytes};
  memcpy(h.magic, magic, sizeof magic);
  const struct { const void *p; uint64_t n; } part[] = {{&h, sizeof h}, {s->label, s->label_bytes}, {s->tokens, h.n_tokens * sizeof(int32_t)}, {s->image, s->image_bytes}};
  mtx_checksum c;
  mtx_checksum_init(&c);
  *n_bytes = sizeof(uint64_t);
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    if (!part[i].n) continue;
    mtx_checksum_update(&c, part[i].p, part[i].n);
    *n_bytes += part[i].n;
    if (!put(ctx, part[i].p, part[i].n)) return MTX_EIO;
  }
  uint64_t sum = mtx_checksum_get(&c);
  return put(ctx, &sum, sizeof sum) ? MTX_OK : MTX_EIO;
}
