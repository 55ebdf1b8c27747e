// The middle of an array is mapped and unmapped again and again, while another thread uses what lies on both sides of it:
// on the host, in updates of what is not mapped, and in mappings of its own.
// expect: PASS
#include "../check.h"

enum { SIDE = 8, MIDDLE = 100, TURNS = 15 };
static int a[SIDE + MIDDLE + SIDE];

int main(void) {
  int *middle = a + SIDE, *after = a + SIDE + MIDDLE;
  int wrong = 0;
#pragma omp parallel num_threads(2) reduction(+ : wrong)
  for (int turn = 0; turn < TURNS; ++turn) {
    if (omp_get_thread_num() == 0) {
#pragma omp target map(tofrom: middle[0:MIDDLE])
      for (int i = 0; i < MIDDLE; ++i)
        middle[i] += 1;
    } else {
      const int device = omp_get_default_device();
      a[SIDE - 1] += 1;
      after[0] += 1;
      // Not mapped: nothing happens.
#pragma omp target update from(a[0:SIDE])
#pragma omp target update to(after[0:SIDE])
#pragma omp target exit data map(release: after[0:SIDE])
      wrong += omp_target_is_present(a + SIDE - 1, device) || omp_target_is_present(after, device);
#pragma omp target map(tofrom: a[0:SIDE])
      a[SIDE - 1] += 1;
#pragma omp target map(tofrom: after[0:SIDE])
      after[0] += 1;
      wrong += a[SIDE - 1] != 2 * (turn + 1) || after[0] != 2 * (turn + 1);
    }
  }
  for (int i = 0; i < MIDDLE; ++i)
    wrong += middle[i] != TURNS;
  CHECK(wrong == 0);
  return VERDICT();
}
