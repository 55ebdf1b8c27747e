// omp_target_is_present asks about the storage itself, so the extended range is none of its business: it answers no at
// the base and between base and begin, also after regions have used that pointer, inside target data, and beside
// sections that were counted by the extended range.
// stock: the same
// expect: PASS
#include "../check.h"
#include <stdlib.h>

int main(void) {
  int *a = malloc(21 * sizeof *a), device = omp_get_default_device(), r = 0;
#define CHECK_PRESENCE()                                                                                               \
  for (int i = 0; i < 21; ++i)                                                                                         \
    CHECK(omp_target_is_present(a + i, device) == (i >= 10 && i < 20))
#pragma omp target enter data map(alloc: a[10:10])
  CHECK_PRESENCE();
#pragma omp target map(tofrom: r)
  r += a != 0;
  CHECK_PRESENCE();
#pragma omp target data map(alloc: a[0:0])
  CHECK_PRESENCE();
#pragma omp target enter data map(alloc: a[5:0])
  CHECK_PRESENCE();
#pragma omp target exit data map(release: a[5:0])
  CHECK_PRESENCE();
#pragma omp target exit data map(release: a[10:10])
  CHECK(!omp_target_is_present(a + 10, device));
  return VERDICT();
}
