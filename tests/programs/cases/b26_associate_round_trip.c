// An association: refused with bad arguments, made, made again with the same address (nothing to do), refused with
// another; used by regions and updates, which neither copy by themselves nor count it out, not even by delete; ended
// once, not twice; and possible again afterwards with other memory.
// stock: the same
// expect: PASS
#include "../check.h"

int main(void) {
  int a[8] = {1, 2, 3, 4, 5, 6, 7, 8}, device = omp_get_default_device(), host = omp_get_initial_device(), seen = 0;
  int *p = omp_target_alloc(2 * sizeof a, device), *q = omp_target_alloc(sizeof a, device);
  CHECK(omp_target_associate_ptr(NULL, p, sizeof a, 0, device) != 0);
  CHECK(omp_target_associate_ptr(a, NULL, sizeof a, 0, device) != 0);
  CHECK(omp_target_associate_ptr(a, p, 0, 0, device) != 0);
  CHECK(omp_target_associate_ptr(a, p, sizeof a, 0, host) != 0);
  CHECK(!omp_target_is_present(a, device));

  CHECK(omp_target_associate_ptr(a, p, sizeof a, sizeof a, device) == 0);
  CHECK(omp_target_is_present(a, device) && omp_target_is_present(a + 7, device));
  CHECK(omp_target_associate_ptr(a, p, sizeof a, sizeof a, device) == 0);
  CHECK(omp_target_associate_ptr(a, p, sizeof a, 0, device) != 0);
  CHECK(omp_target_associate_ptr(a, q, sizeof a, sizeof a, device) != 0);
  CHECK(omp_target_associate_ptr(a, p, sizeof a / 2, sizeof a, device) != 0);

#pragma omp target update to(a)
#pragma omp target map(tofrom: a, seen)
  {
    seen = a[7];
    a[7] = 80;
  }
  CHECK(seen == 8 && a[7] == 8);
  int from_device = 0;
  CHECK(omp_target_memcpy(&from_device, p, sizeof(int), 0, sizeof a + 7 * sizeof(int), host, device) == 0);
  CHECK(from_device == 80);
#pragma omp target exit data map(delete: a)
  CHECK(omp_target_is_present(a, device));
#pragma omp target update from(a)
  CHECK(a[7] == 80);

  CHECK(omp_target_disassociate_ptr(a + 1, device) != 0);
  CHECK(omp_target_disassociate_ptr(a, device) == 0);
  CHECK(!omp_target_is_present(a, device));
  CHECK(omp_target_disassociate_ptr(a, device) != 0);

  CHECK(omp_target_associate_ptr(a, q, sizeof a, 0, device) == 0);
#pragma omp target map(always, tofrom: a)
  a[0] += 10;
  CHECK(a[0] == 11);
  CHECK(omp_target_disassociate_ptr(a, device) == 0);
#pragma omp target map(tofrom: a)
  a[0] += 10;
  CHECK(a[0] == 21 && !omp_target_is_present(a, device));
  omp_target_free(p, device);
  omp_target_free(q, device);
  return VERDICT();
}
