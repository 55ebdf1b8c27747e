// A struct whose mapping ends with that of one member, and which is mapped again: its pointer is attached again, also when
// what it points to is where it was.
// stock: the later regions use the host's memory, and what they add is lost
// expect: PASS
#include "../check.h"

enum { SIZE = 16, TURNS = 3 };
static int items[SIZE];
static struct {
  int length;
  int *items;
} s = {SIZE, items};

int main(void) {
#pragma omp target enter data map(to: items)
  for (int turn = 0; turn < TURNS; ++turn) {
#pragma omp target enter data map(to: s, s.items[0:SIZE])
#pragma omp target enter data map(to: s.length)
#pragma omp target exit data map(release: s, s.items[0:SIZE])
#pragma omp target exit data map(release: s.length)
    CHECK(!omp_target_is_present(&s, omp_get_default_device()));
#pragma omp target map(to: s, s.items[0:SIZE])
    for (int i = 0; i < s.length; ++i)
      s.items[i] += 1;
  }
  // What was not written through the device's pointer is not there.
#pragma omp target exit data map(from: items)
  int wrong = 0;
  for (int i = 0; i < SIZE; ++i)
    wrong += items[i] != TURNS;
  CHECK(wrong == 0);
  return VERDICT();
}
