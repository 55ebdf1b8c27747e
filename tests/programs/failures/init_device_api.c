// A device that does not initialise: the library's functions refuse it and the program goes on; another device works.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=init_device
// expect: PASS
#include "../check.h"

int main(void) {
  int x = 0, host = omp_get_initial_device();
  CHECK(omp_target_alloc(4, 0) == NULL);
  CHECK(omp_target_alloc(4, 0) == NULL);
  CHECK(omp_target_memcpy(&x, &x, sizeof x, 0, 0, 0, host) != 0);
  CHECK(omp_target_associate_ptr(&x, &x, sizeof x, 0, 0) != 0);
  CHECK(omp_target_disassociate_ptr(&x, 0) != 0);
#pragma omp target map(tofrom: x) device(1)
  x = 1;
  CHECK(x == 1);
  return VERDICT();
}
