// use_device_ptr and use_device_addr on mapped data, with pointers into the middle and in nested regions.
// stock: the same
// expect: PASS
#include "../check.h"
#include <stdlib.h>

int main(void) {
  int *a = malloc(40), b[4] = {0}, device = omp_get_default_device(), host = omp_get_initial_device(), v = 0;
  for (int i = 0; i < 10; ++i)
    a[i] = i;
  int *middle = a + 4, *before = a;
#pragma omp target data map(tofrom: a[0:10], b)
  {
#pragma omp target data use_device_ptr(a)
    {
      int *device_a = a;
      omp_target_memcpy(&v, device_a, sizeof v, 0, 3 * sizeof v, host, device);
      CHECK(v == 3);
#pragma omp target is_device_ptr(device_a)
      device_a[3] = 33;
    }
    CHECK(a == before);
#pragma omp target data use_device_ptr(middle)
    {
      omp_target_memcpy(&v, middle, sizeof v, 0, 0, host, device);
      CHECK(v == 4);
    }
#pragma omp target data use_device_addr(b)
    {
      int seven = 7;
      omp_target_memcpy(b, &seven, sizeof v, 2 * sizeof v, 0, device, host);
    }
  }
  CHECK(a[3] == 33 && b[2] == 7);
  return VERDICT();
}
