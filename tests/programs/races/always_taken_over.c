// Data that `always` come back do so at the end of their region, though another thread's region takes the mapping over that
// copies nothing back.
// expect: PASS
#include "../check.h"

enum { SIZE = 500, TURNS = 30 };
static int x[SIZE];

int main(void) {
  int wrong = 0;
#pragma omp parallel num_threads(3) reduction(+ : wrong)
  for (int turn = 1; turn <= TURNS; ++turn) {
    if (omp_get_thread_num() == 0) {
#pragma omp target map(always, tofrom: x)
      for (int i = 1; i < SIZE; ++i)
        x[i] += 1;
      for (int i = 1; i < SIZE; ++i)
        wrong += x[i] != turn;
    } else {
      int first = 1;
#pragma omp target map(to: x) map(from: first)
      first = x[0];
      wrong += first;
    }
  }
  CHECK(wrong == 0);
  return VERDICT();
}
