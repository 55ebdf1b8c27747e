// A thread that maps data with `present` while another's first copy of it is under way finds what is being copied, never
// stale data.
// flags: -fopenmp-version=51
// expect: PASS
#include "../check.h"

enum { SIZE = 1 << 14, ROUNDS = 10 };
static int a[SIZE];

int main(void) {
  for (int round = 1; round <= ROUNDS; ++round) {
    int wrong = -1;
    for (int i = 0; i < SIZE; ++i)
      a[i] = round;
#pragma omp parallel num_threads(2)
    {
      if (omp_get_thread_num() == 0) {
#pragma omp target enter data map(to: a)
      } else {
        while (!omp_target_is_present(a, omp_get_default_device()))
          ;
#pragma omp target map(present, to: a) map(from: wrong)
        {
          wrong = 0;
          for (int i = 0; i < SIZE; ++i)
            wrong += a[i] != round;
        }
      }
    }
    CHECK(wrong == 0);
#pragma omp target exit data map(delete: a)
  }
  return VERDICT();
}
