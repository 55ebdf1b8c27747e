// Unified shared memory: maps use the host's memory, unless the close modifier or an association asks for the device's.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g
// expect: PASS
#include "../check.h"

#pragma omp requires unified_shared_memory

static int a[4], b[4], c[4];

int main(void) {
  int device = omp_get_default_device();
  void *p = omp_target_alloc(sizeof c, device);
#pragma omp target enter data map(to: a)
#pragma omp target map(tofrom: a)
  a[0] = 1;
#pragma omp target update from(a)
  CHECK(a[0] == 1 && !omp_target_is_present(a, device));
#pragma omp target exit data map(from: a)
#pragma omp target enter data map(close, to: b)
#pragma omp target map(tofrom: b)
  b[0] = 2;
  CHECK(omp_target_is_present(b, device) && b[0] == 0);
#pragma omp target exit data map(from: b)
  CHECK(b[0] == 2);
  CHECK(omp_target_associate_ptr(c, p, sizeof c, 0, device) == 0);
#pragma omp target map(tofrom: c)
  c[0] = 3;
  CHECK(c[0] == 0);
  CHECK(omp_target_disassociate_ptr(c, device) == 0);
  omp_target_free(p, device);
  return VERDICT();
}
