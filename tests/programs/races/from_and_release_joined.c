// `exit data map(from: x) map(release: x)` counts x out once by OpenMP, but twice by LLVM. Another thread's region that has
// joined keeps its mapping all the same, and copies back what it adds.
// expect: PASS
#include <unistd.h>

#include "../check.h"

enum { SIZE = 500, TURNS = 12 };
static int x[SIZE];

int main(void) {
#pragma omp parallel num_threads(2)
  for (int turn = 0; turn < TURNS; ++turn) {
    if (omp_get_thread_num() == 0) {
#pragma omp target enter data map(to: x)
#pragma omp target map(tofrom: x)
      for (int i = 0; i < SIZE; i += 2)
        x[i] += 1;
#pragma omp target exit data map(from: x) map(release: x)
    } else {
#pragma omp target map(tofrom: x)
      {
        usleep(200);
        for (int i = 1; i < SIZE; i += 2)
          x[i] += 1;
      }
    }
  }
  int wrong = 0;
  for (int i = 0; i < SIZE; ++i)
    wrong += x[i] != TURNS;
  CHECK(wrong == 0);
  CHECK(!omp_target_is_present(x, omp_get_default_device()));
  return VERDICT();
}
