// Some regions map two arrays in one order, some in the other, and leave them in that order: nobody waits for ever, and
// nothing is lost.
// expect: PASS
#include "../check.h"

enum { SIZE = 200, THREADS = 4, TURNS = 20 };
static int a[SIZE], b[SIZE];

int main(void) {
#pragma omp parallel num_threads(THREADS)
  for (int turn = 0; turn < TURNS; ++turn) {
    const int from = omp_get_thread_num() * (SIZE / THREADS), to = from + SIZE / THREADS;
    if (omp_get_thread_num() % 2 == 0) {
#pragma omp target map(tofrom: a) map(tofrom: b)
      for (int i = from; i < to; ++i) {
        a[i] += 1;
        b[i] += 1;
      }
    } else {
#pragma omp target map(tofrom: b) map(tofrom: a)
      for (int i = from; i < to; ++i) {
        a[i] += 1;
        b[i] += 1;
      }
    }
  }
  int wrong = 0;
  for (int i = 0; i < SIZE; ++i)
    wrong += a[i] != TURNS || b[i] != TURNS;
  CHECK(wrong == 0);
  return VERDICT();
}
