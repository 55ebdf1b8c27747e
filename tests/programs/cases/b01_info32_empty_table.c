// A transfer report (LIBOMPTARGET_INFO=32) of a copy for which the table, still empty, has no entry: the report says
// that the name is unknown, and the copies work.
// stock: segmentation fault; it reads the entry that an empty table does not have
// env: LIBOMPTARGET_INFO=32
// expect: PASS
// stderr: Copying data from host to device
// stderr: Copying data from device to host
// stderr: Name=unknown
#include "../check.h"

int main(void) {
  int device = omp_get_default_device(), host = omp_get_initial_device(), x = 41, y = 0;
  int *p = omp_target_alloc(sizeof x, device);
  CHECK(omp_target_memcpy(p, &x, sizeof x, 0, 0, device, host) == 0);
  CHECK(omp_target_memcpy(&y, p, sizeof x, 0, 0, host, device) == 0);
  CHECK(y == 41);
  omp_target_free(p, device);
  return VERDICT();
}
