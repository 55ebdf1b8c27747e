// A thread that maps data, with `present` or without, while another's first copy of them is under way finds what is being
// copied, never stale data.
// flags: -fopenmp-version=51
// expect: PASS
#include "../check.h"

enum { SIZE = 1 << 14, ROUNDS = 10 };
static int a[SIZE];

int main(void) {
  for (int round = 1; round <= ROUNDS; ++round) {
    int wrong[2] = {-1, -1};
    for (int i = 0; i < SIZE; ++i)
      a[i] = round;
#pragma omp parallel num_threads(3)
    {
      int found = 0;
      const int me = omp_get_thread_num();
      if (me == 0) {
#pragma omp target enter data map(to: a)
      } else {
        while (!omp_target_is_present(a, omp_get_default_device()))
          ;
        if (me == 1) {
#pragma omp target map(present, to: a) map(tofrom: found)
          for (int i = 0; i < SIZE; ++i)
            found += a[i] != round;
        } else {
#pragma omp target map(to: a) map(tofrom: found)
          for (int i = 0; i < SIZE; ++i)
            found += a[i] != round;
        }
        wrong[me - 1] = found;
      }
    }
    CHECK(wrong[0] == 0 && wrong[1] == 0);
#pragma omp target exit data map(delete: a)
  }
  return VERDICT();
}
