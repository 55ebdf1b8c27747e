// Associations, and what the runtime says to each attempt: a new one, the same once more, another for the same host
// range, with a size that does not fit; the end of one, of none, of an ordinary mapping, of a held mapping.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g -fopenmp-extensions
// expect: PASS
#include "../check.h"

static int a[8], mapped[4], held[4];

int main(void) {
  int device = omp_get_default_device();
  int *p = omp_target_alloc(2 * sizeof a, device);
  CHECK(omp_target_disassociate_ptr(a, device) != 0);
  CHECK(omp_target_associate_ptr(a, p, sizeof a, 4, device) == 0);
  CHECK(omp_target_associate_ptr(a, p, sizeof a, 4, device) == 0);
  CHECK(omp_target_associate_ptr(a, p, sizeof a, 8, device) != 0);
  CHECK(omp_target_associate_ptr(a, p, 4, 4, device) != 0);
#pragma omp target map(tofrom: a)
  a[0] = 1;
#pragma omp target update from(a)
  CHECK(a[0] == 1);
  CHECK(omp_target_disassociate_ptr(a, device) == 0);
#pragma omp target enter data map(alloc: mapped)
  CHECK(omp_target_disassociate_ptr(mapped, device) != 0);
#pragma omp target exit data map(delete: mapped)
#pragma omp target data map(ompx_hold, alloc: held)
  CHECK(omp_target_disassociate_ptr(held, device) != 0);
  omp_target_free(p, device);
  return VERDICT();
}
