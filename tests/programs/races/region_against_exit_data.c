// One task enters data and runs a slow region on it, while another leaves it with `exit data map(from:)`. Whoever is last
// copies back, and nothing comes back before the region has run.
// expect: PASS
#include <unistd.h>

#include "../check.h"

enum { SIZE = 1000, ROUNDS = 15 };
static int a[SIZE];

int main(void) {
  for (int round = 0; round < ROUNDS; ++round) {
    int entered = 0;
    for (int i = 0; i < SIZE; ++i)
      a[i] = i;
#pragma omp parallel num_threads(2)
    {
      if (omp_get_thread_num() == 0) {
#pragma omp target enter data map(to: a)
#pragma omp atomic write release
        entered = 1;
#pragma omp target map(tofrom: a)
        {
          usleep(300);
          for (int i = 0; i < SIZE; ++i)
            a[i] += 1;
        }
      } else {
        int seen = 0;
        while (!seen) {
#pragma omp atomic read acquire
          seen = entered;
        }
        usleep(round % 5 * 100);
#pragma omp target exit data map(from: a)
      }
    }
    int wrong = 0;
    for (int i = 0; i < SIZE; ++i)
      wrong += a[i] != i + 1;
    CHECK(wrong == 0);
    CHECK(!omp_target_is_present(a, omp_get_default_device()));
  }
  return VERDICT();
}
