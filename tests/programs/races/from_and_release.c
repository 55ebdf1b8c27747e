// `exit data map(from: x) map(release: x)` counts x out once, as it is one directive: x comes back and is gone. Each thread
// has an x of its own, and maps it afresh after that.
// expect: PASS
#include "../check.h"

enum { SIZE = 500, TURNS = 10, THREADS = 4 };
static int all[THREADS][SIZE];

int main(void) {
  int present = 0;
#pragma omp parallel num_threads(THREADS) reduction(+ : present)
  {
    int *x = all[omp_get_thread_num()];
    for (int turn = 0; turn < TURNS; ++turn) {
#pragma omp target enter data map(to: x[0:SIZE])
#pragma omp target map(tofrom: x[0:SIZE])
      for (int i = 0; i < SIZE; ++i)
        x[i] += 1;
#pragma omp target exit data map(from: x[0:SIZE]) map(release: x[0:SIZE])
      present += omp_target_is_present(x, omp_get_default_device());
      for (int i = 0; i < SIZE; ++i)
        x[i] += 1;
    }
  }
  CHECK(present == 0);
  int wrong = 0;
  for (int thread = 0; thread < THREADS; ++thread)
    for (int i = 0; i < SIZE; ++i)
      wrong += all[thread][i] != 2 * TURNS;
  CHECK(wrong == 0);
  return VERDICT();
}
