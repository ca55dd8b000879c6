// SPDX-License-Identifier: MIT
// Threads of a step that share a core part (backend/apart.h).
#include "backend/apart.h"
#include "check.h"

int main(void) {
  cpu_set_t all, now;
  _Atomic int where[3];
  for (int i = 0; i < 3; i++) atomic_init(&where[i], -1);
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
  mtx_apart_note(where, 0);
  CHECK(where[0] == sched_getcpu() || CPU_COUNT(&all) > 1, "the core is noted");
  CHECK(!mtx_apart_move(where, 0, 3), "alone on its core it stays, whatever itself is noted on");

  // One core: there is nowhere to go.
  cpu_set_t one;
  CPU_ZERO(&one);
  int first = 0;
  while (!CPU_ISSET(first, &all)) first++;
  CPU_SET(first, &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  where[1] = first;
  CHECK(!mtx_apart_move(where, 0, 2) && sched_getcpu() == first);
  CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &one), "its mask is as it was");

  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &all)) last--;
  if (last == first) return check_report();
  // Two cores, the other one on this thread's: it goes, and may come back.
  cpu_set_t two = one;
  CPU_SET(last, &two);
  for (int round = 0; round < 100; round++) {
    int here = round % 2 ? last : first, there = round % 2 ? first : last;
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0 && sched_setaffinity(0, sizeof two, &two) == 0);
    where[1] = sched_getcpu();  // the kernel may have moved it meanwhile
    int from = where[1];
    if (!mtx_apart_move(where, 0, 2)) {
      CHECK(sched_getcpu() != from || round < 99, "it moves unless the kernel was faster");
      continue;
    }
    CHECK(where[0] != where[1] && where[0] == (from == here ? there : here), "round %d: %d and %d", round, where[0], where[1]);
    CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &two), "its mask is as it was");
  }
  // Both cores are taken by others: it stays.
  where[1] = first;
  where[2] = last;
  CHECK(!mtx_apart_move(where, 0, 3));
  CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &two));
  return check_report();
}
