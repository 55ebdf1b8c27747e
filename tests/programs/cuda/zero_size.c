// Sections whose length is 0 at run time, with `always` and in updates: no copy of 0 bytes, and counts stay balanced.
#include "../check.h"
#include <stdlib.h>

int main(int count, char **arguments) {
  (void)arguments;
  int none = count - 1, *a = malloc(40), r = 5, device = omp_get_default_device();
#pragma omp target enter data map(to: a[0:10])
#pragma omp target map(always, tofrom: a[0:none]) map(tofrom: r)
  r += none;
#pragma omp target update to(a[0:none])
#pragma omp target update from(a[0:none])
#pragma omp target exit data map(delete: a[0:10])
  CHECK(!omp_target_is_present(a, device));
#pragma omp target map(always, tofrom: a[0:none]) map(tofrom: r)
  r += none;
  CHECK(r == 5);
  free(a);
  return VERDICT();
}
