// The device information that a plugin prints; the return value says that it has some.
// stock: the same
// expect: failing plugin, device 1
#include <stdint.h>

int __tgt_print_device_info(int64_t device);

int main(void) {
#pragma omp target
  ;
  return !__tgt_print_device_info(1);
}
