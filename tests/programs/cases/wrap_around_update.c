// The length of a section is so large that its end wraps around the address space. Such a range is in no mapping, even
// where the wrapped end lies below the mapping's end: the update finds nothing and does nothing.
// stock: takes the range for a part of the mapping and copies "-8 bytes", which overwrites data or crashes
// expect: PASS
#include "../check.h"
#include <stdint.h>
#include <stdlib.h>

int main(void) {
  char *a = calloc(16, 1);
  size_t wraps = SIZE_MAX - 7;
#pragma omp target enter data map(to: a[0:16])
  a[9] = 5;
  char *p = a + 8;
#pragma omp target update to(p[0:wraps])
#pragma omp target update from(p[0:wraps])
  CHECK(a[9] == 5);
#pragma omp target exit data map(from: a[0:16])
  CHECK(a[9] == 0);
  return VERDICT();
}
