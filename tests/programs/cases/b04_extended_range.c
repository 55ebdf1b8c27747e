// a[10:10] is mapped; regions use a through its base pointer, an implicit zero-length section. Such a section matches
// the extended range [base, end) of the mapping too, so the region gets a device pointer to work with.
// stock: the pointer is null in the region
// expect: PASS
#include "../check.h"
#include <stdlib.h>

int main(void) {
  int *a = malloc(20 * sizeof *a), is_null = -1, r = -1;
  for (int i = 0; i < 20; ++i)
    a[i] = i;
#pragma omp target enter data map(to: a[10:10])
#pragma omp target map(from: is_null)
  is_null = a == 0;
  CHECK(!is_null);
  if (!is_null) {
#pragma omp target map(from: r)
    r = a[15];
    CHECK(r == 15);
  }
#pragma omp target exit data map(release: a[10:10])
  return VERDICT();
}
