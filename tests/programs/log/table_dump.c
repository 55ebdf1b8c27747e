// The dump of the table after each construct and at the end of the program, without debug output (LIBOMPTARGET_INFO=4):
// ordinary, associated, held and declare target entries, in the order of their addresses.
// env: LIBOMPTARGET_INFO=4
// flags: -g -fopenmp-extensions
// expect: PASS
#include "../check.h"

#pragma omp declare target
int g = 1;
#pragma omp end declare target

static int all[16];

int main(void) {
  int device = omp_get_default_device(), *low = all, *middle = all + 4, *high = all + 8;
  void *p = omp_target_alloc(16, device);
  CHECK(omp_target_associate_ptr(middle, p, 16, 0, device) == 0);
#pragma omp target enter data map(to: high[0:4])
#pragma omp target data map(ompx_hold, alloc: low[0:4])
  {
#pragma omp target enter data map(alloc: low[0:4])
#pragma omp target enter data map(to: high[0:4])
#pragma omp target
    g = 2;
  }
#pragma omp target exit data map(delete: low[0:4])
  return VERDICT();
}
