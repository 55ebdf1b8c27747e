// A copy between two devices that the plugin cannot do goes over the host instead.
// stock: the same without the name of the function; the queue of the second step is given to the wrong device
// env: OMPTARGET_FAIL=data_exchange_async
// expect: PASS
#include "../check.h"

int main(void) {
  int host = omp_get_initial_device(), x[4] = {1, 2, 3, 4}, y[4] = {0};
  int *a = omp_target_alloc(sizeof x, 0), *b = omp_target_alloc(sizeof x, 1);
  CHECK(omp_target_memcpy(a, x, sizeof x, 0, 0, 0, host) == 0);
  CHECK(omp_target_memcpy(b, a, sizeof x, 0, 0, 1, 0) == 0);
  CHECK(omp_target_memcpy(y, b, sizeof x, 0, 0, host, 1) == 0);
  CHECK(y[0] == 1 && y[3] == 4);
  omp_target_free(a, 0);
  omp_target_free(b, 1);
#pragma omp target
  ;
  return VERDICT();
}
