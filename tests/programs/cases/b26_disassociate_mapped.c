// Ordinary mappings cannot be disassociated, whatever their count, nor what lies inside of one, nor what is not mapped
// (any more): the call is refused each time, and the mapping stays as it is.
// stock: the same
// expect: PASS
#include "../check.h"

int main(void) {
  int a[8] = {0}, device = omp_get_default_device();
  CHECK(omp_target_disassociate_ptr(a, device) != 0);
#pragma omp target enter data map(to: a)
  CHECK(omp_target_disassociate_ptr(a, device) != 0);
  CHECK(omp_target_disassociate_ptr(a, device) != 0);
  CHECK(omp_target_disassociate_ptr(a + 1, device) != 0);
#pragma omp target enter data map(to: a)
  CHECK(omp_target_disassociate_ptr(a, device) != 0);
  CHECK(omp_target_is_present(a, device));
#pragma omp target
  a[1] = 2;
#pragma omp target exit data map(from: a)
  CHECK(omp_target_is_present(a, device) && a[1] == 0);
#pragma omp target exit data map(from: a)
  CHECK(!omp_target_is_present(a, device) && a[1] == 2);
  CHECK(omp_target_disassociate_ptr(a, device) != 0);
#pragma omp target enter data map(to: a)
#pragma omp target exit data map(delete: a)
  CHECK(omp_target_disassociate_ptr(a, device) != 0);
  CHECK(omp_target_disassociate_ptr(NULL, device) != 0);
  CHECK(omp_target_disassociate_ptr(a, omp_get_initial_device()) != 0);
  return VERDICT();
}
