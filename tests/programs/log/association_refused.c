// Refusals that LLVM does not make: an association that overlaps a mapping from before, from inside or around it, one
// whose end wraps around the address space, and the end of what was never associated, a declare target variable.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g
// differs: LLVM makes the associations and takes the variable out of the table
// expect: PASS
#include "../check.h"
#include <stdint.h>

#pragma omp declare target
int g = 3;
#pragma omp end declare target

static int a[16];

int main(void) {
  int device = omp_get_default_device();
  char *p = omp_target_alloc(sizeof a, device);
#pragma omp target enter data map(alloc: a[4:8])
  CHECK(omp_target_associate_ptr(a, p, 5 * sizeof(int), 0, device) != 0);
  CHECK(omp_target_associate_ptr(a + 5, p, 4, 0, device) != 0);
  CHECK(omp_target_associate_ptr(a, p, sizeof a, 0, device) != 0);
  CHECK(omp_target_associate_ptr(a + 14, p, SIZE_MAX, 0, device) != 0);
#pragma omp target exit data map(delete: a[4:8])
  CHECK(omp_target_disassociate_ptr(&g, device) != 0);
  CHECK(omp_target_is_present(&g, device));
  omp_target_free(p, device);
  return VERDICT();
}
