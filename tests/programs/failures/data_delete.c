// Memory that the plugin does not take back is lost, but the mapping is gone and the program goes on.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=data_delete
// expect: PASS
#include "../check.h"

int main(void) {
  int x = 0;
#pragma omp target map(tofrom: x)
  x = 1;
  CHECK(x == 1 && !omp_target_is_present(&x, 0));
  return VERDICT();
}
