// Regions that use the base pointer of a mapping leave its count as it was, and copy nothing: after any number of them
// one release removes it, and its data comes back by that release alone.
// stock: the pointer is null in the regions, the counts are right
// expect: PASS
#include "../check.h"
#include <stdlib.h>

int main(void) {
  int *a = calloc(20, sizeof *a), device = omp_get_default_device(), nulls = 0;
#pragma omp target enter data map(to: a[10:10])
  for (int i = 0; i < 5; ++i) {
#pragma omp target map(tofrom: nulls)
    if (a)
      a[12] += 1;
    else
      nulls += 1;
#pragma omp target map(tofrom: a[0:0], nulls)
    if (a)
      a[12] += 1;
    else
      nulls += 1;
  }
  CHECK(nulls == 0);
  CHECK(a[12] == 0);
#pragma omp target exit data map(from: a[10:10])
  CHECK(a[12] == 10);
  CHECK(!omp_target_is_present(a + 10, device));
  return VERDICT();
}
