// omp_target_memcpy to the device returns an error when the copy cannot be issued; the next call works.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=data_submit_async
// expect: PASS
#include "../check.h"

int main(void) {
  int x = 7, y = 0, host = omp_get_initial_device();
  int *p = omp_target_alloc(sizeof x, 0);
  CHECK(omp_target_memcpy(p, &x, sizeof x, 0, 0, 0, host) != 0);
  CHECK(omp_target_memcpy(p, &x, sizeof x, 0, 0, 0, host) == 0);
  CHECK(omp_target_memcpy(&y, p, sizeof x, 0, 0, host, 0) == 0);
  CHECK(y == 7);
  omp_target_free(p, 0);
#pragma omp target
  ;
  return VERDICT();
}
