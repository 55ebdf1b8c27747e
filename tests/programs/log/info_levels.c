// Every kind of information that the library gives with debug output off (LIBOMPTARGET_INFO=63): arguments, entries
// that exist, are made and removed, transfers both ways, and the table; and an error, which needs no level.
// env: LIBOMPTARGET_INFO=63
// flags: -g
// expect: PASS
#include "../check.h"

static int a[8], b[8];

int main(void) {
  int scalar = 3;
#pragma omp target data map(tofrom: a) map(alloc: b[0:4])
  {
#pragma omp target map(tofrom: a) firstprivate(scalar)
    a[0] = b[0] = scalar;
    CHECK(omp_target_disassociate_ptr(a, omp_get_default_device()) != 0);
#pragma omp target update from(b[0:2])
#pragma omp target update to(a[4:4])
  }
  CHECK(a[0] == 3 && b[0] == 3);
  return VERDICT();
}
