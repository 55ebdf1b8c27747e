// A zero-length section with the present modifier is satisfied by the extended range: at the base, between base and
// begin and inside, on a region, on target data and on enter and exit data.
// stock: aborts at the base; it says that the data is not present
// flags: -fopenmp-version=51
// expect: PASS
// not-stderr: Libomptarget
#include "../check.h"
#include <stdlib.h>

int main(void) {
  int *a = malloc(20 * sizeof *a), device = omp_get_default_device(), seen = 0;
#pragma omp target enter data map(alloc: a[10:10])
  for (int i = 0; i < 20; ++i) {
    int *p = a + i;
#pragma omp target map(present, alloc: p[0:0]) map(tofrom: seen)
    seen += p != 0;
#pragma omp target data map(present, alloc: p[0:0])
    CHECK(omp_target_is_present(a + 10, device));
#pragma omp target enter data map(present, alloc: p[0:0])
#pragma omp target exit data map(present, release: p[0:0])
  }
  CHECK(seen == 20);
#pragma omp target exit data map(release: a[10:10])
  CHECK(!omp_target_is_present(a + 10, device));
  return VERDICT();
}
