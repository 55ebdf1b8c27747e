// Sections and variables that are not just what is mapped, where that is no error: implicit maps of variables of which
// a part is mapped, at their begin or end; exit data and updates of sections that extend a mapping, which do nothing;
// and zero-length sections inside of a mapping, one past its end, and elsewhere.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g
// expect: PASS
#include "../check.h"

static int a[16], b[16], c[32];

int main(void) {
  int device = omp_get_default_device();
#pragma omp target enter data map(to: a[0:8]) map(to: b[8:8])
#pragma omp target
  a[1] = 2;
#pragma omp target
  b[9] = 3;
#pragma omp target exit data map(from: a[0:8]) map(from: b[8:8])
  CHECK(a[1] == 2 && b[9] == 3);

#pragma omp target enter data map(to: c[8:16])
#pragma omp target exit data map(release: c[16:16])
#pragma omp target exit data map(release: c[0:16])
#pragma omp target exit data map(delete: c[0:32])
#pragma omp target update to(c[16:16])
#pragma omp target update from(c[0:16])
  CHECK(omp_target_is_present(c + 8, device));

  int *inside = c + 10, *end = c + 24, *elsewhere = a, seen = 0;
#pragma omp target map(tofrom: seen)
  seen += inside != 0;
#pragma omp target map(tofrom: seen) map(alloc: end[0:0])
  seen += end != 0;
#pragma omp target enter data map(alloc: elsewhere[0:0])
#pragma omp target enter data map(alloc: inside[0:0])
#pragma omp target exit data map(release: inside[0:0])
#pragma omp target exit data map(release: elsewhere[0:0])
  CHECK(seen == 1);
#pragma omp target exit data map(delete: c[8:16])
  CHECK(!omp_target_is_present(c + 8, device));
  return VERDICT();
}
