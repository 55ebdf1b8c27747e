// The memory manager: blocks of equal size are used again, larger ones go back at once, and one that does not fit takes
// the idle ones with it.
// env: EMU_MEMORY=65536
// env: LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD=4096
#include "../check.h"

int main(void) {
  int device = omp_get_default_device();
  void *block[8];
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 8; ++i)
      CHECK((block[i] = omp_target_alloc(1000 + 500 * (i / 2), device)));
    for (int i = 7; i >= 0; --i)
      omp_target_free(block[i], device);
  }
  // Only without the idle blocks is there room.
  void *large = omp_target_alloc(60000, device);
  CHECK(large);
  CHECK(!omp_target_alloc(20000, device));
  omp_target_free(large, device);
  CHECK((block[0] = omp_target_alloc(4096, device)));
  CHECK((block[1] = omp_target_alloc(4097, device)));
  omp_target_free(block[1], device);
  omp_target_free(block[0], device);
  return VERDICT();
}
