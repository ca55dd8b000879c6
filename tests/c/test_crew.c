// SPDX-License-Identifier: MIT
// How many threads run a step (backend/crew.h): busy neighbours are made room for, a quiet machine is used whole.
#include "backend/crew.h"
#include "check.h"

static uint64_t now;

// A step of `ms` in which the threads lose `lost` ms together; returns how many ran it.
static int step(mtx_crew *c, double ms, double lost) {
  int n = mtx_crew_begin(c, now);
  now += (uint64_t)(ms * 1e6);
  if (n > 1) mtx_crew_end(c, now, (uint64_t)(ms * 1e6), (uint64_t)(lost * 1e6));
  return n;
}

int main(void) {
  mtx_crew c;
  mtx_crew_init(&c, 2);
  for (int i = 0; i < 1000; i++) CHECK(step(&c, 3, 0.1) == 2, "a quiet machine gives both cores");
  CHECK(step(&c, 6, 3) == 2 && step(&c, 3, 0.1) == 2 && step(&c, 3, 0.1) == 2, "one slow step");
  for (int i = 0; i < 20; i++) step(&c, 3, 0.1);
  for (int i = 0; i < 20; i++) CHECK(step(&c, i ? 3 : 40, i ? 0.1 : 35) == 2, "a burst of 40 ms changes nothing");

  // One neighbour for ten seconds: both are tried again now and then, ever more rarely.
  int slow = 0;
  uint64_t until = now + 10000000000u;
  while (now < until) {
    bool both = mtx_crew_begin(&c, now) == 2;
    slow += step(&c, both ? 20 : 4, both ? 16 : 0) == 2;
  }
  CHECK(slow >= 5 && slow <= 14, "%d of the steps of ten seconds beside a neighbour used both cores", slow);
  // It ends: both cores again within two seconds, and then at once after the next one.
  until = now + 2100000000u;
  int last = 1;
  while (now < until) last = step(&c, 3, 0.1);
  CHECK(last == 2, "both cores are used again");
  CHECK(c.pause_ns == MTX_CREW_PAUSE_MIN_NS, "a quiet machine is tried soon");

  // Two of sixteen cores are shared.
  mtx_crew_init(&c, 16);
  for (int i = 0; i < 2; i++) step(&c, 20, 20);
  CHECK(c.n == 14, "%d of 16 threads run beside two neighbours", c.n);
  step(&c, 20, 400);
  CHECK(c.n == 1, "%d threads on a machine without free cores", c.n);

  mtx_crew_init(&c, 1);
  for (int i = 0; i < 100; i++) CHECK(step(&c, 50, 50) == 1, "one thread stays");
  return check_report();
}
