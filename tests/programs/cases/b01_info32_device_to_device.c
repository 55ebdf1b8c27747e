// Transfer reports of a copy from device to device, which LLVM does over a host buffer of its own where the plugin
// cannot exchange data: neither step has an entry, on the first device the table is empty, on the second it is not.
// A plugin that can exchange data is asked not to (OMPTARGET_FAIL is read by the failing plugin of the tests only); it
// also sees that the second step's queue is given to the device that it was made on.
// stock: segmentation fault; the queue of the second step is given to the wrong device
// env: LIBOMPTARGET_INFO=32
// env: EMU_DEVICES=2
// env: OMPTARGET_FAIL=is_data_exchangable
// flags: -g
// expect: PASS
// stderr: device 0 info: Copying data from device to host
// stderr: device 1 info: Copying data from host to device
// stderr: Size=16, Name=unknown
// not-stderr: Size=16, Name=other
#include "../check.h"

int main(void) {
  int host = omp_get_initial_device(), x[4] = {1, 2, 3, 4}, y[4] = {0}, other[64] = {0};
  if (omp_get_num_devices() < 2) {
    puts("PASS, but there is one device only: nothing to copy between");
    return 0;
  }
  int *a = omp_target_alloc(sizeof x, 0), *b = omp_target_alloc(sizeof x, 1);
#pragma omp target enter data map(alloc: other) device(1)
  CHECK(omp_target_memcpy(a, x, sizeof x, 0, 0, 0, host) == 0);
  CHECK(omp_target_memcpy(b, a, sizeof x, 0, 0, 1, 0) == 0);
  CHECK(omp_target_memcpy(y, b, sizeof x, 0, 0, host, 1) == 0);
  CHECK(y[0] == 1 && y[3] == 4);
#pragma omp target exit data map(delete: other) device(1)
  omp_target_free(a, 0);
  omp_target_free(b, 1);
  return VERDICT();
}
