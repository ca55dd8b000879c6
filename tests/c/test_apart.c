// SPDX-License-Identifier: MIT
// Threads of a step that share a core part (backend/apart.h). Where the kernel runs a thread is its own affair unless the
// thread's mask leaves one core: only then is a core asserted.
#include "backend/apart.h"
#include "check.h"

static cpu_set_t set_of(int a, int b) {
  cpu_set_t s;
  CPU_ZERO(&s);
  CPU_SET(a, &s);
  CPU_SET(b, &s);
  return s;
}

static void pin(cpu_set_t mask) { CHECK(sched_setaffinity(0, sizeof mask, &mask) == 0); }

static bool mask_is(cpu_set_t want) {
  cpu_set_t now;
  return sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &want);
}

// Who shares a core, and where there is room: by the notes alone, whatever this machine has.
static void test_choice(void) {
  _Atomic int where[4];
  static const int seen[4] = {5, 2, 5, -1};
  for (int i = 0; i < 4; i++) atomic_init(&where[i], seen[i]);
  CHECK(mtx_apart_shared(where, 0, 4, 5) && mtx_apart_shared(where, 2, 4, 5) && mtx_apart_shared(where, 0, 4, 2));
  CHECK(!mtx_apart_shared(where, 0, 2, 5), "a thread beyond the step's counts for nothing");
  CHECK(!mtx_apart_shared(where, 1, 4, 2), "what itself is noted on counts for nothing");
  CHECK(!mtx_apart_shared(where, 0, 4, 3) && !mtx_apart_shared(where, 3, 4, 7));
  cpu_set_t room, mine = set_of(2, 5), want = set_of(7, 7);
  CHECK(!mtx_apart_room(where, 0, 4, &mine, &room), "both are taken by others");
  CHECK(mtx_apart_room(where, 1, 4, &mine, &room) && CPU_COUNT(&room) == 1 && CPU_ISSET(2, &room), "its own is free for it");
  mine = set_of(5, 7);
  CHECK(mtx_apart_room(where, 0, 4, &mine, &room) && CPU_EQUAL(&room, &want));
  where[3] = CPU_SETSIZE;  // a core that no mask can name
  CHECK(mtx_apart_room(where, 0, 4, &mine, &room) && CPU_EQUAL(&room, &want));
}

static void test_one_core(int core) {
  _Atomic int where[2];
  cpu_set_t one = set_of(core, core);
  for (int i = 0; i < 2; i++) atomic_init(&where[i], -1);
  pin(one);
  mtx_apart_note(where, 0);
  CHECK(where[0] == core, "the core is noted");
  CHECK(!mtx_apart_move(where, 0, 2), "alone on its core it stays, whatever itself is noted on");
  where[1] = core;
  CHECK(!mtx_apart_move(where, 0, 2) && sched_getcpu() == core && mask_is(one), "there is nowhere to go");
}

static void test_two_cores(int first, int last) {
  _Atomic int where[3];
  cpu_set_t two = set_of(first, last);
  for (int i = 0; i < 3; i++) atomic_init(&where[i], -1);
  for (int round = 0; round < 100; round++) {
    int here = round % 2 ? last : first, there = round % 2 ? first : last;
    cpu_set_t room = set_of(there, there);
    pin(set_of(here, here));
    CHECK(mtx_apart_go(where, 0, &room, &two) && where[0] == there && mask_is(two), "round %d: noted on %d", round, where[0]);
    // The whole: the other thread was seen on this one's core. When the kernel moves this one in between, it shares none.
    bool moved = false;
    for (int tries = 0; tries < 1000 && !moved; tries++) {
      where[1] = sched_getcpu();
      moved = mtx_apart_move(where, 0, 2);
      CHECK(mask_is(two), "its mask is as it was");
    }
    CHECK(moved && where[0] == first + last - where[1], "round %d: %d and %d", round, where[0], where[1]);
  }
  where[1] = first;
  where[2] = last;
  CHECK(!mtx_apart_move(where, 0, 3) && mask_is(two), "both cores are taken by others: it stays");
}

int main(void) {
  cpu_set_t all;
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
  int first = 0, last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(first, &all)) first++;
  while (!CPU_ISSET(last, &all)) last--;
  test_choice();
  test_one_core(first);
  if (last != first) test_two_cores(first, last);
  return check_report();
}
