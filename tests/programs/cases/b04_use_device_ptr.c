// use_device_ptr asks with a zero-length section: for the base pointer of a[10:10] it gives the device address that
// belongs to it, and the host pointer is as before after the region.
// stock: a null pointer inside of the region
// expect: PASS
#include "../check.h"
#include <stdint.h>
#include <stdlib.h>

int main(void) {
  int *a = malloc(20 * sizeof *a), *begin = a + 10, *a_before = a;
  intptr_t device_base = -1, device_begin = -1;
#pragma omp target enter data map(alloc: a[10:10])
#pragma omp target data use_device_ptr(a)
  device_base = (intptr_t)a;
#pragma omp target data use_device_ptr(begin)
  device_begin = (intptr_t)begin;
  CHECK(a == a_before);
  CHECK(device_begin != 0 && device_base == device_begin - 10 * (intptr_t)sizeof *a);
#pragma omp target exit data map(release: a[10:10])
  CHECK(!omp_target_is_present(a_before + 10, omp_get_default_device()));
  return VERDICT();
}
