// A transfer report of a host range for which only an entry below it is in the table: the name is unknown, not that of
// the neighbour. Mapping with alloc transfers nothing, so no report may name the neighbour.
// stock: prints Name=below[0:4], the entry on the left of the range
// env: LIBOMPTARGET_INFO=32
// flags: -g
// expect: PASS
// stderr: Name=unknown
// not-stderr: Name=below
#include "../check.h"

static int all[12];

int main(void) {
  int device = omp_get_default_device(), host = omp_get_initial_device(), *below = all, *middle = all + 4;
  int *p = omp_target_alloc(4 * sizeof(int), device);
#pragma omp target enter data map(alloc: below[0:4])
  middle[3] = 9;
  CHECK(omp_target_memcpy(p, middle, 4 * sizeof(int), 0, 0, device, host) == 0);
  middle[3] = 0;
  CHECK(omp_target_memcpy(middle, p, 4 * sizeof(int), 0, 0, host, device) == 0);
  CHECK(middle[3] == 9);
#pragma omp target exit data map(delete: below[0:4])
  omp_target_free(p, device);
  return VERDICT();
}
