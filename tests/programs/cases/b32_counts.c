// Dynamic reference counts: release of what is not mapped, nesting, always, delete in the middle, and host data left
// alone while the count stays above zero.
// stock: the same
// expect: PASS
#include "../check.h"

int main(void) {
  int a[8] = {0}, device = omp_get_default_device();
#define PRESENT omp_target_is_present(a, device)
#pragma omp target exit data map(release: a) // not mapped: ignored
  CHECK(!PRESENT);
#pragma omp target enter data map(to: a)
#pragma omp target enter data map(alloc: a)
#pragma omp target
  a[0] = 1;
  CHECK(a[0] == 0); // the implicit map is not the last: no copy back
#pragma omp target map(always, from: a)
  a[1] = 2;
  CHECK(a[0] == 1 && a[1] == 2);
  a[2] = 5;
#pragma omp target map(to: a)
  a[3] = a[2];
#pragma omp target update from(a)
  CHECK(a[2] == 0 && a[3] == 0); // the host's 5 was not copied to the device
#pragma omp target exit data map(from: a)
  CHECK(PRESENT);
#pragma omp target
  a[4] = 9;
#pragma omp target exit data map(from: a)
  CHECK(!PRESENT && a[4] == 9);
#pragma omp target enter data map(to: a)
#pragma omp target enter data map(to: a)
#pragma omp target data map(tofrom: a)
  {
#pragma omp target exit data map(delete: a)
    CHECK(!PRESENT);
    a[5] = 77;
  }
  CHECK(!PRESENT && a[5] == 77);
#pragma omp target data map(alloc: a)
  CHECK(PRESENT);
  CHECK(!PRESENT);
  return VERDICT();
}
