// A transfer report of a host range that lies between two entries, touching both: the name is unknown. A range inside
// an entry is named as before.
// stock: prints Name=above[0:4] for the range between
// env: LIBOMPTARGET_INFO=32
// flags: -g
// expect: PASS
// stderr: Size=16, Name=unknown
// stderr: Size=4, Name=below[0:4]
// not-stderr: Size=16, Name=below
// not-stderr: Size=16, Name=above
#include "../check.h"

static int all[12];

int main(void) {
  int device = omp_get_default_device(), host = omp_get_initial_device();
  int *below = all, *middle = all + 4, *above = all + 8;
  int *p = omp_target_alloc(4 * sizeof(int), device);
#pragma omp target enter data map(alloc: below[0:4], above[0:4])
  CHECK(omp_target_memcpy(p, middle, 4 * sizeof(int), 0, 0, device, host) == 0);
  CHECK(omp_target_memcpy(middle, p, 4 * sizeof(int), 0, 0, host, device) == 0);
  CHECK(omp_target_memcpy(p, below + 1, sizeof(int), 0, 0, device, host) == 0);
#pragma omp target exit data map(delete: below[0:4], above[0:4])
  omp_target_free(p, device);
  return VERDICT();
}
