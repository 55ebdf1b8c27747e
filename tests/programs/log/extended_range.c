// Zero-length sections at the base of a mapping that begins behind its base.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g
// differs: LLVM looks for such a section between begin and end only, so the pointer is null in the region
// expect: PASS
#include "../check.h"

static int storage[16];

int main(void) {
  int *a = storage, seen = 0, device = omp_get_default_device();
#pragma omp target enter data map(to: a[8:8])
#pragma omp target map(tofrom: seen)
  seen = a != 0;
  CHECK(seen);
#pragma omp target enter data map(alloc: a[0:0])
#pragma omp target exit data map(release: a[8:8])
  CHECK(!omp_target_is_present(a, device) && omp_target_is_present(a + 8, device));
#pragma omp target exit data map(release: a[0:0])
  CHECK(!omp_target_is_present(a + 8, device));
  return VERDICT();
}
