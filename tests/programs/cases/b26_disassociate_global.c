// Only what the user associated can be disassociated. A declare target variable is in the table with an infinite count
// too, but it was the runtime that put it there: the call is refused and the variable stays mapped.
// stock: takes the variable out of the table and returns 0
// expect: PASS
#include "../check.h"

#pragma omp declare target
int g = 5;
#pragma omp end declare target

int main(void) {
  int device = omp_get_default_device();
#pragma omp target
  g = 6;
  CHECK(omp_target_disassociate_ptr(&g, device) != 0);
  CHECK(omp_target_is_present(&g, device));
  CHECK(omp_target_disassociate_ptr(&g, device) != 0);
#pragma omp target update from(g)
  CHECK(g == 6);
#pragma omp target map(always, from: g)
  g += 1;
  CHECK(g == 7);
  return VERDICT();
}
