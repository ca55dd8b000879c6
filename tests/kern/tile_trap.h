// SPDX-License-Identifier: MIT
// Runs compiled AMX code on an x86-64 CPU without AMX: SIGILL, decode, the model of the tiles, on to the next instruction.
//
// So the very objects of the amx tier are tested where no tile unit is. Encodings: Intel SDM vol. 2 (VEX, map
// 0F38, W0, L0): opcode 49 configuration and zeroing, 4B load and store, 5E products; the mandatory prefix (pp:
// 0 none, 1 66, 2 F3, 3 F2) tells which. Everything else stays an illegal instruction.
#ifndef MTX_TEST_TILE_TRAP_H
#define MTX_TEST_TILE_TRAP_H

#include <signal.h>
#include <ucontext.h>

#include "tile_model.h"

// A ModRM operand in memory: base + index * scale + displacement.
typedef struct { uint64_t base, index; int length; } tile_operand;

static inline uint64_t tile_register(const ucontext_t *u, int n) {
  static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return (uint64_t)u->uc_mcontext.gregs[order[n]];
}

// at: the ModRM byte. x, b: the prefix's upper bits of index and base. length: from ModRM to the end.
static inline tile_operand tile_operand_of(const ucontext_t *u, const uint8_t *at, int x, int b) {
  const int mod = at[0] >> 6, rm = at[0] & 7;
  tile_operand o = {.length = 1};
  bool no_base = mod == 0 && rm == 5;
  if (rm == 4) {
    const int index = (at[1] >> 3 & 7) | x << 3, base = at[1] & 7;
    o.length = 2;
    no_base = mod == 0 && base == 5;
    if (index != 4) o.index = tile_register(u, index) << (at[1] >> 6);
    if (!no_base) o.base = tile_register(u, base | b << 3);
  } else if (!no_base) {
    o.base = tile_register(u, rm | b << 3);
  }
  if (mod == 1) {
    o.base += (uint64_t)(int64_t)(int8_t)at[o.length];
    o.length += 1;
  } else if (mod == 2 || no_base) {
    int32_t d;
    memcpy(&d, at + o.length, 4);
    o.length += 4;
    o.base += (uint64_t)(int64_t)d;
    if (rm == 5 && mod == 0) o.base += (uint64_t)(uintptr_t)(at + o.length);  // relative to the next instruction
  }
  return o;
}

// Bytes of the instruction that was carried out, or 0: none of AMX's.
static inline int tile_step(const ucontext_t *u, const uint8_t *ip) {
  if (ip[0] != 0xC4 || (ip[1] & 0x1F) != 2 || (ip[2] & 0x84) != 0 || !(ip[1] & 0x80)) return 0;
  const int opcode = ip[3], pp = ip[2] & 3, third = ~ip[2] >> 3 & 15, modrm = ip[4];
  const int reg = modrm >> 3 & 7, rm = modrm & 7;
  const bool in_memory = modrm >> 6 != 3;
  if (opcode == 0x5E) {
    if (in_memory || third > 7 || !(ip[1] & 0x20)) return 0;
    tile_model_dot(reg, rm, third, pp == 3 || pp == 2, pp == 3 || pp == 1);
    return 5;
  }
  if (third != 0) return 0;
  if (opcode == 0x49 && !in_memory) {
    if (pp == 3 && rm == 0) tile_model_zero(reg);
    else if (pp == 0 && modrm == 0xC0) tile_model_release();
    else return 0;
    return 5;
  }
  if (!in_memory) return 0;
  tile_operand o = tile_operand_of(u, ip + 4, !(ip[1] & 0x40), !(ip[1] & 0x20));
  if (opcode == 0x49 && pp == 0 && reg == 0) tile_model_configure((const void *)(uintptr_t)(o.base + o.index));
  else if (opcode == 0x4B && rm == 4 && (pp == 3 || pp == 1)) tile_model_load(reg, (const void *)(uintptr_t)o.base, (int64_t)o.index);
  else if (opcode == 0x4B && rm == 4 && pp == 2) tile_model_store(reg, (void *)(uintptr_t)o.base, (int64_t)o.index);
  else return 0;
  return 4 + o.length;
}

static void tile_trap(int sig, siginfo_t *info, void *context) {
  ucontext_t *u = (ucontext_t *)context;
  (void)info;
  const uint8_t *ip = (const uint8_t *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP];
  int n = tile_step(u, ip);
  if (n == 0) signal(sig, SIG_DFL);  // happens again, and ends the program
  // A signal costs much more than a step: carry on while the next one is AMX's as well.
  for (; n > 0; n = tile_step(u, ip)) ip += n;
  u->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)ip;
}

static inline void tile_trap_install(void) {
  struct sigaction a = {.sa_sigaction = tile_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigemptyset(&a.sa_mask);
  sigaction(SIGILL, &a, NULL);
}

#endif
