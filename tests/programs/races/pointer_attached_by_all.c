// Threads map a struct and attach its one pointer, each to use its own part of what it points to: the pointer stays
// attached for whoever still runs, whoever leaves.
// expect: PASS
#include "../check.h"

enum { SIZE = 64, THREADS = 4, TURNS = 20 };
static int items[SIZE];
static struct {
  int length;
  int *items;
  int step;
} s = {SIZE / THREADS, items, 3};

int main(void) {
#pragma omp parallel num_threads(THREADS)
  for (int turn = 0; turn < TURNS; ++turn) {
    const int from = omp_get_thread_num() * (SIZE / THREADS);
#pragma omp target map(to: s) map(tofrom: s.items[0:SIZE])
    for (int i = from; i < from + s.length; ++i)
      s.items[i] += s.step;
  }
  int wrong = 0;
  for (int i = 0; i < SIZE; ++i)
    wrong += items[i] != 3 * TURNS;
  CHECK(wrong == 0);
  CHECK(s.items == items);
  return VERDICT();
}
