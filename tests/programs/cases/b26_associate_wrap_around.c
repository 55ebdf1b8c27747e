// A range whose end is beyond the end of the address space is not a range: it cannot be associated, and nothing of it
// becomes present.
// stock: returns 0, and puts an entry into the table whose end is below its begin
// expect: PASS
#include "../check.h"
#include <stdint.h>

int main(void) {
  int a[4] = {0}, device = omp_get_default_device();
  int *p = omp_target_alloc(sizeof a, device);
  CHECK(omp_target_associate_ptr(a, p, SIZE_MAX, 0, device) != 0);
  CHECK(omp_target_associate_ptr(a, p, SIZE_MAX - (uintptr_t)a + 2, 0, device) != 0);
  CHECK(!omp_target_is_present(a, device));
  CHECK(omp_target_disassociate_ptr(a, device) != 0);
  CHECK(omp_target_associate_ptr(a, p, sizeof a, 0, device) == 0);
  CHECK(omp_target_disassociate_ptr(a, device) == 0);
  omp_target_free(p, device);
  return VERDICT();
}
