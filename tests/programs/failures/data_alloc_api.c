// omp_target_alloc gives null when the plugin cannot allocate; the next call works.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=data_alloc
// expect: PASS
#include "../check.h"

int main(void) {
  CHECK(omp_target_alloc(4, 0) == NULL);
  void *p = omp_target_alloc(4, 0);
  CHECK(p != NULL);
  omp_target_free(p, 0);
#pragma omp target
  ;
  return VERDICT();
}
