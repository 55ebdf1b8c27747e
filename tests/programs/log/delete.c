// Deletion at every kind of count: above one, at one, of a part, of what is not mapped; beside a hold count, which
// stays in its way; at the infinite counts of a declare target variable and of an association.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g -fopenmp-extensions
// expect: PASS
#include "../check.h"

#pragma omp declare target
int g = 1;
#pragma omp end declare target

static int a[8], held[4], b[4];

int main(void) {
  int device = omp_get_default_device();
  void *p = omp_target_alloc(sizeof b, device);
#pragma omp target enter data map(to: a)
#pragma omp target enter data map(to: a)
#pragma omp target exit data map(delete: a)
#pragma omp target enter data map(to: a)
#pragma omp target exit data map(delete: a[2:3])
  CHECK(!omp_target_is_present(a, device));
#pragma omp target exit data map(delete: a)

#pragma omp target data map(ompx_hold, tofrom: held)
  {
#pragma omp target map(ompx_hold, tofrom: held)
    held[0] = 1;
#pragma omp target enter data map(alloc: held)
#pragma omp target enter data map(alloc: held)
#pragma omp target exit data map(release: held)
#pragma omp target exit data map(delete: held)
#pragma omp target exit data map(delete: held)
    CHECK(omp_target_is_present(held, device));
#pragma omp target map(tofrom: held)
    held[1] = 2;
  }
  CHECK(!omp_target_is_present(held, device) && held[0] == 1 && held[1] == 2);
#pragma omp target enter data map(alloc: held)
#pragma omp target data map(ompx_hold, tofrom: held)
  ;
#pragma omp target exit data map(delete: held)
  CHECK(!omp_target_is_present(held, device));

#pragma omp target exit data map(delete: g)
  CHECK(omp_target_associate_ptr(b, p, sizeof b, 0, device) == 0);
#pragma omp target exit data map(delete: b)
  CHECK(omp_target_is_present(&g, device) && omp_target_is_present(b, device));
  CHECK(omp_target_disassociate_ptr(b, device) == 0);
  omp_target_free(p, device);
  return VERDICT();
}
