// Under unified shared memory a struct is used where it is on the host, but what its pointer points to has a copy on
// the device, by the close modifier: the pointer is attached although it is not in the table itself.
// stock: the same, by way of an entry that the pointer's look-up did not match
// expect: PASS
#include "../check.h"

#pragma omp requires unified_shared_memory

static struct {
  int *p;
} s;

static int pointee[4] = {1, 2, 3, 4};

int main(void) {
  int device = omp_get_default_device(), seen = 0;
  s.p = pointee;
#pragma omp target enter data map(close, to: pointee)
  pointee[2] = 30;
#pragma omp target map(to: s) map(to: s.p[0:4]) map(from: seen)
  seen = s.p[2];
  CHECK(seen == 3);
  CHECK(!omp_target_is_present(&s, device) && omp_target_is_present(pointee, device));
#pragma omp target exit data map(release: pointee)
  CHECK(!omp_target_is_present(pointee, device));
  return VERDICT();
}
