// A zero-length section that matches by the extended range is counted, on enter and on exit alike: in whatever order
// they come, the mapping goes with the last of them, and delete on such a section removes it at once.
// stock: ignores the zero-length sections at the base, so the mapping goes too early, or delete does not remove it
// expect: PASS
#include "../check.h"
#include <stdlib.h>

int main(void) {
  int *a = malloc(20 * sizeof *a), device = omp_get_default_device();
#define PRESENT omp_target_is_present(a + 10, device)
  for (int i = 0; i < 20; i += 5) {
    int *p = a + i;
#pragma omp target enter data map(alloc: a[10:10])
#pragma omp target enter data map(alloc: p[0:0])
#pragma omp target exit data map(release: p[0:0])
    CHECK(PRESENT);
#pragma omp target exit data map(release: a[10:10])
    CHECK(!PRESENT);

#pragma omp target enter data map(alloc: a[10:10])
#pragma omp target enter data map(alloc: p[0:0])
#pragma omp target exit data map(release: a[10:10])
    CHECK(PRESENT);
#pragma omp target exit data map(release: p[0:0])
    CHECK(!PRESENT);

#pragma omp target enter data map(alloc: a[10:10])
#pragma omp target data map(alloc: p[0:0])
    {
#pragma omp target exit data map(release: a[10:10])
      CHECK(PRESENT);
    }
    CHECK(!PRESENT);

#pragma omp target enter data map(alloc: a[10:10])
#pragma omp target enter data map(alloc: a[10:10])
#pragma omp target exit data map(delete: p[0:0])
    CHECK(!PRESENT);
  }
  // Nothing is mapped: zero-length sections make no entry, and none is left over.
#pragma omp target enter data map(alloc: a[0:0])
  CHECK(!omp_target_is_present(a, device));
#pragma omp target exit data map(release: a[0:0])
  CHECK(!PRESENT);
  return VERDICT();
}
