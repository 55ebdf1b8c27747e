// A limit of LLVM 14: omp_target_memcpy synchronises when its AsyncInfoTy is destroyed, which has no way to tell that
// it failed. The line that names the function is all there is.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=synchronize
// expect: PASS
#include "../check.h"

int main(void) {
  int x = 7, host = omp_get_initial_device();
  int *p = omp_target_alloc(sizeof x, 0);
  CHECK(omp_target_memcpy(p, &x, sizeof x, 0, 0, 0, host) == 0);
  omp_target_free(p, 0);
#pragma omp target
  ;
  return VERDICT();
}
