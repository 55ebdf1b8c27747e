// LIBOMPTARGET_MAP_FORCE_ATOMIC=false turns events off: none is ever created, so the failure does not come about.
// stock: the same
// env: LIBOMPTARGET_MAP_FORCE_ATOMIC=false
// env: OMPTARGET_FAIL=create_event
// fails: never
// expect: PASS
#include "../check.h"

static int a[4];

int main(void) {
#pragma omp target enter data map(to: a)
#pragma omp target map(tofrom: a)
  a[0] = 1;
#pragma omp target exit data map(from: a)
  CHECK(a[0] == 1);
  return VERDICT();
}
