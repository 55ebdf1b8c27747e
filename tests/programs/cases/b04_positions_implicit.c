// Where an implicit zero-length section matches a[10:10]: at the base, between base and begin, at the begin, inside and
// at the last element, always with the device address that belongs to the host address. One past the end and below the
// base match nothing and give null.
// stock: null at the base and between base and begin
// expect: PASS
#include "../check.h"
#include <stdint.h>
#include <stdlib.h>

// The device address of p as a region sees it, or null.
static intptr_t in_region(int *p) {
  intptr_t address = -1;
#pragma omp target map(from: address)
  address = (intptr_t)p;
  return address;
}

int main(void) {
  int *all = malloc(40 * sizeof *all), *a = all + 10;
#pragma omp target enter data map(alloc: a[10:10])
  intptr_t begin = in_region(a + 10);
  CHECK(begin != 0);
  for (int i = 0; i < 20; ++i)
    CHECK(in_region(a + i) == begin + (i - 10) * (intptr_t)sizeof *a);
  CHECK(in_region(a + 20) == 0);
  CHECK(in_region(a - 1) == 0);
  CHECK(in_region(NULL) == 0);
#pragma omp target exit data map(release: a[10:10])
  CHECK(in_region(a) == 0);
  CHECK(in_region(a + 10) == 0);
  return VERDICT();
}
