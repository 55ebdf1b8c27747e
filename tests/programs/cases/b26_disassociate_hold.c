// A hold count stands in the way of disassociation, both of an ordinary mapping and of an association; without it the
// association can be ended.
// stock: the same
// flags: -fopenmp-extensions
// expect: PASS
#include "../check.h"

int main(void) {
  int mapped[4] = {0}, associated[4] = {0}, device = omp_get_default_device();
  int *p = omp_target_alloc(sizeof associated, device);
#pragma omp target data map(ompx_hold, alloc: mapped)
  {
    CHECK(omp_target_disassociate_ptr(mapped, device) != 0);
    CHECK(omp_target_is_present(mapped, device));
#pragma omp target enter data map(alloc: mapped)
    CHECK(omp_target_disassociate_ptr(mapped, device) != 0);
#pragma omp target exit data map(delete: mapped)
    CHECK(omp_target_is_present(mapped, device));
  }
  CHECK(!omp_target_is_present(mapped, device));

  CHECK(omp_target_associate_ptr(associated, p, sizeof associated, 0, device) == 0);
#pragma omp target data map(ompx_hold, alloc: associated)
  {
    CHECK(omp_target_disassociate_ptr(associated, device) != 0);
    CHECK(omp_target_is_present(associated, device));
#pragma omp target map(ompx_hold, tofrom: associated)
    associated[0] = 1;
    CHECK(omp_target_disassociate_ptr(associated, device) != 0);
  }
  CHECK(omp_target_is_present(associated, device));
  CHECK(omp_target_disassociate_ptr(associated, device) == 0);
  CHECK(!omp_target_is_present(associated, device));
  omp_target_free(p, device);
  return VERDICT();
}
