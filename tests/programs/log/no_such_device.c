// Device numbers that no plugin has: the library's functions refuse them, a target construct aborts.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g
// abort: yes
#include "../check.h"

int main(void) {
  int x = 0, none = omp_get_num_devices() + 1;
  if (omp_target_alloc(4, none) || !omp_target_associate_ptr(&x, &x, sizeof x, 0, none) ||
      !omp_target_disassociate_ptr(&x, none) || omp_target_is_present(&x, none) ||
      !omp_target_memcpy(&x, &x, sizeof x, 0, 0, none, none))
    return 1;
#pragma omp target map(tofrom: x) device(none)
  x = 1;
  return 0;
}
