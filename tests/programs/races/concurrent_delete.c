// Four threads delete one mapping at once: the late ones find nothing, which is no error.
// expect: PASS
#include "../check.h"

static int a[1000];

int main(void) {
  for (int round = 0; round < 200; ++round) {
#pragma omp target enter data map(to: a)
#pragma omp parallel num_threads(4)
    {
#pragma omp target exit data map(delete: a)
    }
    CHECK(!omp_target_is_present(a, omp_get_default_device()));
  }
  return VERDICT();
}
