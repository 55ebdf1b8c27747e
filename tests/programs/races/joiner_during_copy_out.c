// Each thread adds to its own half of a large array that both map: while one copies all of it back, the other joins, and
// neither may lose what it has added.
// expect: PASS
#include "../check.h"

enum { SIZE = 1 << 15, TURNS = 15 };
static int a[SIZE];

int main(void) {
#pragma omp parallel num_threads(2)
  {
    const int from = omp_get_thread_num() * (SIZE / 2);
    for (int turn = 0; turn < TURNS; ++turn) {
#pragma omp target map(tofrom: a)
      for (int i = from; i < from + SIZE / 2; ++i)
        a[i] += 1;
    }
  }
  int wrong = 0;
  for (int i = 0; i < SIZE; ++i)
    wrong += a[i] != TURNS;
  CHECK(wrong == 0);
  return VERDICT();
}
