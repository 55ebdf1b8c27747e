// Two sections of one array are mapped, a[0:4] and a[10:10]; both have a as their base, so a[0:4] lies in the extended
// range of the other. A zero-length section inside a[0:4] belongs to a[0:4]; in the gap, and at one past the end of
// a[0:4], it belongs to a[10:10], whichever was mapped first.
// stock: null in the gap
// expect: PASS
#include "../check.h"
#include <stdint.h>
#include <stdlib.h>

static intptr_t in_region(int *p) {
  intptr_t address = -1;
#pragma omp target map(from: address)
  address = (intptr_t)p;
  return address;
}

int main(void) {
  int *a = malloc(20 * sizeof *a);
  for (int order = 0; order < 2; ++order) {
    if (order == 0) {
#pragma omp target enter data map(alloc: a[0:4])
#pragma omp target enter data map(alloc: a[10:10])
    } else {
#pragma omp target enter data map(alloc: a[10:10])
#pragma omp target enter data map(alloc: a[0:4])
    }
    intptr_t low = in_region(a), high = in_region(a + 10);
    CHECK(low != 0 && high != 0);
    for (int i = 0; i < 4; ++i)
      CHECK(in_region(a + i) == low + i * (intptr_t)sizeof *a);
    for (int i = 4; i < 20; ++i)
      CHECK(in_region(a + i) == high + (i - 10) * (intptr_t)sizeof *a);
    CHECK(in_region(a + 20) == 0);
    // Each is counted for itself.
#pragma omp target enter data map(alloc: a[2:0])
#pragma omp target exit data map(release: a[0:4])
    CHECK(omp_target_is_present(a, omp_get_default_device()));
#pragma omp target exit data map(release: a[10:10])
    CHECK(!omp_target_is_present(a + 10, omp_get_default_device()));
#pragma omp target exit data map(release: a[2:0])
    CHECK(!omp_target_is_present(a, omp_get_default_device()));
  }
  return VERDICT();
}
