// A range that overlaps an association cannot be associated either, except for exactly the same once more. The first
// association still works and can be ended; after that the other range is free.
// stock: accepts every overlap that does not start at the same place
// expect: PASS
#include "../check.h"

static int all[64];

int main(void) {
  int device = omp_get_default_device(), *a = all + 16;
  int *p = omp_target_alloc(sizeof all, device), *q = omp_target_alloc(sizeof all, device);
#define REFUSED(first, count)                                                                                          \
  CHECK(omp_target_associate_ptr(all + (first), q, (count) * sizeof(int), 0, device) != 0);                            \
  for (int i = 0; i < 64; ++i)                                                                                         \
    CHECK(omp_target_is_present(all + i, device) == (i >= 16 && i < 32))
  CHECK(omp_target_associate_ptr(a, p, 16 * sizeof(int), 0, device) == 0);
  REFUSED(0, 17);
  REFUSED(31, 2);
  REFUSED(20, 4);
  REFUSED(0, 64);
  REFUSED(16, 4);
  REFUSED(16, 16);
  REFUSED(16, 32);
  CHECK(omp_target_associate_ptr(a, p, 16 * sizeof(int), 0, device) == 0);
  // The part of the association's own memory that belongs to the part of the range is no exception.
  CHECK(omp_target_associate_ptr(a + 4, p + 4, 4 * sizeof(int), 0, device) != 0);

  a[15] = 3;
#pragma omp target update to(a[0:16])
#pragma omp target map(tofrom: a[0:16])
  a[15] += 1;
#pragma omp target update from(a[0:16])
  CHECK(a[15] == 4);
  CHECK(omp_target_disassociate_ptr(a, device) == 0);
  CHECK(omp_target_associate_ptr(all, q, sizeof all, 0, device) == 0);
  CHECK(omp_target_is_present(all + 63, device));
  CHECK(omp_target_disassociate_ptr(all, device) == 0);
  CHECK(!omp_target_is_present(a, device));
  omp_target_free(p, device);
  omp_target_free(q, device);
  return VERDICT();
}
