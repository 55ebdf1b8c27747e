// Zero-length sections at the begin, in the middle and one past the end of a mapped block, and presence at the same
// places. Presence is about the storage itself: no at the base pointer, below the mapped part.
// stock: the same
// expect: PASS
#include "../check.h"
#include <stdlib.h>

int main(void) {
  int *a = malloc(40), device = omp_get_default_device();
  for (int i = 0; i < 10; ++i)
    a[i] = i;
  int *q = a + 5, explicit_value = -1, implicit_value = -1;
#pragma omp target enter data map(to: a[2:6])
  CHECK(!omp_target_is_present(a, device) && !omp_target_is_present(a + 1, device));
  CHECK(omp_target_is_present(a + 2, device) && omp_target_is_present(a + 7, device));
  CHECK(!omp_target_is_present(a + 8, device));
  CHECK(!omp_target_is_present(NULL, device));
  CHECK(omp_target_is_present(a, omp_get_initial_device()));
#pragma omp target map(q[0:0]) map(from: explicit_value)
  explicit_value = q[0];
  CHECK(explicit_value == 5);
#pragma omp target map(from: implicit_value)
  implicit_value = q[-3];
  CHECK(implicit_value == 2);
#pragma omp target enter data map(to: a[4:0]) // a zero-length enter and exit cancel out
#pragma omp target exit data map(release: a[4:0])
  CHECK(omp_target_is_present(a + 2, device));
#pragma omp target exit data map(release: a[2:6])
  CHECK(!omp_target_is_present(a + 2, device));
  return VERDICT();
}
