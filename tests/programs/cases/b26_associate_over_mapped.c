// A range that overlaps a mapping cannot be associated: from before into it, from inside over its end, inside of it,
// around it, or from the same begin with another size. The mapping stays as it is, its count, its data and its
// neighbourhood; a range that only touches it can be associated.
// stock: refuses only the last (the same begin); the others return 0 and stay in the table beside the mapping
// expect: PASS
#include "../check.h"

static int all[64];

int main(void) {
  int device = omp_get_default_device(), *a = all + 16;
  char *p = omp_target_alloc(sizeof all, device);
#define REFUSED(first, count)                                                                                          \
  CHECK(omp_target_associate_ptr(all + (first), p, (count) * sizeof(int), 0, device) != 0);                            \
  for (int i = 0; i < 64; ++i)                                                                                         \
    CHECK(omp_target_is_present(all + i, device) == (i >= 16 && i < 32))
#pragma omp target enter data map(to: a[0:16])
#pragma omp target map(alloc: a[0:16])
  a[15] = 7;
  REFUSED(0, 17);
  REFUSED(0, 32);
  REFUSED(31, 2);
  REFUSED(20, 40);
  REFUSED(20, 4);
  REFUSED(28, 4);
  REFUSED(0, 64);
  REFUSED(15, 18);
  REFUSED(16, 4);
  REFUSED(16, 16);
  REFUSED(16, 32);

  CHECK(omp_target_associate_ptr(all, p, 16 * sizeof(int), 0, device) == 0);
  CHECK(omp_target_associate_ptr(all + 32, p, 32 * sizeof(int), 16 * sizeof(int), device) == 0);
  for (int i = 0; i < 64; ++i)
    CHECK(omp_target_is_present(all + i, device));
#pragma omp target exit data map(from: a[0:16])
  CHECK(a[15] == 7);
  for (int i = 0; i < 64; ++i)
    CHECK(omp_target_is_present(all + i, device) == (i < 16 || i >= 32));
  CHECK(omp_target_disassociate_ptr(all, device) == 0);
  CHECK(omp_target_disassociate_ptr(all + 32, device) == 0);
  omp_target_free(p, device);
  return VERDICT();
}
