// Copies from one device to another again and again: the second device's memory is opened to the first one once.
// LLVM 14 asks each time, and reports an error for each but the first.
// env: EMU_DEVICES=2
#include "../check.h"

int main(void) {
  int host = omp_get_initial_device(), x[4] = {1, 2, 3, 4}, y[4] = {0};
  CHECK(omp_get_num_devices() >= 2);
  int *a = omp_target_alloc(sizeof x, 0), *b = omp_target_alloc(sizeof x, 1);
  CHECK(!omp_target_memcpy(a, x, sizeof x, 0, 0, 0, host));
  for (int i = 0; i < 3; ++i)
    CHECK(!omp_target_memcpy(b, a, sizeof x, 0, 0, 1, 0));
  CHECK(!omp_target_memcpy(y, b, sizeof x, 0, 0, host, 1));
  CHECK(y[3] == 4);
  omp_target_free(a, 0);
  omp_target_free(b, 1);
  return VERDICT();
}
