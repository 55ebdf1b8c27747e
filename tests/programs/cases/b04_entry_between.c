// Between base and begin of a[10:10] lies a mapping with a base of its own, q[0:2] with q = a + 5. A zero-length
// section at the base of a still matches a[10:10], on either side of q; inside q[0:2] the contained match wins.
// stock: null at the base and on both sides of q
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
  int *a = malloc(20 * sizeof *a), *q = a + 5;
#pragma omp target enter data map(alloc: a[10:10])
#pragma omp target enter data map(alloc: q[0:2])
  intptr_t begin = in_region(a + 10), between = in_region(q);
  CHECK(begin != 0 && between != 0);
  for (int i = 0; i < 20; ++i)
    if (i == 5 || i == 6)
      CHECK(in_region(a + i) == between + (i - 5) * (intptr_t)sizeof *a);
    else
      CHECK(in_region(a + i) == begin + (i - 10) * (intptr_t)sizeof *a);
#pragma omp target exit data map(release: a[10:10], q[0:2])
  CHECK(in_region(a) == 0 && in_region(q) == 0);
  return VERDICT();
}
